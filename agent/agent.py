"""
An agent drives a protocol machine: events in, actions out.

One task group holds two tasks: the watch, whose views are events, and (until it is accepted) the announcement, whose
outcome is an event. The agent takes events one at a time on the loop's thread and performs the machine's actions in
order. It makes no decision of the protocol; `common.protocol.pod` makes them all.

It is the same agent beside a worker's guards and below one (`agent.worker_keeper`). It owns no process:
it reads no environment and never exits, so that thousands of agents can run in one loop under virtual time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from inplace.agent.announce.announcer import Announcer
from inplace.agent.announce.failure_reporter import FailureReporter
from inplace.agent.announce.jobset_requests import saved_in
from inplace.agent.announce.jobset_watch import JobSetWatch
from inplace.agent.announce.notice_sender import NoticeSender
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.barrier.http import BarrierState
from inplace.agent.deps import AgentDeps
from inplace.agent.link.linked_worker import LinkedWorker
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.worker_keeper import WorkerKeeper
from inplace.common.bare.typed import Final
from inplace.common.protocol.agent import (
    AgentPhase,
    AgentState,
    Announce,
    GiveUp,
    Lease,
    StillWaiting,
    TakeConsistentView,
    View,
    judge,
)
from inplace.common.protocol.failure_report import ScheduleReport, SendReport, WorkerFailed
from inplace.common.protocol.link import Lifted
from inplace.common.protocol.pod import Event, Leave, PodState, StartWorker, StopWorker, WorkerExited, WorkerLost, step
from inplace.common.wire.names import DEPTH_CONTAINERS

if TYPE_CHECKING:
    from inplace.agent.announce.lease_keeper import LeaseKeeper
    from inplace.agent.slot_keeper import SlotKeeper
    from inplace.common.protocol.link import PlayedRank
    from inplace.common.protocol.resume import Resume, Saved

UNANSWERED_S: Final = 2.0  # then what earlier runs wrote is told, be the announcement answered or not
REMINDER: Final = "reminder"  # its task's name
REMINDER_S: Final = (200.0, 300.0)
"""After so long at the barrier an agent announces again. 5,000 of them then send 20 requests a second, a twenty-fifth
of their kubelets' Lease renewals; what changes nothing is not stored, and no watch shows it. See docs/adr/0007."""


