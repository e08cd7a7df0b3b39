"""
Which Pods wait for each other: those of a PodGroup whose policy is a gang.

As in kube-scheduler, a Pod waits for its PodGroup, and for so many Pods of it as the gang is of, bound ones included.
Not there: topology constraints, preemption by a whole gang, the PodGroup's conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inplace.common.kube.resources import KubeObject

_Name = tuple[str, str]  # namespace and name


class Gangs:
    """The PodGroups, by name."""

    def __init__(self) -> None:
        self._sizes: dict[_Name, int] = {}

    def observe(self, event_type: str, group: KubeObject) -> None:
        """Process a change of a PodGroup."""
        name = (group["metadata"]["namespace"], group["metadata"]["name"])
        if event_type == "DELETED":
            self._sizes.pop(name, None)
            return
        gang = group["spec"]["schedulingPolicy"].get("gang") or {}
        self._sizes[name] = int(gang.get("minCount", 1))

    def companions(
        self, uid: str, pod: KubeObject, pending: Mapping[str, KubeObject], placed: Iterable[KubeObject]
    ) -> tuple[list[tuple[str, KubeObject]], int]:
        """Return the Pods to place together, by UID, and how many must fit; none while too few are there."""
        if (group := group_of(pod)) is None:
            return [(uid, pod)], 1
        size = self._sizes.get(group)
        waiting = [(one, other) for one, other in pending.items() if group_of(other) == group]
        bound = sum(group_of(other) == group for other in placed)
        if size is None or len(waiting) + bound < size:
            return [], 1
        return waiting, max(1, size - bound)


def group_of(pod: KubeObject) -> _Name | None:
    """Return the PodGroup of a Pod; None for none."""
    named: dict[str, Any] = pod["spec"].get("schedulingGroup") or {}
    return (pod["metadata"]["namespace"], named["podGroupName"]) if named.get("podGroupName") else None
