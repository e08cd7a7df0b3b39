"""Containers of the campaign: real agents as processes that can die anywhere, and workers that only run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.start.config import AgentConfig
from inplace.agent.start.epoch_file import Failures
from inplace.agent.start.sidecar import agent_of
from inplace.common.bare.record import replace
from inplace.common.kube.http.request import Transport
from inplace.common.kube.resources import KubeObject
from inplace.simulator.campaign.lockstep import Lockstep
from inplace.simulator.campaign.process import Process, outside
from inplace.simulator.campaign.ranks import WatchedPods
from inplace.simulator.cluster.model_container import ModelContainer, ModelMachine
from inplace.simulator.cluster.model_link import ModelServer
from inplace.simulator.cluster.model_runtime import ModelBarrier, QuietLog
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun

QUIET = QuietLog()


class WorkerWatcher:
    """An observer of every worker's start and end; the judge is one."""

    def worker_started(self, pod: KubeObject, epoch: int | None) -> None:
        """Note that a worker runs; `epoch` comes from its environment, None when that names none."""

    def worker_dying(self, pod: KubeObject) -> None:
        """Note that a worker ended, and that its guard will tell its agent when the leftovers have ended."""

    def worker_stopped(self, pod: KubeObject) -> None:
        """Note that no process of a worker is left."""

    def worker_hung(self, pod: KubeObject) -> None:
        """Note that a worker makes no step any more."""


@dataclass
class Disk:
    """A Pod's emptyDir: it outlives its containers."""

    epoch: int | None = None
    ran: int = 0
    failures: Failures = field(default_factory=Failures)
    full: bool = False

    def remember(self, epoch: int) -> str | None:
        """Store the announced epoch; return the error text when that fails."""
        if self.full:
            return "no space left on device"
        self.epoch = epoch
        return None

    def remember_run(self, epoch: int) -> str | None:
        """Store the epoch in which the worker runs; return the error text when that fails."""
        if self.full:
            return "no space left on device"
        self.ran = epoch
        return None

    def remember_failures(self, failures: Failures) -> str | None:
        """Store how the worker failed; return the error text when that fails."""
        if self.full:
            return "no space left on device"
        self.failures = failures
        return None

    def recall_failures(self) -> tuple[Failures, str | None]:
        """Return how the worker failed."""
        return self.failures, None


@dataclass(kw_only=True)
class Machine(ModelMachine):
    """The state that all containers of a run share, and the switches that faults set.

    Args:
        transport_for: the connection of one Pod's agent, by client name.
        deaf: Pods (by uid) whose containers ignore SIGTERM.
        crash_at: client name -> the await at which its next agent dies.
        completes: workers end with 0 as soon as they run.
        watched: the workers' ranks, where the agents watch them.
        lockstep: the workers' training, where they save before a planned stop.
    """

    watcher: WorkerWatcher
    transport_for: Callable[[str, KubeObject], Transport]
    died: Callable[[str], None]
    disks: dict[str, Disk] = field(default_factory=dict)
    agents: dict[str, AgentContainer] = field(default_factory=dict)  # by Pod's uid
    workers: dict[str, Training] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    crash_at: dict[str, int] = field(default_factory=dict)
    full_disks: bool = False
    completes: bool = False
    agents_made: int = 0
    watched: WatchedPods | None = None
    lockstep: Lockstep | None = None

    def disk(self, uid: str) -> Disk:
        """Return a Pod's volume."""
        return self.disks.setdefault(uid, Disk())

    def is_deaf(self, uid: str) -> bool:
        """Say whether a Pod's containers ignore SIGTERM."""
        return uid in self.deaf

    def worker_dying(self, pod: KubeObject) -> None:
        """Tell the watcher."""
        self.watcher.worker_dying(pod)

    def outside(self) -> Context:
        """Return a context that belongs to no process."""
        return outside()


