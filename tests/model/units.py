"""
Groups with spares whose units are whole Jobs: two or three Jobs of two Pods, of which some run.

The world is that of `tests.model.members`. Its rules hold for the Pods: each place among all Pods of the members is
played once (M1), by a Pod whose Job is a member (M2) and which was counted (M4). So a Job is in or out as a whole, and
two workers of one place never run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inplace.common.protocol.members import Sizes
from tests.model.configurations import kinds
from tests.model.member_parts import KINDS, MembersConfig

TWO_JOBS: Final = MembersConfig(1, frozenset(), sizes=Sizes(1, 1), slots=4, stale=1, pods=2)  # a member and a spare
_THREE_JOBS: Final = replace(TWO_JOBS, sizes=Sizes(2, 2), slots=6)

UNITS_QUICK: Final = (replace(TWO_JOBS, kinds=kinds("worker delete success")),)
# The largest first, so that two processes finish at about the same time.
UNITS_FULL: Final = (
    replace(_THREE_JOBS, kinds=kinds("delete")),
    replace(TWO_JOBS, kinds=KINDS),
    replace(_THREE_JOBS, kinds=kinds("worker delete"), silent=frozenset({4})),  # a Pod of the spare Job is pending
    replace(_THREE_JOBS, kinds=kinds("worker")),
    replace(TWO_JOBS, kinds=kinds("worker delete grow"), sizes=Sizes(1, 2), is_patient=False),
    *UNITS_QUICK,
)
