"""The events of containers, for observers of the cluster (the demo, the timeline, tests)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kind of a moment."""

    POD_TAKEN = "pod-taken"  # a kubelet took the Pod in; detail: the node
    CONTAINER_STARTED = "container-started"
    CONTAINER_EXITED = "container-exited"  # the process ended; detail: exit code
    CONTAINER_KILLED = "container-killed"  # the kubelet began to kill it; detail: grace in seconds
    WORKER_STARTED = "worker-started"  # a supervisor started its worker inside the container
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
