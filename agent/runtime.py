"""
The agent's shell around the protocol machine: events in, actions out.

One task group per agent holds two tasks: the watch, whose views are events, and (until it is accepted) the
announcement, whose outcome is an event. The agent takes events one at a time on the loop's thread and performs the
machine's actions in order. It makes no decision of the protocol; `common.epoch.agent` makes them all.

`Agent` owns no process: it reads no environment, handles no signal and never exits, so that thousands of agents can run
in one loop under virtual time.
"""

from __future__ import annotations

import asyncio
from random import Random

from inplace.agent.announcer import Announcer
from inplace.agent.barrier import Barrier, Report
from inplace.agent.config import AgentConfig
from inplace.agent.epoch_file import EpochMemory, NoMemory
from inplace.agent.exit_code import ExitCode
from inplace.agent.jobset_watch import JobSetWatch
from inplace.agent.listener import BarrierError
from inplace.agent.log import Log
from inplace.agent.metrics import AgentMetrics
from inplace.agent.phases import RestartPhases
from inplace.agent.retry_budget import RetryBudget
from inplace.common.epoch.agent import (
    AgentState,
    Announce,
    Event,
    GiveUp,
    LiftBarrier,
    Phase,
    RestartInPlace,
    StillWaiting,
    TakeConsistentView,
    step,
)
from inplace.common.kube.clock import Clock
from inplace.common.kube.http import Transport
from inplace.common.typed import Final

REMINDER: Final = "reminder"  # its task's name
REMINDER_S: Final = (200.0, 300.0)
"""After so long at the barrier an agent announces again. 5,000 of them then send 20 requests a second, a twenty-fifth
of their kubelets' Lease renewals; what changes nothing is not stored, and no watch shows it. See docs/adr/0042."""


