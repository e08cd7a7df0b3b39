"""The explored configurations of groups with spares."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any, Final

from inplace.common.protocol.members import Sizes
from tests.model.configurations import kinds
from tests.model.member_parts import KINDS, MembersConfig

_TWO: Final = MembersConfig(2, frozenset(), sizes=Sizes(1, 1), slots=2)  # a member and a spare
_ONE: Final = changed(_TWO, slots=1, is_first=True)  # a member and its doubles
_THREE: Final = MembersConfig(2, frozenset())


def _explored(config: MembersConfig, names: str, **options: Any) -> MembersConfig:
    return changed(config, kinds=kinds(names), **options)


MEMBERS_QUICK: Final = (
    changed(_THREE, faults=1, kinds=KINDS),
    _explored(_TWO, "worker controller stripped lost", stale=1),
    _explored(_THREE, "worker delete", faults=1, sizes=Sizes(1, 2), is_patient=False, silent=frozenset({0})),
)
# The largest first, so that two processes finish at about the same time.
MEMBERS_FULL: Final = (
    _explored(_THREE, "delete grow", sizes=Sizes(1, 2), is_patient=False, absent=frozenset({1})),
    _explored(_TWO, "force handover", lag=2),
    _explored(_THREE, "worker delete success", restarts_max=1),
    _explored(_THREE, "worker controller stripped lost", stale=1),
    _explored(_TWO, "worker force controller"),
    _explored(_TWO, "force relist write"),
    _explored(_TWO, "worker cut controller"),
    _explored(_TWO, "force delete cut controller", faults=1, lag=3, is_first=True),
    _explored(_THREE, "worker hang agent", is_first=True),
    _explored(_THREE, "delete", faults=1, is_first=True),
    _explored(_THREE, "worker delete force cut controller", faults=1, sizes=Sizes(1, 2), is_patient=False),
    _explored(_ONE, "force controller relist handover write"),
    _explored(_THREE, "worker agent patch success write torn"),
    _explored(_THREE, "worker grow", sizes=Sizes(1, 2), is_patient=False, absent=frozenset({2})),
    _explored(_THREE, "worker delete", upstream=frozenset({2})),
    *MEMBERS_QUICK,
)
