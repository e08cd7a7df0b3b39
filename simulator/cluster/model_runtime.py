"""
Run containers as timed models, so that thousands of Pods fit in one process under virtual time.

An agent (a command that starts with `inplace-agent`) is the real one: `agent.sidecar_agent` or `agent.supervisor`
as a coroutine with an in-memory transport, barrier and link. An init container exits 0 after a while. Any other
container is a worker: it takes its first step after a while and runs until it is stopped. With STEPS and STEP_S in its
environment it exits 0 after STEPS steps of STEP_S seconds. Below a guard or a supervisor it does so from the lift on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import PurePosixPath
from random import Random
from typing import Any

from inplace.agent.agent import Agent
from inplace.agent.barrier.http import BarrierState
from inplace.agent.deps import AgentDeps
from inplace.agent.sidecar_agent import SidecarAgent
from inplace.agent.start.arguments import ArgumentsError, RunOptions, parse
from inplace.agent.start.config import AgentConfig, ConfigError
from inplace.agent.start.exit_code import ExitCode
from inplace.agent.start.sidecar import agent_of
from inplace.agent.supervisor import SupervisorAgent
from inplace.common.guard_command import AGENT_COMMAND, is_guarded
from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Transport
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.model_container import ModelContainer, ModelMachine, StayingContainer
from inplace.simulator.cluster.model_guarded import GuardedContainer
from inplace.simulator.cluster.model_link import ModelServer
from inplace.simulator.cluster.model_worker import SupervisedWorker, TimedRun
from inplace.simulator.cluster.pod_spec import Probe, Role
from inplace.simulator.cluster.runtime import ContainerRun, RunningContainer, Sandbox
from inplace.simulator.cluster.timings import Timings


class ModelBarrier:
    """The agent's barrier without a socket."""

    def __init__(self) -> None:
        self.lifted = False

    async def start(self) -> None:
        """Do nothing: there is no port to open."""

    def lift(self, epoch: int | None) -> None:  # noqa: ARG002
        """Answer the probe with success from now on."""
        self.lifted = True

    def close(self) -> None:
        """Answer the probe with failure again."""
        self.lifted = False

    def report(self, report: BarrierState) -> None:
        """Do nothing: there is no page that shows it."""

    async def stop(self) -> None:
        """Do nothing."""


class QuietLog:
    """Drops every line: 5,000 agents would write a hundred thousand."""

    def debug(self, event: str, **fields: Any) -> None:
        """Drop it."""

    info = warning = error = debug


