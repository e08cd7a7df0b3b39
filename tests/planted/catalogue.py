"""Every planted bug, in the order of the table."""

from __future__ import annotations

from typing import Final

from tests.planted.agent import AGENT
from tests.planted.bug import Bug
from tests.planted.caches import BACKOFF, INFORMER, QUEUE
from tests.planted.checked import CHECKED
from tests.planted.controller import BUDGET, CONTROLLER, LEADER, MARKED
from tests.planted.kubelet import KUBELET
from tests.planted.protocol import LIMITS, PROTOCOL
from tests.planted.resume import RESUME_BUGS
from tests.planted.spares import SPARES
from tests.planted.watchdog import WATCHDOG

HUNTED: Final = (
    *(*PROTOCOL, *AGENT, *WATCHDOG, *INFORMER, *QUEUE, *BACKOFF, *LEADER, *CONTROLLER, *MARKED, *BUDGET, *LIMITS),
    *KUBELET,
    *(bug for bug in (*SPARES, *RESUME_BUGS) if bug.faults is not None),
)
"""Those that the campaign of faults finds."""
BUGS: Final[tuple[Bug, ...]] = (*HUNTED, *(bug for bug in (*CHECKED, *SPARES) if bug not in HUNTED))
