"""
An agent drives a protocol machine: events in, actions out.

One task group holds two tasks: the watch, whose views are events, and (until it is accepted) the announcement, whose
outcome is an event. The agent takes events one at a time on the loop's thread and performs the machine's actions in
order. It makes no decision of the protocol; the machines of `common.protocol` make them all.

`Agent` is what both modes share. `agent.sidecar_agent` and `agent.supervisor` each bring a machine, and perform the
actions that only this machine has. None of them owns a process: they read no environment and never exit, so that
thousands of agents can run in one loop under virtual time.
"""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from inplace.agent.announce.announcer import Announcer
from inplace.agent.announce.failure_reporter import FailureReporter
from inplace.agent.announce.jobset_watch import JobSetWatch
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.barrier.http import BarrierState
from inplace.agent.deps import AgentDeps
from inplace.agent.report.phases import RestartPhases
from inplace.agent.start.config import AgentConfig
from inplace.agent.start.exit_code import ExitCode
from inplace.common.bare.typed import Final
from inplace.common.protocol.agent import (
    AgentPhase,
    AgentState,
    Announce,
    GiveUp,
    Lease,
    StillWaiting,
    TakeConsistentView,
)
from inplace.common.protocol.failure_report import ScheduleReport, SendReport

if TYPE_CHECKING:
    from inplace.agent.announce.lease_keeper import LeaseKeeper
    from inplace.common.protocol.agent import View

REMINDER: Final = "reminder"  # its task's name
REMINDER_S: Final = (200.0, 300.0)
"""After so long at the barrier an agent announces again. 5,000 of them then send 20 requests a second, a twenty-fifth
of their kubelets' Lease renewals; what changes nothing is not stored, and no watch shows it. See docs/adr/0007."""


