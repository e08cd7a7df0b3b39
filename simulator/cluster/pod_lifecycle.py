"""
Decide, as a kubelet does, which containers of one Pod to start and kill next.

`step(event, now) -> actions`: no I/O, no clock, no randomness, so that processes and timed models share it
and a test can drive it by hand. Events and actions name a container *instance*: an event about an instance
that is no longer the current one is late, and ignored.

Source: pkg/kubelet/kuberuntime/kuberuntime_manager.go v1.37 (computePodActions, SyncPod, doBackOff), KEP-753
(sidecars), KEP-5307 and KEP-5532 (restart rules).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from inplace.simulator.cluster.pod_spec import ContainerSpec, PodSpec, RestartAction, Role

GRACE_OF_RESTART_ALL_S = 2.0  # kuberuntime_container.go minimumGracePeriodInSeconds; preStop hooks are skipped
BACKOFF_S_FIRST = 10.0
BACKOFF_S_MAX = 300.0
BACKOFF_FORGOTTEN_S = 600.0  # after this long without a restart, the next one is free again
KILLED_BY_RESTART = 137  # what lastState shows for a container that a restart of all containers removed
RESTARTING_ALL = "RestartingAllContainers"


class State(Enum):
    """The state of one container."""

    WAITING = "waiting"
    STARTING = "starting"  # handed to the runtime, not yet running
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Exit:
    """How an instance ended."""

    code: int
    reason: str
    instance: int
    started_s: float
    finished_s: float


@dataclass(slots=True)
class Container:
    """The kubelet's record of one container."""

    spec: ContainerSpec
    state: State = State.WAITING
    waiting_reason: str = "PodInitializing"
    instance: int = 0
    restart_count: int = 0
    started: bool = False
    ready: bool = False
    killing: bool = False
    unhealthy: bool = False
    started_s: float = 0.0
    exit: Exit | None = None
    last_exit: Exit | None = None
    backoff_s: float = 0.0
    due_s: float = 0.0

    @property
    def alive(self) -> bool:
        """Return whether the runtime holds a process for it."""
        return self.state in (State.STARTING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Begin:
    """The Pod was bound to this node and its volumes are ready."""


@dataclass(frozen=True, slots=True)
class OfInstance:
    """An event or an action of one instance."""

    name: str
    instance: int


@dataclass(frozen=True, slots=True)
class Started(OfInstance):
    """The runtime has started the instance."""


@dataclass(frozen=True, slots=True)
class Exited(OfInstance):
    """The instance is gone, with every process it had."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StartupPassed(OfInstance):
    """The startup probe succeeded."""


@dataclass(frozen=True, slots=True)
class ProbeFailed(OfInstance):
    """The startup or liveness probe failed too often."""


@dataclass(frozen=True, slots=True)
class Readiness(OfInstance):
    """The readiness probe's result changed."""

    ready: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of a `WakeAt` has come."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The Pod object got a deletionTimestamp."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class DeadlineExceeded:
    """The Pod was active for longer than its activeDeadlineSeconds."""


@dataclass(frozen=True, slots=True)
class Start(OfInstance):
    """Start an instance of a container."""


@dataclass(frozen=True, slots=True)
class Kill(OfInstance):
    """Send SIGTERM, and SIGKILL `grace_s` seconds later."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a Tick at this time (same clock as `now_s`)."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """No container is left and none will start again."""


Event = Begin | Started | Exited | StartupPassed | ProbeFailed | Readiness | Tick | Deleted | DeadlineExceeded
Action = Start | Kill | WakeAt | Stopped


@dataclass(slots=True)
class PodLifecycle:
    """The kubelet's record of one Pod, and its decisions."""

    spec: PodSpec
    containers: dict[str, Container] = field(init=False)
    initialized: bool = False  # some regular container was started since the last restart of all containers
    was_initialized: bool = False  # ever
    restarting: frozenset[str] | None = None  # the containers whose exit restarts all; None: no such restart runs
    grace_s: float | None = None  # set when the Pod is being stopped
    deleted: bool = False
    expired: bool = False  # it ends because of its activeDeadlineSeconds
    init_failed: bool = False
    stopped: bool = False
    _removed: set[str] = field(default_factory=set)
    _instances: int = 0

    def __post_init__(self) -> None:
        self.containers = {spec.name: Container(spec) for spec in self.spec.containers}

    def step(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """Process one event and return the actions, in order."""
        if self.stopped:
            return ()
        self._take(event, now_s)
        return tuple(self._sync(now_s))

    def regular(self) -> list[Container]:
        """Return the regular containers."""
        return [c for c in self.containers.values() if c.spec.role is Role.REGULAR]

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case Begin() | Tick():
                return
            case Deleted(grace_s):
                self.deleted = True
                self._stop(grace_s)
                return
            case DeadlineExceeded():
                self.expired = True
                self._stop(self.spec.grace_s)
                return
            case _:
                container = self.containers[event.name]
        if container.instance != event.instance or not container.alive:
            return  # the event is late: its instance is gone
        match event:
            case Started():
                container.state = State.RUNNING
                container.started_s = now_s
                container.started = container.spec.startup is None
                container.ready = container.started and container.spec.readiness is None
            case StartupPassed():
                container.started = True
                container.ready = container.spec.readiness is None
            case Readiness(ready=ready):
                container.ready = ready and container.started
            case ProbeFailed():
                container.unhealthy = True
            case Exited():
                self._take_exit(container, event, now_s)

    def _take_exit(self, container: Container, event: Exited, now_s: float) -> None:
        began_s = container.started_s if container.state is State.RUNNING else now_s
        reason = event.reason or ("Completed" if event.code == 0 else "Error")
        container.exit = Exit(event.code, reason, event.instance, began_s, now_s)
        container.state = State.TERMINATED
        container.started = container.ready = container.killing = container.unhealthy = False
        if self.grace_s is not None or self.restarting is not None:
            return
        match container.spec.after_exit(event.code):
            case RestartAction.RESTART_ALL:
                self.restarting = frozenset({event.name})
                self._removed = set()
            case RestartAction.RESTART:
                self._schedule_restart(container, now_s)
            case RestartAction.STAY:
                self.init_failed |= container.spec.role is Role.INIT and event.code != 0

    @staticmethod
    def _schedule_restart(container: Container, now_s: float) -> None:
        """Put a container back to waiting: the first restart is free, later ones back off."""
        if container.last_exit is not None and now_s - container.last_exit.finished_s > BACKOFF_FORGOTTEN_S:
            container.backoff_s = 0.0
        container.last_exit = container.exit
        container.state = State.WAITING
        container.waiting_reason = "CrashLoopBackOff"
        container.restart_count += 1
        container.due_s = now_s + container.backoff_s
        container.backoff_s = min(BACKOFF_S_MAX, max(BACKOFF_S_FIRST, 2 * container.backoff_s))

    def _stop(self, grace_s: float) -> None:
        self.grace_s = grace_s if self.grace_s is None else min(self.grace_s, grace_s)
        self.restarting = None

    def _sync(self, now_s: float) -> Iterable[Action]:
        """Yield the actions that the Pod needs now."""
        if self.grace_s is None and self.restarting is None:
            yield from self._kill_unhealthy()
            if self.init_failed or self._is_complete():
                self._stop(self.spec.grace_s)
        if self.grace_s is not None:
            yield from self._stop_next(self.grace_s)
            return
        if self.restarting is not None:
            yield from self._remove_next(self.restarting)
        if self.restarting is None:
            yield from self._start_next(now_s)

    def _kill_unhealthy(self) -> Iterable[Action]:
        for container in self.containers.values():
            if container.state is State.RUNNING and container.unhealthy and not container.killing:
                container.killing = True
                yield Kill(container.spec.name, container.instance, self.spec.grace_s)

    def _is_complete(self) -> bool:
        """Return whether every regular container ended for good (one that restarts is WAITING)."""
        return all(c.state is State.TERMINATED for c in self.regular())

    def _stop_next(self, grace_s: float) -> Iterable[Action]:
        """Kill the regular (and plain init) containers together, then the sidecars, last one first."""
        alive = [c for c in self.containers.values() if c.alive]
        if not alive:
            self.stopped = True
            yield Stopped()
            return
        first = [c for c in alive if c.spec.role is not Role.SIDECAR] or alive[-1:]
        for container in first:
            if container.state is State.RUNNING and not container.killing:
                container.killing = True
                yield Kill(container.spec.name, container.instance, grace_s)

    def _remove_next(self, sources: frozenset[str]) -> Iterable[Action]:
        """Kill and remove one container after the other, as kubelet does; end the restart after the last."""
        for container in self._removal_order(sources):
            if container.alive:
                if container.state is State.RUNNING and not container.killing:
                    container.killing = True
                    yield Kill(container.spec.name, container.instance, GRACE_OF_RESTART_ALL_S)
                return
            self._remove(container)
        self.restarting = None
        self.initialized = False

    def _removal_order(self, sources: frozenset[str]) -> list[Container]:
        """Return targets BEFORE sources, and regular containers BEFORE init ones in each."""
        left = [c for c in self.containers.values() if c.spec.name not in self._removed]
        return sorted(left, key=lambda c: (c.spec.name in sources, c.spec.role is not Role.REGULAR))

    def _remove(self, container: Container) -> None:
        self._removed.add(container.spec.name)
        if container.exit is None or container.state is not State.TERMINATED:
            return  # a waiting container has nothing to remove
        ended = container.exit
        container.last_exit = Exit(KILLED_BY_RESTART, RESTARTING_ALL, ended.instance, ended.started_s, ended.finished_s)
        container.exit = None
        container.state = State.WAITING
        container.waiting_reason = RESTARTING_ALL
        container.restart_count += 1
        container.due_s = 0.0  # no CrashLoopBackOff: the runtime holds no exited container to back off from

    def _start_next(self, now_s: float) -> Iterable[Action]:
        """Start the containers that may run now: init containers in order, AFTER them the regular ones."""
        passed = True
        for container in self.containers.values():
            if container.spec.role is Role.REGULAR:
                if passed or self.initialized:
                    self.initialized = self.was_initialized = True
                    yield from self._start(container, now_s)
                continue
            if self.initialized and container.spec.role is Role.INIT:
                continue
            if passed or self.initialized:
                yield from self._start(container, now_s)
            passed = passed and self._lets_pass(container)

    @staticmethod
    def _lets_pass(container: Container) -> bool:
        if container.spec.role is Role.SIDECAR:
            return container.started
        return container.state is State.TERMINATED and container.exit is not None and container.exit.code == 0

    def _start(self, container: Container, now_s: float) -> Iterable[Action]:
        if container.state is not State.WAITING:
            return
        if container.due_s > now_s:
            yield WakeAt(container.due_s)
            return
        self._instances += 1
        container.instance = self._instances
        container.state = State.STARTING
        container.exit = None
        container.killing = False
        container.due_s = 0.0
        yield Start(container.spec.name, container.instance)
