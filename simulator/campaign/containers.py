"""
Containers of the campaign: real agents and supervisors as processes that can die anywhere, and workers that only run.

Which container is what follows from its command, as in the manifests: `inplace-agent` is a sidecar, `inplace-agent run
-- ...` a supervisor with its worker, `inplace-agent wait -- ...` a worker that asks the agent itself before it starts,
anything else a worker.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from agent.arguments import RunOptions, parse
from agent.config import AgentConfig
from agent.runtime import Agent
from agent.supervisor import Supervisor
from agent.wait import POLL_S
from agent.worker import EPOCH
from common.kube.client import KubeObject
from common.kube.clock import Clock
from common.kube.http import Transport
from common.record import replace
from simulator.campaign.process import Process
from simulator.cluster.model_runtime import ModelBarrier, QuietLog
from simulator.cluster.pod_spec import Probe
from simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun, RunningContainer, Sandbox
from simulator.cluster.timings import Timings

AGENT = "inplace-agent"
QUIET = QuietLog()


class WorkerWatcher:
    """Told of every worker's start and end; the judge is one."""

    def worker_started(self, pod: KubeObject, epoch: int | None) -> None:
        """Take note: a worker runs; `epoch` is what it was told, None when it was told nothing."""

    def worker_stopped(self, pod: KubeObject) -> None:
        """Take note: no process of it is left."""


@dataclass
class Disk:
    """A Pod's emptyDir: it outlives its containers."""

    epoch: int | None = None
    ran: int = 0
    full: bool = False

    def remember(self, epoch: int) -> str | None:
        """Keep an epoch, or say why not."""
        if self.full:
            return "no space left on device"
        self.epoch = epoch
        return None

    def remember_run(self, epoch: int) -> str | None:
        """Keep the epoch in which the worker runs, or say why not."""
        if self.full:
            return "no space left on device"
        self.ran = epoch
        return None


@dataclass
class Machine:
    """What all containers of a run share, and the switches that faults turn.

    Args:
        transport_for: the connection of one Pod's agent, by client name.
        deaf: Pods (by uid) whose containers ignore SIGTERM.
        lying: Pods whose startup probe succeeds once although nobody lifted the barrier.
        crash_at: client name -> the await at which its next agent dies.
        completes: workers end with 0 as soon as they run.
    """

    clock: Clock
    rng: Random
    timings: Timings
    watcher: WorkerWatcher
    transport_for: Callable[[str, KubeObject], Transport]
    died: Callable[[str], None]
    disks: dict[str, Disk] = field(default_factory=dict)
    agents: dict[str, AgentContainer] = field(default_factory=dict)  # by Pod's uid
    workers: dict[str, Training] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    lying: dict[str, Callable[[], None]] = field(default_factory=dict)
    crash_at: dict[str, int] = field(default_factory=dict)
    full_disks: bool = False
    completes: bool = False
    agents_made: int = 0

    def disk(self, uid: str) -> Disk:
        """Return a Pod's volume."""
        return self.disks.setdefault(uid, Disk())


class Training:
    """A worker while it runs: it waits for its end, and tells the watcher of both.

    Args:
        leaves: processes of it run on after its end, until `clear`; a container's end leaves none.
    """

    def __init__(self, machine: Machine, pod: KubeObject, epoch: int | None, *, leaves: bool = False) -> None:
        self._machine = machine
        self._leaves = leaves
        self.pod = pod
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        machine.workers[pod["metadata"]["uid"]] = self
        machine.watcher.worker_started(pod, epoch)
        if machine.completes:
            self.end(0)

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self.ended.done():
            self.ended.set_result(code)
            del self._machine.workers[self.pod["metadata"]["uid"]]
            if not self._leaves:
                self._machine.watcher.worker_stopped(self.pod)

    def clear(self) -> None:
        """End what is left of it."""
        if self._leaves:
            self._leaves = False
            self._machine.watcher.worker_stopped(self.pod)


