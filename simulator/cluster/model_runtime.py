"""
Run containers as timed models, so that thousands of Pods fit in one process under virtual time.

An agent (a command that starts with `inplace-agent`) is the real one, `agent.agent`, as a coroutine with an in-memory
transport, barrier and link. An init container exits 0 after a while. Any other container is a worker: it takes its
first step after a while, which is a line in its log, and runs until it is stopped. With STEPS and STEP_S in its
environment it exits 0 after STEPS steps of STEP_S seconds. Below a guard or a supervisor it does so from the lift on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from inplace.agent.deps import AgentDeps
from inplace.agent.start.arguments import ArgumentsError
from inplace.agent.start.config import AgentConfig, ConfigError
from inplace.agent.start.exit_code import ExitCode
from inplace.agent.worker.host import STARTING
from inplace.common.agent_command import agent_arguments, is_guarded, is_spare
from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Transport
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.model_agent import ModelAgent, ModelBarrier, QuietLog, options_of
from inplace.simulator.cluster.model_container import ModelContainer, ModelMachine
from inplace.simulator.cluster.model_guarded import GuardedContainer
from inplace.simulator.cluster.model_logs import FIRST_STEP, ModelLog, ModelLogReader, ModelLogs
from inplace.simulator.cluster.model_worker import TimedRun
from inplace.simulator.cluster.pod_spec import Probe, Role
from inplace.simulator.cluster.runtime import ContainerRun, RunningContainer, Sandbox
from inplace.simulator.cluster.timings import Timings


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
        self._logs = ModelLogs(clock.wall_s)

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        high, low = divmod(self._pods_made, 250)
        return Sandbox(pod["metadata"]["uid"], f"10.{64 + high // 250}.{high % 250}.{low + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forget its folder; an instance ends with the kubelet's task that waits for it."""
        self._machine.links.pop(sandbox.uid, None)
        self._logs.forget(sandbox.uid)

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        log = self._logs.begin(run.sandbox.uid, run.spec.name)
        started = self._start(run, log)
        started.when_ended(log.end)
        return started

    def _start(self, run: ContainerRun, log: ModelLog) -> GuardedContainer | ModelAgent | ModelRefusal | ModelWorker:
        steps, step_s = int(run.env.get("STEPS") or 0), float(run.env.get("STEP_S") or 0)
        life_s = 0.0 if run.spec.role is Role.INIT else steps * step_s if steps else None
        tell_step, on_start = self._teller(run, Kind.FIRST_STEP, "model"), self._teller(run, Kind.WORKER_STARTED)

        def on_first_step() -> None:
            log.write(FIRST_STEP)
            tell_step()

        def make_run(epoch: int | None, _leaves: bool = True) -> TimedRun:
            log.event(STARTING, epoch=epoch)
            on_start()
            made = TimedRun(self._machine, on_first_step, life_s, log.stacks)
            made.ended.add_done_callback(lambda ended: log.worker_exited(epoch, ended))
            return made

        if is_spare(run.command):
            return ModelWorker(self._machine, run, lambda: None, None)
        if is_guarded(run.command):
            return GuardedContainer(self._machine, run, make_run)
        if run.spec.role is not Role.INIT and agent_arguments(run.command) is not None:
            try:
                options = options_of(run)
                config = AgentConfig.from_env(run.env)
            except (ConfigError, ArgumentsError):
                return ModelRefusal(self._machine, run)
            barrier = ModelBarrier()
            deps = self._deps(run, barrier)
            return ModelAgent(self._machine, run, config, deps, barrier=barrier, options=options, make_run=make_run)
        return ModelWorker(self._machine, run, on_first_step, life_s)

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> ModelLogReader | None:
        """Open a container's log."""
        return self._logs.open(uid, container, previous=previous)

    async def close(self) -> None:
        """Do nothing."""

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
