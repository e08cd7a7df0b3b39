"""Time a restart from the events of the group's containers, whatever restarts them; one row of the comparison each."""

from __future__ import annotations

from dataclasses import dataclass, field

from inplace.cli.demo.manifest import DemoManifest
from inplace.simulator.cluster.events import ClusterEvent, Kind


@dataclass(frozen=True, slots=True)
class ComparedRestart:
    """One row of the comparison.

    Args:
        running_s: seconds from the kill of one worker until the worker of every Pod was started again.
        seconds: how long the restart took as the JobSet's status tells it; None for new Pods, which it does not time.
        pods_created: since the kill.
        containers_started: since the kill.
    """

    title: str
    running_s: float
    seconds: float | None
    pods_created: int
    containers_started: int


@dataclass
class KillRecord:
    """What happened in a group's Pods since the last kill of a worker.

    It needs no epoch and no status, so it times new Pods in the same way as a restart in place.
    """

    manifest: DemoManifest
    killed_s: float | None = None
    pods_created: int = 0
    containers_started: int = 0
    running_s: dict[str, float] = field(default_factory=dict)  # Pod's uid -> when its worker was started
    stepped: set[str] = field(default_factory=set)  # uids whose worker has done its first step

    def observe(self, event: ClusterEvent) -> None:
        """Take an event of a container."""
        if event.kind is Kind.FAULT:
            self.killed_s, self.pods_created, self.containers_started = event.time_s, 0, 0
            self.running_s, self.stepped = {}, set()
        elif event.kind is Kind.POD_TAKEN:
            self.pods_created += 1
        elif event.kind is Kind.CONTAINER_STARTED:
            self.containers_started += 1
        elif event.kind is Kind.FIRST_STEP:
            self.stepped.add(event.uid)
        if event.kind is self._start and event.container in self.manifest.workers.values():
            self.running_s[event.uid] = event.time_s

    @property
    def trains(self) -> bool:
        """Say whether the workers of all Pods have taken their first step, since the kill if there was one."""
        return len(self.stepped) >= self.manifest.pods

    def row(self, title: str, seconds: float | None) -> ComparedRestart:
        """Return the restart that is complete."""
        assert self.killed_s is not None, "expected a worker that was killed"
        running_s = max(self.running_s.values()) - self.killed_s
        return ComparedRestart(title, running_s, seconds, self.pods_created, self.containers_started)

    @property
    def _start(self) -> Kind:
        """Return the event that says that a worker runs: below a guard it is not its container's start."""
        return Kind.WORKER_STARTED if self.manifest.mode.is_guarded else Kind.CONTAINER_STARTED
