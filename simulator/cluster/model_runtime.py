"""
Run containers as timed models, so that thousands of Pods fit in one process under virtual time.

An agent (a command that starts with `inplace-agent`) is the real one: `agent.sidecar_agent` as a coroutine
with an in-memory transport, barrier and link. An init container exits 0 after a while. Any other container is a
worker: it takes its first step after a while and runs until it is stopped. With STEPS and STEP_S in its environment
it exits 0 after STEPS steps of STEP_S seconds. A guarded worker does so from the lift on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import PurePosixPath
from random import Random
from typing import Any

from inplace.agent.arguments import GRACE_S
from inplace.agent.barrier import BarrierState
from inplace.agent.config import AgentConfig, ConfigError
from inplace.agent.driver import Parts
from inplace.agent.exit_code import ExitCode
from inplace.agent.sidecar_agent import SidecarAgent
from inplace.common import wire
from inplace.common.epoch.guard import Signalled, WorkerEnded
from inplace.common.guard_command import AGENT_COMMAND, is_guarded
from inplace.common.kube.clock import Clock
from inplace.common.kube.http import Transport
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.model_link import ModelGuard, ModelLink, PodLink
from inplace.simulator.cluster.pod_spec import Probe, Role
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun, RunningContainer, Sandbox
from inplace.simulator.cluster.timings import Timings

SIGTERM_EXIT = 143


class ModelBarrier:
    """The agent's barrier without a socket."""

    def __init__(self) -> None:
        self.lifted = False
        self.last_report: BarrierState | None = None

    async def start(self) -> None:
        """Do nothing: there is no port to open."""

    def lift(self, epoch: int | None) -> None:  # noqa: ARG002
        """Answer the probe with success from now on."""
        self.lifted = True

    def close(self) -> None:
        """Answer the probe with failure again."""
        self.lifted = False

    def report(self, report: BarrierState) -> None:
        """Keep the newest report for tests."""
        self.last_report = report

    async def stop(self) -> None:
        """Do nothing."""


class QuietLog:
    """Drops every line: 5,000 agents would write a hundred thousand."""

    def debug(self, event: str, **fields: Any) -> None:
        """Drop it."""

    info = warning = error = debug


class _Instance:
    """The base of both models: an exit code that is decided once."""

    def __init__(self, clock: Clock, rng: Random, timings: Timings) -> None:
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(code)

    async def stop(self, grace_s: float) -> None:
        """End as a process that obeys SIGTERM does, or at once when there is no grace."""
        exit_s = self._timings.process_exit.draw(self._rng)
        await self._clock.sleep(min(exit_s, grace_s))
        self.end(SIGTERM_EXIT if exit_s <= grace_s else SIGKILL_EXIT)

    def signal(self, number: int) -> None:
        """End by a signal."""
        self.end(128 + number)

    def signal_child(self, number: int) -> None:  # noqa: ARG002
        """Refuse: a model has no processes below it."""
        raise LookupError("expected a supervisor with a worker below it, saw a model; use --runtime process")


class ModelAgent(_Instance):
    """The real agent's coroutine in the place of its process."""

    def __init__(
        self, agent: SidecarAgent | None, barrier: ModelBarrier, link: ModelLink, code: int, *args: Any
    ) -> None:
        super().__init__(*args)
        self.agent = agent
        self.barrier = barrier
        self._link = link
        if agent is None:
            self.end(code)

    async def wait(self) -> int:
        """Run the agent until it ends or is killed."""
        if self.agent is None:
            return await self._ended
        await self._clock.sleep(self._timings.agent_start.draw(self._rng))
        running = asyncio.ensure_future(self.agent.run())
        running.add_done_callback(self._take_end)
        try:
            return await self._ended
        finally:
            self._link.leave()
            running.cancel()
            await asyncio.wait([running])

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Return whether the barrier is lifted."""
        await self._clock.sleep(self._timings.barrier_answer.draw(self._rng))
        return self.barrier.lifted

    def _take_end(self, running: asyncio.Future[int]) -> None:
        if running.cancelled() or self._ended.done():
            return
        if (error := running.exception()) is not None:
            self._ended.set_exception(error)  # an agent's bug must stop the simulation, not restart a container
        else:
            self.end(running.result())


class ModelWorker(_Instance):
    """A model of a worker: it only sleeps."""

    def __init__(self, on_first_step: Callable[[], None], life_s: float | None, *args: Any) -> None:
        super().__init__(*args)
        self._on_first_step = on_first_step
        self._life_s = life_s

    async def wait(self) -> int:
        """Take the first step, then run until `end` or the last step."""
        code = await self._end_within(self._timings.worker_first_step.draw(self._rng))
        if code is not None:
            return code
        self._on_first_step()
        code = await self._end_within(self._life_s)
        return 0 if code is None else code

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Answer with success after the time of a probe."""
        return True

    async def _end_within(self, delay_s: float | None) -> int | None:
        """Return the exit code, or None when the model still runs after `seconds`."""
        try:
            async with self._clock.timeout(delay_s):
                return await asyncio.shield(self._ended)
        except TimeoutError:
            return None


