"""Every planted bug, in the order of the report."""

from __future__ import annotations

from typing import Final

from tests.model.bug import Bug
from tests.model.planted import BUGS
from tests.model.planted_bad_domains import BAD_DOMAIN_BUGS
from tests.model.planted_escalations import ESCALATION_BUGS
from tests.model.planted_fences import FENCE_BUGS
from tests.model.planted_pacing import PACING_BUGS

ALL_BUGS: Final[tuple[Bug, ...]] = (*BUGS, *FENCE_BUGS, *ESCALATION_BUGS, *BAD_DOMAIN_BUGS, *PACING_BUGS)
