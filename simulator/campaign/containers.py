"""Containers of the campaign: real agents as processes that can die anywhere, and workers that only run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any

from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.worker.save_requests import SaveRequests
from inplace.common.bare.record import replace
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import Lifted
from inplace.simulator.campaign.judge import Judge
from inplace.simulator.campaign.lockstep import Lockstep
from inplace.simulator.campaign.process import Process, outside
from inplace.simulator.campaign.ranks import WatchedPods
from inplace.simulator.campaign.steps import StepStore
from inplace.simulator.cluster.model_agent import ModelAgent, QuietLog
from inplace.simulator.cluster.model_container import WorkerRun
from inplace.simulator.cluster.model_runtime import ModelRuntime
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun, Sandbox

QUIET = QuietLog()


class Disk(EpochFile):
    """A Pod's emptyDir with the agent's files, by the ends of their names: it outlives its containers."""

    def __init__(self) -> None:
        super().__init__("/run/inplace/epoch")
        self.full = False
        self._texts: dict[str, str] = {}

    def _keep(self, suffix: str, text: str) -> str | None:
        if self.full:
            return "no space left on device"
        self._texts[suffix] = text
        return None

    def _text(self, suffix: str) -> tuple[str | None, str | None]:
        return self._texts.get(suffix), None


@dataclass(kw_only=True)
class Machine(ModelRuntime):
    """The runtime of every node, with the state that all containers of a run share, and the switches that faults set.

    Args:
        died: told of each agent that is killed.
        deaf: Pods (by uid) whose containers ignore SIGTERM.
        crash_at: client name -> the await at which its next agent dies.
        completes: workers end with 0 as soon as they run.
        watched: the workers' ranks, where the agents watch them.
        lockstep: the workers' training, where they save before a planned stop.
        steps: that the workers save, where they do.
    """

    judge: Judge
    died: Callable[[str, KubeObject], None]
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
    steps: StepStore | None = None

    def disk(self, uid: str) -> Disk:
        """Return a Pod's volume."""
        return self.disks.setdefault(uid, Disk())

    def is_deaf(self, uid: str) -> bool:
        """Say whether a Pod's containers ignore SIGTERM."""
        return uid in self.deaf

    def worker_dying(self, pod: KubeObject) -> None:
        """Tell the judge."""
        self.judge.worker_dying(pod)

    def outside(self) -> Context:
        """Return a context that belongs to no process."""
        return outside()

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Take its disk back, too."""
        self.disks.pop(sandbox.uid, None)
        if self.steps is not None:
            self.steps.lose(sandbox.uid)
        await super().remove_sandbox(sandbox)

    def saves(self, run: ContainerRun) -> SaveRequests | None:
        """Return what asks a Pod's worker to save."""
        within_s = float(run.env.get("SAVE_WITHIN_S") or 0)
        if self.lockstep is None or within_s <= 0:
            return None
        return self.lockstep.requests(run.pod["metadata"]["uid"], within_s, QUIET)

    def make_worker(self, run: ContainerRun) -> Training:
        """Start a worker that has its container for itself."""
        return Training(self, run.pod, None, Lifted(0))

    def make_child(self, run: ContainerRun, epoch: int | None, lifted: Lifted, *, leaves: bool) -> Training:
        """Start a worker below a guard."""
        return Training(self, run.pod, epoch, lifted, leaves=leaves)

    def make_agent(self, run: ContainerRun) -> AgentContainer:
        """Start an agent; its settings are right."""
        if self.full_disks:
            self.disk(run.pod["metadata"]["uid"]).full = True
        return AgentContainer(self, run)