class Agent:
    """One Pod's agent.

    Args:
        config: settings, already checked.
        transport: carries requests to the API server; the caller closes it.
        clock: the only source of time.
        rng: the only source of jitter.
        barrier: what holds the worker back; started and stopped by `run`.
        log: where events go.
        metrics: counted into when given.
        memory: keeps each epoch BEFORE it is announced; None keeps it nowhere but in the annotation.
        phases: times the restart; None times it from now, by `clock`.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        transport: Transport,
        clock: Clock,
        rng: Random,
        barrier: Barrier,
        log: Log,
        metrics: AgentMetrics | None = None,
        memory: EpochMemory | None = None,
        phases: RestartPhases | None = None,
    ) -> None:
        self._config = config
        self._memory = memory or NoMemory()
        self._clock = clock
        self._barrier = barrier
        self._log = log
        self._metrics = metrics = AgentMetrics() if metrics is None else metrics
        self._phases = phases or RestartPhases(metrics, now_s=clock.monotonic_s, annotate=config.phases_annotation)
        self._state = AgentState(previous=config.previous_epoch, reached=config.reached_epoch)
        self._problems: dict[str, str] = {}
        self._started_s = self._since_s = 0.0
        self._tasks: asyncio.TaskGroup  # both exist while `_follow` runs
        self._exit: asyncio.Future[int]
        self._announcing: asyncio.Task[None] | None = None
        self._reminder: asyncio.Task[None] | None = None
        self._rng = rng
        budget = RetryBudget(rng, config.spread_s)
        self._watch = JobSetWatch(
            config,
            transport=transport,
            clock=clock,
            rng=rng,
            budget=budget,
            log=log,
            metrics=metrics,
            on_view=self._take,
            on_problem=lambda problem: self._note_problem("watch", problem),
            before_watch=self._until_announced,
        )
        self._announcer = Announcer(
            config,
            transport=transport,
            clock=clock,
            budget=budget,
            log=log,
            metrics=metrics,
            phases=self._phases,
            on_problem=lambda problem: self._note_problem("patch", problem),
        )

    @property
    def state(self) -> AgentState:
        """Return the machine's state, for observers."""
        return self._state

    async def run(self) -> int:
        """Run until the Pod must restart in place, or cannot; return the process's exit code.

        Raises:
            ExceptionGroup: a bug of ours (InvariantError inside); never caught here.
        """
        self._started_s = self._since_s = self._clock.monotonic_s()
        self._exit = asyncio.get_running_loop().create_future()
        try:
            await self._barrier.start()
        except BarrierError as error:
            self._log.error("barrier_unavailable", message=str(error), then="exit; nothing was announced")
            return ExitCode.BARRIER_UNAVAILABLE
        try:
            return await self._follow()
        finally:
            await self._barrier.stop()

    async def _follow(self) -> int:
        """Follow the JobSet until an action ends the process."""
        self._send_report()
        async with asyncio.TaskGroup() as self._tasks:
            watching = self._tasks.create_task(self._watch.run())
            code = await self._exit
            watching.cancel()
            for task in (self._announcing, self._reminder):
                if task is not None:
                    task.cancel()
        return code

    def _take(self, event: Event) -> None:
        """Advance the machine by one event and perform its actions in order."""
        if self._exit.done():
            return  # the same chunk of the watch held more lines; the machine has ended
        before = self._state
        actions = self._advance(event)
        if self._state.phase is not before.phase:
            self._since_s = self._clock.monotonic_s()
            self._set_reminder()
        for action in actions:
            self._perform(action)
        self._send_report()

    def _advance(self, event: Event) -> tuple[object, ...]:
        """Step the machine; a supervisor has another one."""
        self._state, actions = step(self._state, event)
        return actions

    def _perform(self, action: object) -> None:
        match action:
            case TakeConsistentView():
                self._log.info("consistent_view_wanted", previous=self._state.previous)
                self._watch.take_consistent_view()
            case Announce(epoch):
                self._remember(epoch)
                self._announcing = self._tasks.create_task(self._announce(epoch))
            case LiftBarrier(epoch):
                self._remember_run(epoch)
                self._lift(epoch)
            case RestartInPlace(epoch, verdict):
                code, view = self._config.restart_exit_code, self._state.view
                seen = {"synced": view.synced, "deprecated": view.deprecated} if view else {}
                self._log.warning("restarting_in_place", epoch=epoch, verdict=verdict.value, **seen, exit_code=code)
                self._exit.set_result(code)
            case GiveUp(synced):
                self._log.error("epochs_exhausted", synced=synced, cure="recreate the JobSet")
                self._exit.set_result(ExitCode.EPOCHS_EXHAUSTED)

    def _remember(self, epoch: int) -> None:
        """Keep the epoch BEFORE the server can know it. A full disk costs the second safety, not the start."""
        problem = self._memory.remember(epoch)
        if problem is not None:
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then="PREVIOUS_EPOCH is used instead")

    def _remember_run(self, epoch: int | None) -> None:
        """Keep the epoch BEFORE its worker starts: should the status be lost, nothing else says that it ran."""
        problem = self._memory.remember_run(epoch) if epoch is not None else None
        if problem is not None:
            then = "a lost status could let the worker join this epoch again"
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then=then)

    async def _announce(self, epoch: int) -> None:
        """Make one attempt; its outcome is the machine's next event."""
        self._take(await self._announcer.announce(epoch))

    def _set_reminder(self) -> None:
        """Remind the machine after a long wait at the barrier; any other event makes the reminder idle."""
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None
        if self._state.phase is Phase.WAITING:
            self._reminder = self._tasks.create_task(self._remind(), name=REMINDER)

    async def _remind(self) -> None:
        await self._clock.sleep(self._rng.uniform(*REMINDER_S))
        self._log.info("announcing_again", epoch=self._state.epoch, why="the agent has waited at the barrier for long")
        self._reminder = None
        self._take(StillWaiting())

    async def _until_announced(self) -> None:
        """Let the announcement go first on the one connection; until its answer no view but a bypass matters."""
        if self._announcing is not None:
            await self._announcer.until_answered()

    def _lift(self, epoch: int | None) -> None:
        self._barrier.lift(epoch)
        wait_s = self._clock.monotonic_s() - self._started_s
        self._metrics.lifted = True
        self._phases.lifted()
        self._log.info("barrier_lifted", epoch=epoch, wait_s=round(wait_s, 3))

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
        state, view = self._state, self._state.view
        self._metrics.epoch = state.epoch
        self._metrics.synced = view.synced if view else 0
        self._metrics.deprecated = view.deprecated if view else 0
        self._barrier.report(
            Report(
                phase=state.phase.value,
                epoch=state.epoch,
                synced=view.synced if view else None,
                deprecated=view.deprecated if view else None,
                since_s=self._since_s,
                problem="; ".join(self._problems.values()) or None,
            )
        )