class _Container:
    """What all containers share: an exit code that is decided once."""

    def __init__(self, machine: Machine, run: ContainerRun) -> None:
        self._machine = machine
        self.pod = run.pod
        self.uid: str = run.pod["metadata"]["uid"]
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(code)

    async def stop(self, grace_s: float) -> None:
        """Take SIGTERM, and SIGKILL after the grace."""
        exit_s = self._machine.timings.process_exit.draw(self._machine.rng)
        if self.uid in self._machine.deaf:
            exit_s = grace_s + 1.0
        await self._machine.clock.sleep(min(exit_s, grace_s))
        if exit_s <= grace_s:
            self.terminate()
        else:
            self.end(SIGKILL_EXIT)

    def terminate(self) -> None:
        """Obey SIGTERM."""
        self.end(128 + signal.SIGTERM)

    def signal(self, number: int) -> None:
        """End by a signal from outside."""
        self.end(128 + number)

    def signal_child(self, number: int) -> None:
        """Send a signal to a supervised worker."""
        training = self._machine.workers.get(self.uid)
        if training is None:
            raise LookupError("expected a worker that runs, saw none")
        training.end(128 + number)

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Be healthy."""
        await self._machine.clock.sleep(self._machine.timings.barrier_answer.draw(self._machine.rng))
        return True


class WorkerContainer(_Container):
    """A worker in a container of its own; one that waits asks the agent until the barrier is lifted."""

    def __init__(self, machine: Machine, run: ContainerRun, *, waits: bool) -> None:
        super().__init__(machine, run)
        self._waits = waits

    async def wait(self) -> int:
        """Train until told to end."""
        if self._waits:
            while not self._is_lifted() and not self._ended.done():
                await self._machine.clock.sleep(POLL_S)
        if self._ended.done():
            return self._ended.result()
        training = Training(self._machine, self.pod, None)
        self._ended.add_done_callback(lambda ended: training.end(ended.result()) if not ended.cancelled() else None)
        try:
            return await asyncio.shield(training.ended)
        finally:
            training.end(SIGKILL_EXIT)

    def _is_lifted(self) -> bool:
        agent = self._machine.agents.get(self.uid)
        return agent is not None and agent.barrier.lifted


class AgentContainer(_Container):
    """A sidecar: the real agent, in the place of its process."""

    def __init__(self, machine: Machine, run: ContainerRun) -> None:
        super().__init__(machine, run)
        meta = run.pod["metadata"]
        self.client = f"agent/{meta['name']}"
        machine.agents_made += 1
        self.process = Process(
            f"{self.client}#{machine.agents_made}", crash_at=machine.crash_at.pop(self.client, None), on_exit=self._died
        )
        self.barrier = ModelBarrier()
        self.agent = self._make(self._config(run), run)
        machine.agents[self.uid] = self

    async def wait(self) -> int:
        """Run the agent until it ends or is killed."""
        machine = self._machine
        try:
            await machine.clock.sleep(machine.timings.agent_start.draw(machine.rng))
            running = self.process.start(self.agent.run())
            running.add_done_callback(self._take_end)
            return await asyncio.shield(self._ended)
        finally:
            self.end(SIGKILL_EXIT)
            self.process.kill()
            if machine.agents.get(self.uid) is self:
                del machine.agents[self.uid]
            self._clean_up()

    async def probe(self, probe: Probe) -> bool:
        """Answer for the barrier, or lie."""
        await super().probe(probe)
        lie = None if self.barrier.lifted else self._machine.lying.pop(self.uid, None)
        if lie is not None:
            lie()
        return self.barrier.lifted or lie is not None

    def _make(self, config: AgentConfig, run: ContainerRun) -> Agent:  # noqa: ARG002
        return Agent(config, barrier=self.barrier, **self._parts())

    def _parts(self) -> dict[str, Any]:
        machine = self._machine
        return {
            "transport": machine.transport_for(self.client, self.pod),
            "clock": machine.clock,
            "rng": Random(machine.rng.random()),
            "log": QUIET,
            "memory": machine.disk(self.uid),
        }

    def _config(self, run: ContainerRun) -> AgentConfig:
        """Read the environment; what is kept on the disk corrects an older PREVIOUS_EPOCH, as in the program."""
        config = AgentConfig.from_env(run.env)
        disk = self._machine.disk(self.uid)
        known = [epoch for epoch in (config.previous_epoch, disk.epoch) if epoch is not None]
        return replace(
            config, previous_epoch=max(known, default=None), reached_epoch=max(disk.ran, (disk.epoch or 1) - 1)
        )

    def _take_end(self, running: asyncio.Task[int]) -> None:
        if running.cancelled():
            self.end(SIGKILL_EXIT)
        elif (error := running.exception()) is None:
            self.end(running.result())
        elif not self._ended.done():
            self._ended.set_exception(error)  # a bug of ours must end the run, not restart a container

    def _died(self) -> None:
        if not self._ended.done():
            self._machine.died(self.process.name)
            self.end(SIGKILL_EXIT)

    def _clean_up(self) -> None:
        """Take the end of the container's other processes."""


