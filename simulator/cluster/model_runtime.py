"""
Run containers as timed models, so that thousands of Pods fit in one process under virtual time.

An agent (a command that starts with `inplace-agent`) is the real one: `agent.sidecar_agent` as a coroutine
with an in-memory transport and barrier. Any other container is a worker: it takes its first step after a
while, goes on until it is told to exit, and exits 0 after STEPS steps of STEP_S seconds if its environment
says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import PurePosixPath
from random import Random
from typing import Any

from inplace.agent.barrier import BarrierState
from inplace.agent.config import AgentConfig, ConfigError
from inplace.agent.driver import Parts
from inplace.agent.exit_code import ExitCode
from inplace.agent.sidecar_agent import SidecarAgent
from inplace.common.kube.clock import Clock
from inplace.common.kube.http import Transport
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.pod_spec import Probe, Role
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun, RunningContainer, Sandbox
from inplace.simulator.cluster.timings import Timings

AGENT_COMMAND = "inplace-agent"
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
        """Answer it with failure again."""
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
    """What both models share: an end that is decided once."""

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

    def __init__(self, agent: SidecarAgent | None, barrier: ModelBarrier, code: int, *args: Any) -> None:
        super().__init__(*args)
        self.agent = agent
        self.barrier = barrier
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
            running.cancel()
            await asyncio.wait([running])

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Answer for the barrier."""
        await self._clock.sleep(self._timings.barrier_answer.draw(self._rng))
        return self.barrier.lifted

    def _take_end(self, running: asyncio.Future[int]) -> None:
        if running.cancelled() or self._ended.done():
            return
        if (error := running.exception()) is not None:
            self._ended.set_exception(error)  # a bug of ours must stop the simulation, not restart a container
        else:
            self.end(running.result())


class ModelWorker(_Instance):
    """A worker that trains in its imagination."""

    def __init__(self, on_first_step: Callable[[], None], life_s: float | None, *args: Any) -> None:
        super().__init__(*args)
        self._on_first_step = on_first_step
        self._life_s = life_s

    async def wait(self) -> int:
        """Take the first step, then train until told to exit or done."""
        code = await self._end_within(self._timings.worker_first_step.draw(self._rng))
        if code is not None:
            return code
        self._on_first_step()
        code = await self._end_within(self._life_s)
        return 0 if code is None else code

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Be healthy."""
        return True

    async def _end_within(self, delay_s: float | None) -> int | None:
        """Return the exit code, or None when it still runs after so many seconds."""
        try:
            async with self._clock.timeout(delay_s):
                return await asyncio.shield(self._ended)
        except TimeoutError:
            return None


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

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        high, low = divmod(self._pods_made, 250)
        return Sandbox(pod["metadata"]["uid"], f"10.{64 + high // 250}.{high % 250}.{low + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Do nothing: an instance ends with the kubelet's task that waits for it."""

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        shared = self._clock, self._rng, self._timings
        if _is_agent(run.command):
            barrier = ModelBarrier()
            agent, code = self._agent(run, barrier)
            return ModelAgent(agent, barrier, code, *shared)
        steps, step_s = int(run.env.get("STEPS") or 0), float(run.env.get("STEP_S") or 0)
        return ModelWorker(self._stepper(run), steps * step_s if steps else None, *shared)

    async def read_log(
        self,
        uid: str,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        """Say that a model writes no log."""
        which = "previous " if previous else ""
        yield f"{container} of Pod {uid} is a model: it has no {which}log\n".encode()

    async def close(self) -> None:
        """Do nothing."""

    def _agent(self, run: ContainerRun, barrier: ModelBarrier) -> tuple[SidecarAgent | None, int]:
        try:
            config = AgentConfig.from_env(run.env)
        except ConfigError:
            return None, ExitCode.CONFIG
        parts = Parts(
            transport=self._transport_for(run.pod),
            clock=self._clock,
            rng=self._rng,
            barrier=barrier,
            log=QuietLog(),
        )
        return SidecarAgent(config, parts), 0

    def _stepper(self, run: ContainerRun) -> Callable[[], None]:
        meta = run.pod["metadata"]
        who = meta["namespace"], meta["name"], meta["uid"], run.spec.name

        def on_first_step() -> None:
            if run.spec.role is Role.REGULAR:
                self._tell(ClusterEvent(self._clock.monotonic_s(), Kind.FIRST_STEP, *who, "model"))

        return on_first_step


def _is_agent(command: tuple[str, ...]) -> bool:
    """Say whether a command is the agent's own; in front of a worker it only waits, and so does the worker's model."""
    return bool(command) and PurePosixPath(command[0]).name.startswith(AGENT_COMMAND) and command[1:2] != ("wait",)
