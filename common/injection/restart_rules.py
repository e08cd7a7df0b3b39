"""
What kubelet does when a container ends: the first rule that matches, else its restart policy, else the Pod's.

Where no rule is served, a sidecar whose guard stays restarts in place all the same: the guard starts its worker again,
and kubelet nothing (docs/adr/0105).
Source: KEP-5307 and KEP-5532; k8s.io/kubernetes pkg/kubelet/container/helpers.go, pkg/api/v1/pod/util.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

Version = tuple[int, int]
RULES_SINCE: Final[Version] = (1, 36)  # RestartAllContainers is on by default; in 1.35 a feature gate is off
IMAGE_VOLUMES_SINCE: Final[Version] = (1, 35)
RESTART_ALL: Final = "RestartAllContainers"
CODES: Final = range(256)


class Ending(Enum):
    """What becomes of a Pod when one of its containers has ended."""

    ALL_RESTART = "every container starts again"
    ALONE_RESTARTS = "the container alone starts again"
    STAYS = "the container stays down"


def version_of(text: str) -> Version | None:
    """Read a version of Kubernetes such as v1.36.3 or v1.33.5-gke.1; None when it is something else."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def ending(container: Mapping[str, Any], code: int, pod_policy: str) -> Ending:
    """Return what follows when a container exits with `code`."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") if isinstance(rule, dict) else None
        if isinstance(codes, dict) and (code in (codes.get("values") or ())) == (codes.get("operator") == "In"):
            return _ACTIONS.get(rule.get("action"), Ending.STAYS)
    policy = container.get("restartPolicy") or pod_policy
    restarts = policy == "Always" or (policy == "OnFailure" and code != 0)
    return Ending.ALONE_RESTARTS if restarts else Ending.STAYS


def codes_that(container: Mapping[str, Any], wanted: Ending, among: Iterable[int] = CODES) -> list[int]:
    """Return the exit codes with one outcome, where the Pod's restartPolicy is Never."""
    return [code for code in among if ending(container, code, "Never") is wanted]


def spell(codes: Iterable[int], *, separator: str = ", ") -> str:
    """Return codes as people write them: 0, 3-10."""
    ranges: list[tuple[int, int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return separator.join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


_ACTIONS: Final[Mapping[Any, Ending]] = {RESTART_ALL: Ending.ALL_RESTART, "Restart": Ending.ALONE_RESTARTS}