class Agent:
    """One Pod's agent.

    Args:
        config: settings, already checked.
        worker: this Pod's.
    """

    def __init__(self, config: AgentConfig, deps: AgentDeps, *, worker: LinkedWorker) -> None:
        self._config = config
        self._clock = deps.clock
        self._rng = deps.rng
        self._barrier = deps.barrier
        self._log = deps.log
        self._metrics = deps.metrics
        self._memory = deps.memory
        self._tails = deps.tails
        self._telling: asyncio.Task[None] | None = None
        self._saves = deps.saves
        self._on_end = deps.on_end
        self._phases = deps.phases or RestartPhases(
            deps.metrics, now_s=deps.clock.monotonic_s, wall_s=deps.clock.wall_s, annotate=config.phases_annotation
        )
        self._problems: dict[str, str] = {}
        self._started_s = self._since_s = 0.0
        self._tasks = deps.tasks
        self._exit: asyncio.Future[int]  # it exists while `run` does
        self._announcing: asyncio.Task[None] | None = None
        self._reminder: asyncio.Task[None] | None = None
        self._ordered_s: float | None = None  # when a view made the whole group announce again
        self._worker = worker
        self._notices = NoticeSender(config, deps, epoch=lambda: self.state.epoch)
        self.keeper = WorkerKeeper(
            deps,
            worker,
            progress_dir=config.progress_dir,
            phases=self._phases,
            state=lambda: self._machine,
            take=self.take,
            end=self.end,
            on_look=self._notices.take_look,
        )
        self._machine = _first_state(config, self.keeper.failures)
        self._slot_keeper: SlotKeeper | None = None
        self._played: PlayedRank | None = None  # of the worker that was started last
        if config.slot is not None:
            from inplace.agent.slot_keeper import SlotKeeper

            self._slot_keeper = SlotKeeper(config, deps, worker, state=lambda: self._machine)
        budget = RetryBudget(deps.rng, config.herd.spread_s)
        self._watch = JobSetWatch(
            config,
            deps,
            budget=budget,
            on_view=self.take,
            on_limits=deps.stalls.take_limits if deps.stalls is not None else lambda _: None,
            on_saving=self._ask_to_save,
            on_completed=self._slot_keeper.complete if self._slot_keeper is not None else lambda: None,
            on_stacks=worker.take_stacks,
            on_notices=self._notices.take_listed,
            on_problem=lambda problem: self._note_problem("watch", problem),
            before_watch=self._until_announced,
        )
        self._announcer = Announcer(
            config,
            deps,
            budget=budget,
            phases=self._phases,
            on_problem=lambda problem: self._note_problem("patch", problem),
        )
        self._reporter = FailureReporter(config, deps, take=self.take)
        self._lease_keeper: LeaseKeeper | None = None
        if config.fence_after_s:
            from inplace.agent.announce.lease_keeper import LeaseKeeper

            self._lease_keeper = LeaseKeeper(
                config, deps, take=self.take, state=lambda: self.state, look=self._watch.look, grace_s=worker.grace_s
            )

    @property
    def state(self) -> AgentState:
        """Return where the agent's own machine stands."""
        return self._machine.agent

    async def run(self) -> int:
        """Run until an action ends the agent; return the process's exit code.

        Raises:
            ExceptionGroup: a bug of ours (InvariantError inside); never caught here.
        """
        self._started_s = self._since_s = self._clock.monotonic_s()
        self._exit = asyncio.get_running_loop().create_future()
        await self._worker.prepare()
        try:
            await self._barrier.start()
            return await self._follow()
        finally:
            await self._worker.close()  # guards end their workers NOW: kubelet restarts what has ended together
            await self._barrier.stop()

    def end(self, code: int) -> None:
        """End the agent with this exit code, unless it has an end. What still would be told, kubelet shows."""
        self._reporter.drop()
        self._notices.drop()
        self.keeper.leave()
        if not self._exit.done():
            self._exit.set_result(code)
            self._on_end(code)

    async def _follow(self) -> int:
        """Follow the JobSet until an action ends the process."""
        self._send_report()
        async with self._tasks:
            watching = self._tasks.create_task(self._watch.run())
            of_lease = self._lease_keeper.work() if self._lease_keeper is not None else ()
            keeping = [self._tasks.create_task(work) for work in of_lease]
            if self._tails is not None:
                keeping.append(self._tasks.create_task(self._keep_tails_anyway()))
            code = await self._exit
            watching.cancel()
            for task in (self._announcing, self._reminder, self._telling, *keeping):
                if task is not None:
                    task.cancel()
        return code

    def take(self, event: Event) -> None:
        """Advance the machine by one of its events and perform its actions in order."""
        if self._exit.done():
            return  # the same chunk of the watch held more lines; the machine has ended
        if self._lease_keeper is not None and not isinstance(event, Lease):
            self._lease_keeper.check()  # a process that was stopped may find a view and the end of its lease at once
        is_end = isinstance(event, WorkerExited | WorkerLost)
        if is_end:
            self._started_s = self._clock.monotonic_s()  # the wait at the barrier counts from here
        if isinstance(event, WorkerExited):
            # The next announcement says more. A guard that is lost AFTER its worker ended changes nothing: the machine
            # waits for ReportDue then.
            self._reporter.keep_silent()
        before = self.state
        self._machine, actions = step(self._machine, event)
        if self.state.phase is not before.phase:
            self._since_s = self._clock.monotonic_s()
            self._set_reminder()
        if before.epoch and isinstance(event, View) and isinstance(next(iter(actions), None), StopWorker | Announce):
            self._ordered_s = self._clock.monotonic_s()
        for action in actions:
            self._perform(action)
        if is_end:
            self._lower()
        self._send_report()

    def _perform(self, action: object) -> None:
        match action:
            case TakeConsistentView():
                self._log.info("consistent_view_wanted", previous=self.state.previous)
                self._watch.take_consistent_view()
            case Announce(epoch, resume):
                self._remember(epoch)
                saved = saved_in(self._config, self._memory, epoch, resume)
                self._announcing = self._tasks.create_task(self._announce(epoch, saved))
            case GiveUp(synced):
                self._log.error("epochs_exhausted", synced=synced, cure="recreate the JobSet")
                self.end(ExitCode.EPOCHS_EXHAUSTED)
            case ScheduleReport() | SendReport():
                self._reporter.perform(action)
            case StartWorker(epoch, resume):
                self._remember_run(epoch)
                self._played = self._slot_keeper.played(epoch) if self._slot_keeper and epoch else None
                self.keeper.start(Lifted(epoch or 0, self._played, None if resume is None else resume.step))
                self._lift(epoch, resume)
            case StopWorker():
                self._reporter.keep_silent()
                self.keeper.stop(action)
            case Leave(code):
                if code == self._machine.clean_code:
                    self._explain(code)
                self.end(code)

    def _remember(self, epoch: int) -> None:
        """Keep the epoch BEFORE the server can know it. A full disk costs the second safety, not the start."""
        problem = self._memory.remember(epoch)
        if problem is not None:
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then="PREVIOUS_EPOCH is used instead")

    def _remember_run(self, epoch: int | None) -> None:
        """Keep the epoch BEFORE its worker starts: should the status be lost, nothing else says that it ran."""
        self._announcer.ran = epoch or self._announcer.ran
        problem = self._memory.remember_run(epoch) if epoch is not None else None
        if problem is not None:
            then = "a lost status could let the worker join this epoch again"
            self._log.warning("epoch_not_kept", epoch=epoch, message=problem, then=then)

    async def _announce(self, epoch: int, saved: Saved) -> None:
        """Make one attempt; its outcome is the machine's next event.

        What a view makes every agent of a large group send at once is spread. Who found out by itself goes first.
        """
        await self.keeper.until_fit()
        if self._exit.done():
            return  # this Pod may not join
        if self._ordered_s is not None:
            due_s, self._ordered_s = self._ordered_s + self._config.herd.restart_slot_s, None
            await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
        answer = await self._announcer.announce(epoch, saved)
        self._keep_tails(epoch)  # BEFORE the lift, with which the next run begins
        self.take(answer)

    def _keep_tails(self, epoch: int) -> None:
        """Keep what the runs before an epoch wrote last, and tell what is to be told."""
        if self._tails is not None:
            self._tails.collect(epoch, failed=self.keeper.run_failed)
            if self._telling is None or self._telling.done():
                self._telling = self._tasks.create_task(self._tails.tell())

    async def _keep_tails_anyway(self) -> None:
        """Do so for the runs before this process also where no announcement is answered."""
        await self._clock.sleep(UNANSWERED_S)
        self._keep_tails((self._config.previous_epoch or 0) + 1)

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

    def _lift(self, epoch: int | None, resume: Resume | None) -> None:
        """Lift the barrier; `epoch` is None when in-place restart is off."""
        self._barrier.lift(epoch)
        wait_s = self._clock.monotonic_s() - self._started_s
        self._metrics.lifted = True
        self._phases.lifted()
        member = self._played
        fields = {} if member is None else {"rank": member.rank, "size": member.size}
        fields |= {} if member is None or not member.jobs else {"job": member.job}
        fields |= {} if resume is None else {"resume_step": resume.step}
        self._log.info("barrier_lifted", epoch=epoch, wait_s=round(wait_s, 3), **fields)

    def _lower(self) -> None:
        """Close the barrier again: the next worker is held back."""
        self._barrier.close()
        self._metrics.lifted = False

    def _explain(self, code: int) -> None:
        """Log why kubelet is to start every container of this Pod anew."""
        state, view = self._machine, self.state.view
        if state.restart_code is None:
            why = "a container of a worker is gone"
            if self._config.guards_awaited:
                why += ", or no guard came from it"
            if 0 < state.clean_after <= state.failures:
                why = f"the worker failed {state.failures} times in a row without progress"
            self._log.warning("clean_containers_wanted", epoch=self.state.epoch, why=why, exit_code=code)
            return
        fields: dict[str, Any] = {"verdict": "worker_stalled"}
        if not state.report.answered and view is not None:
            verdict = judge(self.state.epoch, view).value
            fields = {"verdict": verdict, "synced": view.synced, "deprecated": view.deprecated}
        elif isinstance(state.report.failure, WorkerFailed):
            fields = {"verdict": "worker_failed", "worker_exit_code": state.report.failure.code}
        self._log.warning("restarting_in_place", epoch=self.state.epoch, **fields, exit_code=code)

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
        spares = self._slot_keeper.go_on() if self._slot_keeper is not None else False
        rank = self._played.rank if self._played and state.phase is AgentPhase.LIFTED else None
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
                rank=rank,
                spare=spares,
            )
        )


def _first_state(config: AgentConfig, failures: int) -> PodState:
    """Return where the machine of a new process stands."""
    agent = AgentState(
        previous=config.previous_epoch, reached=config.reached_epoch, leased=config.fence_after_s == 0, slot=config.slot
    )
    code = config.restart_exit_code
    return PodState(
        agent,
        restart_code=code if config.restart_depth == DEPTH_CONTAINERS else None,
        clean_code=code,
        clean_after=config.clean_after,
        failures=failures,
    )