class Agent(ABC):
    """One Pod's agent, whatever its mode.

    Args:
        config: settings, already checked.
    """

    def __init__(self, config: AgentConfig, deps: AgentDeps) -> None:
        self._config = config
        self._clock = deps.clock
        self._rng = deps.rng
        self._barrier = deps.barrier
        self._log = deps.log
        self._metrics = deps.metrics
        self._memory = deps.memory
        self._stalls = deps.stalls
        self._saves = deps.saves
        self._on_end = deps.on_end
        self.phases = deps.phases or RestartPhases(
            deps.metrics,
            now_s=deps.clock.monotonic_s,
            wall_s=deps.clock.wall_s,
            annotate=config.phases_annotation,
        )
        self._problems: dict[str, str] = {}
        self._started_s = self._since_s = 0.0
        self._tasks: asyncio.TaskGroup  # both exist while `run` does
        self._exit: asyncio.Future[int]
        self._announcing: asyncio.Task[None] | None = None
        self._reminder: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None  # for a stall of the newest worker
        self.lease_keeper: LeaseKeeper | None = None  # where the worker has a lease
        budget = RetryBudget(deps.rng, config.spread_s)
        self._watch = JobSetWatch(
            config,
            transport=deps.transport,
            clock=deps.clock,
            rng=deps.rng,
            budget=budget,
            log=deps.log,
            metrics=deps.metrics,
            on_view=self.take,
            on_limits=deps.stalls.take_limits if deps.stalls is not None else lambda _: None,
            on_saving=self._ask_to_save,
            on_problem=lambda problem: self._note_problem("watch", problem),
            before_watch=self._until_announced,
        )
        self._announcer = Announcer(
            config,
            transport=deps.transport,
            clock=deps.clock,
            budget=budget,
            log=deps.log,
            metrics=deps.metrics,
            phases=self.phases,
            on_problem=lambda problem: self._note_problem("patch", problem),
        )
        self._reporter = FailureReporter(
            config, deps, take=self.take, start_task=self.start_task, hold_back=self._announcer.hold_back
        )

    @property
    @abstractmethod
    def state(self) -> AgentState:
        """Return where the agent's own machine stands."""

    @abstractmethod
    def step(self, event: Any) -> tuple[object, ...]:
        """Advance the machine by one of its events; return its actions in order."""

    @abstractmethod
    def perform(self, action: object) -> None:
        """Perform an action that only this mode has."""

    @abstractmethod
    async def before_announcement(self) -> None:
        """Wait until this agent may send, or end it."""

    @abstractmethod
    def terminate(self, number: signal.Signals) -> None:
        """End soon: this process got a signal."""

    @abstractmethod
    def runs(self) -> bool:
        """Say whether a worker of this Pod was started, and has not begun to end."""

    async def run(self) -> int:
        """Run until an action ends the agent; return the process's exit code.

        Raises:
            ExceptionGroup: a bug of ours (InvariantError inside); never caught here.
        """
        self.begin_run()
        self._since_s = self._started_s
        self._exit = asyncio.get_running_loop().create_future()
        await self._barrier.start()
        try:
            return await self._follow()
        finally:
            await self._barrier.stop()

    async def look(self, timeout_s: float) -> View:
        """Read the JobSet consistently, beside the watch.

        Raises:
            ApiError, TransportError, RemoteProtocolError: there is no such view.
        """
        return await self._watch.look(timeout_s)

    def begin_run(self) -> None:
        """Count the wait at the barrier from now: the last worker ended, or there was none."""
        self._started_s = self._clock.monotonic_s()

    def end(self, code: int) -> None:
        """End the agent with this exit code, unless it has an end. What still would be told, kubelet shows."""
        self._reporter.drop()
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
        if not self._exit.done():
            self._exit.set_result(code)
            self._on_end(code)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that the agent's end waits for."""
        return self._tasks.create_task(work)

    async def _follow(self) -> int:
        """Follow the JobSet until an action ends the process."""
        self._send_report()
        async with asyncio.TaskGroup() as self._tasks:
            watching = self._tasks.create_task(self._watch.run())
            keeping = (
                [self._tasks.create_task(work) for work in self.lease_keeper.work()]
                if self.lease_keeper is not None
                else []
            )
            code = await self._exit
            watching.cancel()
            for task in (self._announcing, self._reminder, *keeping):
                if task is not None:
                    task.cancel()
        return code

    def take(self, event: Any) -> None:
        """Advance the machine by one of its events and perform its actions in order."""
        if self._exit.done():
            return  # the same chunk of the watch held more lines; the machine has ended
        if self.lease_keeper is not None and not isinstance(event, Lease):
            self.lease_keeper.check()  # a process that was stopped may find a view and the end of its lease at once
        before = self.state
        actions = self.step(event)
        if self.state.phase is not before.phase:
            self._since_s = self._clock.monotonic_s()
            self._set_reminder()
        for action in actions:
            self._perform(action)
        self._send_report()

    def _perform(self, action: object) -> None:
        match action:
            case TakeConsistentView():
                self._log.info("consistent_view_wanted", previous=self.state.previous)
                self._watch.take_consistent_view()
            case Announce(epoch):
                self._remember(epoch)
                self._announcing = self._tasks.create_task(self._announce(epoch))
            case GiveUp(synced):
                self._log.error("epochs_exhausted", synced=synced, cure="recreate the JobSet")
                self.end(ExitCode.EPOCHS_EXHAUSTED)
            case ScheduleReport() | SendReport():
                self._reporter.perform(action)
            case _:
                self.perform(action)

    def _remember(self, epoch: int) -> None:
        """Keep the epoch BEFORE the server can know it. A full disk costs the second safety, not the start."""
        problem = self._memory.remember(epoch)
        if problem is not None:
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then="PREVIOUS_EPOCH is used instead")

    def remember_run(self, epoch: int | None) -> None:
        """Keep the epoch BEFORE its worker starts: should the status be lost, nothing else says that it ran."""
        problem = self._memory.remember_run(epoch) if epoch is not None else None
        if problem is not None:
            then = "a lost status could let the worker join this epoch again"
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then=then)

    async def _announce(self, epoch: int) -> None:
        """Make one attempt; its outcome is the machine's next event."""
        await self.before_announcement()
        if self._exit.done():
            return  # this Pod may not join
        self.take(await self._announcer.announce(epoch))

    def _set_reminder(self) -> None:
        """Remind the machine after a long wait at the barrier; any other event makes the reminder idle."""
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None
        if self.state.phase is AgentPhase.WAITING:
            self._reminder = self._tasks.create_task(self._remind(), name=REMINDER)

    async def _remind(self) -> None:
        await self._clock.sleep(self._rng.uniform(*REMINDER_S))
        epoch = self.state.epoch
        self._log.info("announcing_again", epoch=epoch, why="the agent has waited at the barrier for long")
        self._reminder = None
        self.take(StillWaiting())

    async def _until_announced(self) -> None:
        """Let the announcement go first on the one connection; until its answer no view but a bypass matters."""
        if self._announcing is not None:
            await self._announcer.until_answered()

    def lift(self, epoch: int | None) -> None:
        """Lift the barrier; `epoch` is None when in-place restart is off."""
        self._barrier.lift(epoch)
        wait_s = self._clock.monotonic_s() - self._started_s
        self._metrics.lifted = True
        self.phases.lifted()
        self._log.info("barrier_lifted", epoch=epoch, wait_s=round(wait_s, 3))

    def lower(self) -> None:
        """Close the barrier again: the next worker is held back."""
        self._barrier.close()
        self._metrics.lifted = False

    def _ask_to_save(self, epoch: int) -> None:
        """Ask the worker to save if its epoch is meant; the status goes on to say an older one."""
        if self._saves is not None and epoch == self.state.epoch:
            self._saves.ask(epoch)

    def _note_problem(self, source: str, problem: str | None) -> None:
        """Remember what is wrong with the watch or the patch until it works again."""
        if self._problems.get(source) == problem:
            return
        if problem is None:
            del self._problems[source]
        else:
            self._problems[source] = problem
        self._send_report()

    def _send_report(self) -> None:
        """Tell the barrier and the metrics where this Pod stands."""
        state, view = self.state, self.state.view
        self._metrics.epoch = state.epoch
        self._metrics.synced = view.synced if view else 0
        self._metrics.deprecated = view.deprecated if view else 0
        self._barrier.report(
            BarrierState(
                phase=state.phase.value,
                epoch=state.epoch,
                synced=view.synced if view else None,
                deprecated=view.deprecated if view else None,
                since_s=self._since_s,
                problem="; ".join(self._problems.values()) or None,
            )
        )
