"""The events of containers, for observers of the cluster (the demo, the timeline, tests)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from inplace.common.kube.resources import KubeObject


class Kind(Enum):
    """The kind of a moment."""

    POD_TAKEN = "pod-taken"  # a kubelet took the Pod in; detail: the node
    CONTAINER_STARTED = "container-started"
    CONTAINER_EXITED = "container-exited"  # the process ended; detail: exit code
    CONTAINER_KILLED = "container-killed"  # the kubelet began to kill it; detail: grace in seconds
    WORKER_STARTED = "worker-started"  # a guard started its worker inside the container
    BARRIER_LIFTED = "barrier-lifted"  # the startup probe succeeded for the first time
    FIRST_STEP = "first-step"  # a worker did its first training step; detail: the line
    FAULT = "fault"  # a fault killed it; detail: the signal or exit code
    POD_REMOVED = "pod-removed"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One moment. Times are seconds of the cluster's clock (monotonic)."""

    time_s: float
    kind: Kind
    namespace: str
    pod: str
    uid: str
    container: str = ""
    detail: str = ""

    @classmethod
    def of(cls, pod: KubeObject, time_s: float, kind: Kind, container: str = "", detail: str = "") -> Self:
        """Return a moment in the life of a Pod."""
        meta = pod["metadata"]
        return cls(time_s, kind, meta["namespace"], meta["name"], meta["uid"], container, detail)


Observer = Callable[[ClusterEvent], None]


class Observers:
    """The functions that are called with each event."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Add an observer."""
        self._observers.append(observer)

    def tell(self, event: ClusterEvent) -> None:
        """Call every observer, in the order in which they were added."""
        for observer in self._observers:
            observer(event)