class ModelAgent(StayingContainer):
    """The real agent's coroutine in the place of its process; a supervisor ends after its worker.

    Args:
        on_end: called when the process is gone, however it ended.
    """

    def __init__(
        self,
        machine: ModelMachine,
        run: ContainerRun,
        agent: Agent,
        barrier: ModelBarrier,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(machine, run)
        self.agent = agent
        self.barrier = barrier
        self._on_end = on_end
        self._running: asyncio.Future[int] | None = None

    async def wait(self) -> int:
        """Run the agent until it ends or is killed."""
        await self._machine.clock.sleep(self._machine.timings.agent_start.draw(self._machine.rng))
        running = self._running = asyncio.ensure_future(self.agent.run())
        running.add_done_callback(self._take_end)
        try:
            return await self._ended
        finally:
            self._on_end()
            running.cancel()
            await asyncio.wait([running])

    async def stop(self, grace_s: float) -> None:
        """End, at once or AFTER the worker whose end is the agent's affair."""
        stays = self._running is not None and not isinstance(self.agent, SidecarAgent)
        await (StayingContainer if stays else ModelContainer).stop(self, grace_s)

    def terminate(self) -> None:
        """Hand SIGTERM to the agent."""
        self.agent.terminate(signal.SIGTERM)

    async def probe(self, probe: Probe) -> bool:
        """Return whether the barrier is lifted."""
        await super().probe(probe)
        return self.barrier.lifted

    def _take_end(self, running: asyncio.Future[int]) -> None:
        if running.cancelled() or self._ended.done():
            return
        if (error := running.exception()) is not None:
            self._ended.set_exception(error)  # an agent's bug must stop the simulation, not restart a container
        else:
            self.end(running.result())


class ModelSupervisor(ModelAgent):
    """A supervisor, and the worker below it."""

    def __init__(
        self,
        machine: ModelMachine,
        run: ContainerRun,
        agent: SupervisorAgent,
        barrier: ModelBarrier,
        worker: SupervisedWorker,
    ) -> None:
        super().__init__(machine, run, agent, barrier, worker.kill)
        self._worker = worker

    def signal_child(self, number: int) -> None:
        """Send the worker a signal; a model ends at once at any."""
        self._worker.strike(number)


class ModelRefusal(ModelContainer):
    """An agent that leaves at once: its settings are wrong."""

    async def wait(self) -> int:
        """Return the exit code."""
        self.end(ExitCode.CONFIG)
        return await self._ended

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Refuse."""
        return False


class ModelWorker(ModelContainer):
    """A model of a worker: it only sleeps."""

    def __init__(
        self, machine: ModelMachine, run: ContainerRun, on_first_step: Callable[[], None], life_s: float | None
    ) -> None:
        super().__init__(machine, run)
        self._on_first_step = on_first_step
        self._life_s = life_s

    async def wait(self) -> int:
        """Take the first step, then run until `end` or the last step."""
        code = await self._end_within(self._machine.timings.worker_first_step.draw(self._machine.rng))
        if code is not None:
            return code
        self._on_first_step()
        code = await self._end_within(self._life_s)
        return 0 if code is None else code

    async def _end_within(self, delay_s: float | None) -> int | None:
        """Return the exit code, or None when the model still runs after `seconds`."""
        try:
            async with self._machine.clock.timeout(delay_s):
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
        self._machine = ModelMachine(clock=clock, rng=rng, timings=timings)
        self._transport_for = transport_for
        self._tell = tell
        self._pods_made = 0

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        high, low = divmod(self._pods_made, 250)
        return Sandbox(pod["metadata"]["uid"], f"10.{64 + high // 250}.{high % 250}.{low + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forget its folder; an instance ends with the kubelet's task that waits for it."""
        self._machine.links.pop(sandbox.uid, None)

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        steps, step_s = int(run.env.get("STEPS") or 0), float(run.env.get("STEP_S") or 0)
        life_s = 0.0 if run.spec.role is Role.INIT else steps * step_s if steps else None
        on_first_step = self._teller(run, Kind.FIRST_STEP, "model")
        on_start = self._teller(run, Kind.WORKER_STARTED)

        def make_run(_epoch: int | None, _leaves: bool = True) -> TimedRun:
            on_start()
            return TimedRun(self._machine, on_first_step, life_s)

        if run.spec.role is not Role.INIT and _is_agent(run.command):
            try:
                options = _options(run)
                config = AgentConfig.from_env({**run.env, **dict(options.variables if options is not None else ())})
            except (ConfigError, ArgumentsError):
                return ModelRefusal(self._machine, run)
            if options is None:
                return self._sidecar(run, config)
            barrier, worker = ModelBarrier(), SupervisedWorker(make_run)
            agent = SupervisorAgent(config, self._deps(run, barrier), worker=worker, options=options)
            return ModelSupervisor(self._machine, run, agent, barrier, worker)
        if is_guarded(run.command):
            return GuardedContainer(self._machine, run, make_run)
        return ModelWorker(self._machine, run, on_first_step, life_s)

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

    def _sidecar(self, run: ContainerRun, config: AgentConfig) -> ModelAgent:
        """Return the agent of a Pod's depth."""
        barrier, server = ModelBarrier(), ModelServer(self._machine.link(run.sandbox.uid), config.restart_depth)
        agent = agent_of(config, self._deps(run, barrier), server)
        return ModelAgent(self._machine, run, agent, barrier, server.leave)

    def _deps(self, run: ContainerRun, barrier: ModelBarrier) -> AgentDeps:
        return AgentDeps(
            transport=self._transport_for(run.pod),
            clock=self._machine.clock,
            rng=self._machine.rng,
            barrier=barrier,
            log=QuietLog(),
        )

    def _teller(self, run: ContainerRun, kind: Kind, *more: str) -> Callable[[], None]:
        """Return what tells of a moment in a worker's life."""
        meta = run.pod["metadata"]
        who = meta["namespace"], meta["name"], meta["uid"], run.spec.name

        def tell() -> None:
            if run.spec.role is Role.REGULAR:
                self._tell(ClusterEvent(self._machine.clock.monotonic_s(), kind, *who, *more))

        return tell


def _is_agent(command: tuple[str, ...]) -> bool:
    """Return whether a command is the agent itself; behind `guard` it is a worker, whose model waits."""
    is_ours = bool(command) and PurePosixPath(command[0]).name.startswith(AGENT_COMMAND)
    return is_ours and command[1:2] != ("guard",)


def _options(run: ContainerRun) -> RunOptions | None:
    """Return a supervisor's options; None for a sidecar.

    Raises:
        ArgumentsError: its command line cannot be used.
    """
    is_sidecar = not run.command[1:] and not run.env.get("WORKER_COMMAND")
    options = None if is_sidecar else parse(run.command[1:], run.env)
    return options if isinstance(options, RunOptions) else None
