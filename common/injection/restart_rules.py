"""
What kubelet does when a container ends: the first rule that matches, else its restart policy, else the Pod's.

Source: KEP-5307 and KEP-5532; k8s.io/kubernetes pkg/kubelet/container/helpers.go, pkg/api/v1/pod/util.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

RESTART_ALL: Final = "RestartAllContainers"
CODES: Final = range(256)


class Ending(Enum):
    """What becomes of a Pod when one of its containers has ended."""

    ALL_RESTART = "every container starts again"
    ALONE_RESTARTS = "the container alone starts again"
    STAYS = "the container stays down"


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
