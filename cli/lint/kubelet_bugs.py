"""
Bugs of kubelet that affect in-place restart, by version: the effect, and what a manifest can do about it.

Versions are those known in November 2026; a fix whose release is not known counts as not released.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inplace.common.agent_command import GUARD
from inplace.common.injection.pod_roles import Member

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KubeletBug:
    """One bug.

    Args:
        issue: of kubernetes/kubernetes.
        what: happens.
        first: minor version that has it.
        last: minor version that has it, in some patch release at least.
        touches: says whether it can happen to this manifest.
        fix: what to do.
    """

    issue: str
    what: str
    first: Version
    last: Version
    touches: Callable[[Member], bool]
    fix: str

    def is_in(self, version: Version) -> bool:
        """Say whether kubelets of this version have it."""
        return self.first <= version <= self.last


def version_of(text: str) -> Version | None:
    """Read a version such as v1.36.3 or v1.33.5-gke.1; None when it is something else."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _is_sidecar(member: Member) -> bool:
    return member.mode == "sidecar"


def _relies_on_the_probe_alone(member: Member) -> bool:
    return _is_sidecar(member) and not all(worker.calls(GUARD) for worker in member.workers)


BUGS: Final = (
    KubeletBug(
        issue="kubernetes #141155",  # fix #141342; cherry-picks #142041, #142042, #142043 were open in September 2026
        what="a replaced sidecar may be taken for started before its probe ran, which lifts its barrier too early",
        first=(1, 35),
        last=(1, 37),
        touches=_relies_on_the_probe_alone,
        fix="start the worker below inplace-agent guard, which inplace inject adds",
    ),
    KubeletBug(
        issue="kubernetes #136966",
        what="after RestartAllContainers a Pod may wait up to 60 s for its next start",
        first=(1, 35),
        last=(1, 35),
        touches=_is_sidecar,
        fix="upgrade the nodes to 1.36, or use supervisor mode",
    ),
    KubeletBug(
        issue="kubernetes #136910",  # fix #137146, cherry-pick #137885
        what="after a restart of kubelet, containers beside a sidecar with a startup probe never start again",
        first=(1, 35),
        last=(1, 35),
        touches=_is_sidecar,
        fix="upgrade the nodes to 1.36, or to a 1.35 with #137885",
    ),
    KubeletBug(
        issue="kubernetes #136963",
        what="RestartAllContainers deletes the logs of the containers that it restarts",
        first=(1, 35),
        last=(1, 35),
        touches=_is_sidecar,
        fix="upgrade the nodes to 1.36, or collect logs as they are written",
    ),
)
