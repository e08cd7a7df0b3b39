"""The events of containers, for observers of the cluster (the demo, the timeline, tests)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Which moment it was."""

    POD_TAKEN = "pod-taken"  # a kubelet took the Pod in; detail: the node
    CONTAINER_STARTED = "container-started"
    CONTAINER_EXITED = "container-exited"  # the process ended; detail: exit code
    CONTAINER_KILLED = "container-killed"  # the kubelet began to kill it; detail: grace in seconds
    WORKER_STARTED = "worker-started"  # a supervisor started its worker inside the container
    BARRIER_LIFTED = "barrier-lifted"  # the startup probe succeeded for the first time
    FIRST_STEP = "first-step"  # a worker did its first training step; detail: the line
    FAULT = "fault"  # somebody killed it on purpose; detail: the signal or exit code
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


Observer = Callable[[ClusterEvent], None]


class Observers:
    """Whoever wants to be told."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Tell this one too."""
        self._observers.append(observer)

    def tell(self, event: ClusterEvent) -> None:
        """Tell everybody, in the order in which they came."""
        for observer in self._observers:
            observer(event)