class Training:
    """A worker's run; the watcher is called at its start and at its end. It implements `model_worker.WorkerRun`.

    Args:
        leaves: its leftovers run on after its end, until `clear`; the end of a container leaves none.
    """

    def __init__(self, machine: Machine, pod: KubeObject, epoch: int | None, *, leaves: bool = False) -> None:
        self._machine = machine
        self._leaves = leaves
        self.pod = pod
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        machine.workers[pod["metadata"]["uid"]] = self
        machine.watcher.worker_started(pod, epoch)
        self.ranks = machine.watched.start(pod["metadata"]["uid"], epoch) if machine.watched is not None else None
        if machine.completes:
            self.end(0)
        elif machine.lockstep is not None and epoch is not None:
            machine.lockstep.joined(self, epoch)

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self.ended.done():
            self.ended.set_result(code)
            del self._machine.workers[self.pod["metadata"]["uid"]]
            if self.ranks is not None:
                self.ranks.end()
            if not self._leaves:
                self._machine.watcher.worker_stopped(self.pod)

    @property
    def is_hung(self) -> bool:
        """Say whether it makes no step any more."""
        return self.ranks is not None and self.ranks.is_hung

    def hang(self) -> None:
        """Make no step any more; signals end it as before."""
        assert self.ranks is not None, "expected a worker with ranks"
        if not self.ranks.is_hung:
            self._machine.watcher.worker_hung(self.pod)
            self.ranks.hang()

    def signal(self, number: int) -> None:
        """Kill it; SIGTERM is obeyed after a while, unless the Pod's containers are deaf to it."""
        if number == signal.SIGKILL:
            self.end(SIGKILL_EXIT)
        elif not self.ended.done() and not self._machine.is_deaf(self.pod["metadata"]["uid"]):
            exit_s = self._machine.timings.supervised_exit.draw(self._machine.rng)
            asyncio.get_running_loop().call_later(exit_s, self.end, 128 + number)

    async def clear(self) -> None:
        """Return when the leftovers have ended."""
        await self._machine.clock.sleep(self._machine.timings.supervised_left.draw(self._machine.rng))
        self._leave_nothing()

    def kill(self) -> None:
        """End it and its leftovers, as the kernel does with a container's processes."""
        self.end(SIGKILL_EXIT)
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        if self._leaves:
            self._leaves = False
            self._machine.watcher.worker_stopped(self.pod)


class WorkerContainer(ModelContainer):
    """A worker in a container of its own."""

    _machine: Machine

    async def wait(self) -> int:
        """Run until `end`; return the exit code."""
        if self._ended.done():
            return self._ended.result()
        training = Training(self._machine, self.pod, None)
        self._ended.add_done_callback(lambda ended: training.end(ended.result()) if not ended.cancelled() else None)
        try:
            return await asyncio.shield(training.ended)
        finally:
            training.end(SIGKILL_EXIT)


class AgentContainer(ModelContainer):
    """A sidecar: the real agent as a coroutine, in the place of its process."""

    _machine: Machine

    def __init__(self, machine: Machine, run: ContainerRun) -> None:
        super().__init__(machine, run)
        meta = run.pod["metadata"]
        self.client = f"agent/{meta['name']}"
        machine.agents_made += 1
        self.process = Process(
            f"{self.client}#{machine.agents_made}", crash_at=machine.crash_at.pop(self.client, None), on_exit=self._died
        )
        self.barrier = ModelBarrier()
        config = self._config(run)
        self._server = ModelServer(machine.link(self.uid), config.restart_depth)
        self.agent = self._make(config, run)
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
            self._server.leave()
            self.process.kill()
            if machine.agents.get(self.uid) is self:
                del machine.agents[self.uid]
            self._clean_up()

    async def probe(self, probe: Probe) -> bool:
        """Answer whether the barrier is lifted."""
        await super().probe(probe)
        return self.barrier.lifted

    def _make(self, config: AgentConfig, run: ContainerRun) -> Agent:  # noqa: ARG002
        return agent_of(config, self._deps(config), self._server)

    def _deps(self, config: AgentConfig) -> AgentDeps:
        machine = self._machine
        watched, lockstep = machine.watched, machine.lockstep
        saves = lockstep.requests(self.uid, config, QUIET) if lockstep is not None else None
        return AgentDeps(
            transport=machine.transport_for(self.client, self.pod),
            clock=machine.clock,
            rng=Random(machine.rng.random()),
            barrier=self.barrier,
            stalls=watched.stalls(config, machine.clock, QUIET) if watched is not None else None,
            saves=saves if config.save_within_s > 0 else None,
            log=QUIET,
            memory=machine.disk(self.uid),
        )

    def _config(self, run: ContainerRun) -> AgentConfig:
        """Read the environment; a newer epoch on the disk replaces PREVIOUS_EPOCH, as in the program."""
        config = AgentConfig.from_env(run.env)
        disk = self._machine.disk(self.uid)
        known = [epoch for epoch in (config.previous_epoch, disk.epoch) if epoch is not None]
        watched = self._machine.watched
        return replace(
            config,
            previous_epoch=max(known, default=None),
            reached_epoch=max(disk.ran, (disk.epoch or 1) - 1),
            progress_dir=str(watched.folder(self.uid)) if watched is not None else "",
        )

    def _take_end(self, running: asyncio.Task[int]) -> None:
        if running.cancelled():
            self.end(SIGKILL_EXIT)
        elif (error := running.exception()) is None:
            self.end(running.result())
        elif not self._ended.done():
            self._ended.set_exception(error)  # an agent's bug must end the run, not restart a container

    def _died(self) -> None:
        if not self._ended.done():
            self._machine.died(self.process.name)
            self.end(SIGKILL_EXIT)

    def _clean_up(self) -> None:
        """End the container's other processes."""