class SupervisedWorker:
    """The worker below a supervisor; implements `agent.worker.Worker`."""

    def __init__(self, machine: Machine, pod: KubeObject) -> None:
        self._machine = machine
        self._pod = pod
        self._training: Training | None = None

    def prepare(self) -> None:
        """Do nothing: there are no signals to be seen."""

    def stage(self) -> None:
        """Do nothing: a process that is held has no effect."""

    def start(self, env: Mapping[str, str]) -> None:
        """Start a run."""
        assert self._training is None or self._training.ended.done(), "expected no worker, saw one"
        epoch = int(env[EPOCH]) if env[EPOCH] else None
        self._training = Training(self._machine, self._pod, epoch, leaves=True)

    async def exited(self) -> int:
        """Return the exit code."""
        assert self._training is not None
        return await asyncio.shield(self._training.ended)

    async def gone(self) -> None:
        """Return when nothing of the run is left."""
        await self._machine.clock.sleep(self._machine.timings.supervised_left.draw(self._machine.rng))
        assert self._training is not None
        self._training.clear()

    def signal(self, number: int) -> None:
        """Send a signal; SIGTERM is obeyed after a while, unless the Pod's containers are deaf to it."""
        training = self._training
        if training is None or training.ended.done():
            return
        if number == signal.SIGKILL:
            training.end(SIGKILL_EXIT)
        elif self._pod["metadata"]["uid"] not in self._machine.deaf:
            exit_s = self._machine.timings.supervised_exit.draw(self._machine.rng)
            asyncio.get_running_loop().call_later(exit_s, training.end, 128 + number)

    def kill(self) -> None:
        """Kill all there is."""
        if self._training is not None:
            self._training.end(SIGKILL_EXIT)
            self._training.clear()


class SupervisorContainer(AgentContainer):
    """A supervisor and its worker: one container, so the end of the first is the end of both."""

    _worker: SupervisedWorker
    agent: Supervisor

    def terminate(self) -> None:
        """Hand SIGTERM to the supervisor, which ends its worker first; until it runs it has no handler."""
        if self.process.awaits == 0:
            self.end(128 + signal.SIGTERM)
        elif not self._ended.done():
            self.process.call(self.agent.terminate, signal.SIGTERM)

    async def stop(self, grace_s: float) -> None:
        """Take SIGTERM, and SIGKILL after the grace."""
        if self.uid not in self._machine.deaf:
            self.terminate()
        await asyncio.wait([self._ended], timeout=grace_s)
        self.end(SIGKILL_EXIT)

    async def probe(self, probe: Probe) -> bool:
        """Answer as the barrier does."""
        await _Container.probe(self, probe)
        return self.barrier.lifted

    def _make(self, config: AgentConfig, run: ContainerRun) -> Agent:
        options = parse(run.command[1:], run.env)
        assert isinstance(options, RunOptions), f"expected a supervisor's command line, saw {run.command}"
        self._worker = SupervisedWorker(self._machine, run.pod)
        return Supervisor(config, worker=self._worker, options=options, barrier=self.barrier, **self._parts())

    def _clean_up(self) -> None:
        self._worker.kill()


class CampaignRuntime:
    """The runtime of every node."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pods_made = 0

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Give the Pod an address."""
        self._pods_made += 1
        return Sandbox(pod["metadata"]["uid"], f"10.64.{self._pods_made // 250}.{self._pods_made % 250 + 1}", {})

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Take its disk back."""
        self._machine.disks.pop(sandbox.uid, None)

    async def start(self, run: ContainerRun) -> RunningContainer:
        """Start an instance."""
        program, verb = run.command[0], run.command[1] if len(run.command) > 1 else ""
        if program != AGENT:
            return WorkerContainer(self._machine, run, waits=False)
        if verb == "wait":
            return WorkerContainer(self._machine, run, waits=True)
        if self._machine.full_disks:
            self._machine.disk(run.pod["metadata"]["uid"]).full = True
        return SupervisorContainer(self._machine, run) if verb == "run" else AgentContainer(self._machine, run)

    def read_log(
        self,
        uid: str,
        container: str,
        *,
        previous: bool,
        follow: bool,
    ) -> AsyncIterator[bytes]:
        """Refuse: these containers write no log."""
        raise NotImplementedError(f"{container} of {uid} writes no log (previous: {previous}, follow: {follow})")

    async def close(self) -> None:
        """Do nothing: containers end with the kubelets' tasks."""