class ModelGuardedWorker(ModelWorker):
    """A worker whose parent is a guard: it begins with the lift, and ends with its agent."""

    def __init__(self, link: PodLink, on_start: Callable[[], None], *args: Any) -> None:
        super().__init__(*args)
        self._guard = ModelGuard(link, self)
        self._on_start = on_start
        self._lifted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping: asyncio.Task[None] | None = None
        self._killed = False

    async def wait(self) -> int:
        """Wait for the lift, train, and tell the agent of the end."""
        self._guard.begin()
        try:
            ends: list[asyncio.Future[Any]] = [self._lifted, self._ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code = await super().wait() if self._lifted.done() else self._ended.result()
            if self._lifted.done() and not self._killed:
                self._guard.take(WorkerEnded(code))
            return code
        finally:
            self._guard.cut()
            if self._stopping is not None:
                self._stopping.cancel()

    async def stop(self, grace_s: float) -> None:
        """End as a guard that passes SIGTERM on."""
        if not self._ended.done():
            self._guard.take(Signalled(signal.SIGTERM))
            await super().stop(grace_s)

    def signal(self, number: int) -> None:
        """Kill the guard, and with it the container."""
        self._killed = True
        super().signal(number)

    def signal_child(self, number: int) -> None:
        """Kill the worker below the guard."""
        self.end(128 + number)

    def start_worker(self, epoch: int) -> None:  # noqa: ARG002
        """Begin."""
        self._lifted.set_result(None)
        self._on_start()

    def stop_worker(self) -> None:
        """End as a process that obeys SIGTERM does."""
        self._stopping = asyncio.ensure_future(super().stop(GRACE_S))

    def signal_worker(self, number: int) -> None:
        """Do nothing: `stop` ends the worker."""

    def leave(self, code: int) -> None:
        """End the guard's process, and with it the container."""
        self.end(code)


class ModelRuntime:
    """The runtime of every node.

    Args:
        transport_for: the connection of one Pod's agent.
        tell: takes first steps.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Random,
        timings: Timings,
        transport_for: Callable[[KubeObject], Transport],
        tell: Callable[[ClusterEvent], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self._transport_for = transport_for
        self._tell = tell
        self._pods_made = 0
        self._links: dict[str, PodLink] = {}  # by Pod's uid

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        high, low = divmod(self._pods_made, 250)
        return Sandbox(pod["metadata"]["uid"], f"10.{64 + high // 250}.{high % 250}.{low + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forget its folder; an instance ends with the kubelet's task that waits for it."""
        self._links.pop(sandbox.uid, None)

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        shared = self._clock, self._rng, self._timings
        if run.spec.role is not Role.INIT and _is_agent(run.command):
            barrier, link = ModelBarrier(), ModelLink(self._link(run))
            agent, code = self._agent(run, barrier, link)
            return ModelAgent(agent, barrier, link, code, *shared)
        steps, step_s = int(run.env.get("STEPS") or 0), float(run.env.get("STEP_S") or 0)
        life_s = 0.0 if run.spec.role is Role.INIT else steps * step_s if steps else None
        own = self._teller(run, Kind.FIRST_STEP, "model"), life_s, *shared
        if is_guarded(run.command):
            return ModelGuardedWorker(self._link(run), self._teller(run, Kind.WORKER_STARTED), *own)
        return ModelWorker(*own)

    async def read_log(
        self,
        uid: str,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        """Yield one line: a model writes no log."""
        which = "previous " if previous else ""
        yield f"{container} of Pod {uid} is a model: it has no {which}log\n".encode()

    async def close(self) -> None:
        """Do nothing."""

    def _link(self, run: ContainerRun) -> PodLink:
        return self._links.setdefault(run.sandbox.uid, PodLink())

    def _agent(self, run: ContainerRun, barrier: ModelBarrier, link: ModelLink) -> tuple[SidecarAgent | None, int]:
        try:
            config = AgentConfig.from_env(run.env)
        except ConfigError:
            return None, ExitCode.CONFIG
        if config.restart_depth != wire.CONTAINERS:
            raise ValueError("expected RESTART_DEPTH=containers (a modelled worker is no process), saw process")
        parts = Parts(
            transport=self._transport_for(run.pod),
            clock=self._clock,
            rng=self._rng,
            barrier=barrier,
            link=link,
            log=QuietLog(),
        )
        return SidecarAgent(config, parts), 0

    def _teller(self, run: ContainerRun, kind: Kind, *more: str) -> Callable[[], None]:
        """Return what tells of a moment in a worker's life."""
        meta = run.pod["metadata"]
        who = meta["namespace"], meta["name"], meta["uid"], run.spec.name

        def tell() -> None:
            if run.spec.role is Role.REGULAR:
                self._tell(ClusterEvent(self._clock.monotonic_s(), kind, *who, *more))

        return tell


def _is_agent(command: tuple[str, ...]) -> bool:
    """Return whether a command is the agent itself; behind `wait` or `guard` it is a worker, whose model waits."""
    is_ours = bool(command) and PurePosixPath(command[0]).name.startswith(AGENT_COMMAND)
    return is_ours and command[1:2] not in (("wait",), ("guard",))