class Training(WorkerRun):
    """A worker's run; the judge is called at its start and at its end.

    Args:
        lifted: what it is told: its rank in a group with spares, and from which step it goes on.
        leaves: its leftovers run on after its end, until `clear`; the end of a container leaves none.
    """

    _machine: Machine

    def __init__(
        self, machine: Machine, pod: KubeObject, epoch: int | None, lifted: Lifted, *, leaves: bool = False
    ) -> None:
        super().__init__(machine)
        self._leaves = leaves
        self.pod = pod
        machine.workers[pod["metadata"]["uid"]] = self
        machine.judge.worker_started(pod, epoch, lifted.played)
        self.ranks = machine.watched.start(pod["metadata"]["uid"], epoch) if machine.watched is not None else None
        self.steps = None
        if machine.completes:
            self.end(0)
        elif machine.steps is not None and epoch is not None:
            self.steps = machine.judge.resume.start(machine.steps, pod, epoch, lifted)
        elif machine.lockstep is not None and epoch is not None:
            machine.lockstep.joined(pod["metadata"]["uid"], self, epoch)

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self.ended.done():
            self.ended.set_result(code)
            del self._machine.workers[self.pod["metadata"]["uid"]]
            if self.ranks is not None:
                self.ranks.end()
            if self.steps is not None:
                self.steps.end()
            if not self._leaves:
                self._machine.judge.worker_stopped(self.pod)

    @property
    def is_hung(self) -> bool:
        """Say whether it makes no step any more."""
        return self.ranks is not None and self.ranks.is_hung

    def hang(self) -> None:
        """Make no step any more; signals end it as before."""
        assert self.ranks is not None, "expected a worker with ranks"
        if not self.ranks.is_hung:
            self._machine.judge.worker_hung(self.pod)
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
        await super().clear()
        self._leave_nothing()

    def kill(self) -> None:
        """End it and its leftovers."""
        super().kill()
        self._leave_nothing()

    def _leave_nothing(self) -> None:
        if self._leaves:
            self._leaves = False
            self._machine.judge.worker_stopped(self.pod)


class AgentContainer(ModelAgent):
    """An agent in a process that faults pause, crash and kill."""

    _machine: Machine

    def __init__(self, machine: Machine, run: ContainerRun) -> None:
        uid, watched = run.pod["metadata"]["uid"], machine.watched
        self.client = agent_client(run.pod)
        machine.agents_made += 1
        self.process = Process(
            f"{self.client}#{machine.agents_made}", crash_at=machine.crash_at.pop(self.client, None), on_exit=self._died
        )
        config = _config(machine, run)
        super().__init__(
            machine,
            run,
            config,
            rng=Random(machine.rng.random()),
            stalls=watched.stalls(config, machine.clock, QUIET) if watched is not None else None,
            saves=machine.saves(run),
            memory=machine.disk(uid),
        )
        machine.agents[self.uid] = self

    def _start(self, program: Coroutine[Any, Any, int]) -> asyncio.Future[int]:
        return self.process.start(program)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        self.process.call(function, *arguments)

    def _kill(self) -> None:
        self.process.kill()
        if self._machine.agents.get(self.uid) is self:
            del self._machine.agents[self.uid]

    def _died(self) -> None:
        if not self._ended.done():
            self._machine.died(self.process.name, self.run.pod)
            self.end(SIGKILL_EXIT)


def agent_client(pod: KubeObject) -> str:
    """Return the name of a Pod's agent on the network."""
    return f"agent/{pod['metadata']['name']}"


def _config(machine: Machine, run: ContainerRun) -> AgentConfig:
    """Read the environment; a newer epoch on the disk replaces PREVIOUS_EPOCH, as in the program."""
    config, uid = AgentConfig.from_env(run.env), run.pod["metadata"]["uid"]
    disk, files = machine.disk(uid), machine.watched or machine.steps
    (announced, _), (ran, _) = disk.recall(), disk.recall_run()
    known = [epoch for epoch in (config.previous_epoch, announced) if epoch is not None]
    return replace(
        config,
        previous_epoch=max(known, default=None),
        reached_epoch=max(ran or 0, (announced or 1) - 1),
        ran_epoch=ran or 0,
        progress_dir=str(files.folder(uid)) if files is not None else "",
    )
