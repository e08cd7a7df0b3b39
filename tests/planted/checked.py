"""The planted bugs that the model checker finds; apart, because it loads nothing of agents and simulator."""

from __future__ import annotations

from typing import Final

from tests.planted.bad_domains import BAD_DOMAIN_BUGS
from tests.planted.bug import Bug
from tests.planted.escalations import ESCALATION_BUGS
from tests.planted.fences import FENCE_BUGS
from tests.planted.machines import MACHINE_BUGS
from tests.planted.members import MEMBER_BUGS
from tests.planted.pacing import PACING_BUGS
from tests.planted.protocol import LIMITS, PROTOCOL
from tests.planted.resume import RESUME_BUGS
from tests.planted.units import UNIT_BUGS

CHECKED: Final[tuple[Bug, ...]] = (
    *(bug for bug in (*PROTOCOL, *LIMITS) if bug.worlds),
    *(*MACHINE_BUGS, *FENCE_BUGS, *ESCALATION_BUGS, *BAD_DOMAIN_BUGS, *PACING_BUGS, *MEMBER_BUGS),
    *RESUME_BUGS,
    *UNIT_BUGS,
)
