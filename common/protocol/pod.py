"""
The Pod's machine: the agent's machine, and the states of this Pod's worker.

`common.protocol.agent` makes all decisions of the protocol: it chooses epochs, lifts and asks for restarts. This
machine says what that means for the worker. Guards are its parents: `common.protocol.linked_worker` makes one worker of
theirs. They keep every end to themselves that ends the Pod. Where workers are restarted as processes, this machine
begins the next run of the agent's machine in the same process. In depth `containers` every restart ends the process
instead, and kubelet starts all containers of the Pod anew.

Safety rests on one rule: an epoch is announced only in life ABSENT, and only `WorkerGone` leads back there. That event
says that no process of the worker's tree is left. Views that arrive meanwhile are kept, so that the next machine
announces at once from the newest view: no new watch, one PATCH.

A worker that dies needs no report where the next announcement says it. One that hangs, or has a rank that failed, is
told first, so that its peers stop while it ends (`common.protocol.failure_report`).

Where kubelet can give this Pod clean containers, this machine asks for them by leaving: in depth `containers` at every
failure, else when the worker failed several times in a row without progress, and when a worker's container is gone. The
failure is told first, because kubelet takes a second or so. A guard ends what is below it when its agent leaves.
"""

from __future__ import annotations

from enum import Enum

from inplace.common.bare.record import record, replace
from inplace.common.protocol.agent import (
    Accepted,
    AgentPhase,
    AgentState,
    Announce,
    GiveUp,
    Lease,
    LiftBarrier,
    NotAccepted,
    RestartInPlace,
    StillWaiting,
    TakeConsistentView,
    Verdict,
    View,
    newest,
)
from inplace.common.protocol.agent import Event as AgentEvent
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ReportState,
    ScheduleReport,
    SendReport,
    WorkerFailed,
    WorkerRaised,
    WorkerStalled,
)
from inplace.common.protocol.failure_report import step as step_report
from inplace.common.protocol.resume import Resume


class WorkerLife(Enum):
    """What there is of the worker in this Pod."""

    ABSENT = "absent"  # no process of it, of any epoch
    RUNNING = "running"
    STOPPING = "stopping"  # told to stop; its main process is still there
    LEFTOVERS = "leftovers"  # its main process is gone, what it left is being killed
    LEFT = "left"  # terminal: this process ends


@record
class WorkerExited:
    """The worker's main process is gone; others of its tree may be left.

    Args:
        code: its exit status, 128 + n when signal n ended it.
        progressed: it got further than every worker of this Pod before; or nobody can say, and it ran for long.
    """

    code: int
    progressed: bool = False


@record
class WorkerLost:
    """The worker's container is gone, or cannot be used again."""


@record
class WorkerGone:
    """No process of the worker's tree is left."""


@record
class Terminate:
    """The process was told to end, by signal `number`."""

    number: int


@record
class StartWorker:
    """Start the worker; epoch None when in-place restart is off. It goes on from `resume`."""

    epoch: int | None
    resume: Resume | None = None


@record
class StopWorker:
    """Let the worker end, then make it; report WorkerExited, then WorkerGone.

    Args:
        verdict: why the group restarts; None when this process is to end.
        at_once: give it no grace.
        stalled: it hangs, so it gets no grace either.
        raised: a rank has failed for good, so its processes end by themselves; only their exit handlers may hang.
    """

    verdict: Verdict | None
    at_once: bool = False
    stalled: bool = False
    raised: bool = False


@record
class Leave:
    """End this process with this exit code."""

    code: int


WorkerEvent = WorkerExited | WorkerLost | WorkerGone | WorkerStalled | WorkerRaised
Event = AgentEvent | Lease | WorkerEvent | ReportDue | ReportSent | Terminate
Action = TakeConsistentView | Announce | StartWorker | StopWorker | GiveUp | Leave | ScheduleReport | SendReport
Step = tuple["PodState", tuple[Action, ...]]


@record
class PodState:
    """All that the machine remembers.

    Args:
        agent: the agent's machine of the epoch that is announced or running.
        life: what there is of the worker.
        code: the exit code to leave with once nothing of the worker is left; None is to go on with the next epoch.
        restart_code: depth `containers`: a group restart ends this process with this code; None: it begins again here.
        clean_code: the exit code at which kubelet starts this Pod's containers anew, if it does.
        clean_after: after so many failures in a row clean containers are asked for; 0: never.
        failures: so often in a row this Pod's worker failed by itself, without progress in between.
        report: what became of this worker's stall, or of the failure for which this process leaves.
    """

    agent: AgentState = AgentState()
    life: WorkerLife = WorkerLife.ABSENT
    code: int | None = None
    restart_code: int | None = None
    clean_code: int = 0
    clean_after: int = 0
    failures: int = 0
    report: ReportState = ReportState()


def step(state: PodState, event: Event) -> Step:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (an event after the end, an exit of a worker that does not run).
    """
    if state.life is WorkerLife.LEFT:
        raise InvariantError(f"event {event!r} after this process left")
    match event:
        case View() if _is_ending(state):
            return _keep(state, event)
        case Lease(held) if _is_ending(state):
            return _keep_lease(state, held=held)
        case View() | Accepted() | NotAccepted() | StillWaiting() | Lease():
            return _follow(state, event)
        case WorkerExited(code, progressed):
            return _exited(replace(state, failures=0) if progressed else state, code)
        case WorkerGone():
            return _gone(state)
        case WorkerLost():
            return _lost(state)
        case WorkerStalled() | WorkerRaised() | ReportDue():
            return _tell(state, event)
        case ReportSent():
            return _told(state)
        case Terminate(number):
            return _terminate(state, 128 + number)


def _follow(state: PodState, event: AgentEvent | Lease) -> Step:
    """Step the agent's machine, and translate what it wants into what the worker's processes need."""
    agent, actions = step_agent(state.agent, event)
    state = replace(state, agent=agent)
    match actions:
        case (LiftBarrier(epoch, resume),):
            return replace(state, life=WorkerLife.RUNNING), (StartWorker(epoch, resume),)
        case (RestartInPlace(),) if state.restart_code is not None:
            return replace(state, life=WorkerLife.LEFT), (Leave(state.restart_code),)
        case (RestartInPlace(verdict=verdict),) if state.life is WorkerLife.RUNNING:
            return replace(state, life=WorkerLife.STOPPING), (_stop(state, verdict),)
        case (RestartInPlace(),):
            return _begin_again(state)
        case (GiveUp() as give_up,):
            return replace(state, life=WorkerLife.LEFT), (give_up,)
        case ((Announce() | TakeConsistentView()) as wanted,):
            return state, (wanted,)
        case ():
            return state, ()
    raise InvariantError(f"the agent's machine wants {actions!r} in life {state.life.value}")


def _stop(state: PodState, verdict: Verdict | None) -> StopWorker:
    """Return how a worker is stopped, of which it may be known that it fails."""
    failure = state.report.failure
    return StopWorker(verdict, stalled=isinstance(failure, WorkerStalled), raised=isinstance(failure, WorkerRaised))


def _tell(state: PodState, event: WorkerStalled | WorkerRaised | ReportDue) -> Step:
    """Tell that the worker fails, or why this process leaves; nothing of a worker that ends, or is another one."""
    runs = state.life is WorkerLife.RUNNING and state.agent.phase is AgentPhase.LIFTED and _restarts_in_place(state)
    if isinstance(event, WorkerStalled | WorkerRaised):
        is_late = not runs or event.epoch != state.agent.epoch
    else:
        is_late = state.report.failure is None or not (runs or _is_leaving(state))
    report, words = (state.report, ()) if is_late else step_report(state.report, event)
    return replace(state, report=report), words


def _told(state: PodState) -> Step:
    """Leave, or end the worker that fails, unless it ended meanwhile."""
    if not state.report.was_due or state.report.answered:
        return state, ()
    report, _ = step_report(state.report, ReportSent())
    state = replace(state, report=report)
    if _is_leaving(state) or (state.life is WorkerLife.RUNNING and state.restart_code is not None):
        return _leave(state)
    if state.life is not WorkerLife.RUNNING:
        return state, ()
    return replace(state, life=WorkerLife.STOPPING), (_stop(state, None),)


def _exited(state: PodState, code: int) -> Step:
    """Take note of how the worker ended; its leftovers are still there. One that fails again gets clean containers."""
    if state.life not in (WorkerLife.RUNNING, WorkerLife.STOPPING):
        raise InvariantError(f"a worker exited with {code} in life {state.life.value}")
    was_running = state.life is WorkerLife.RUNNING
    state = replace(state, life=WorkerLife.LEFTOVERS)
    if state.restart_code is not None:
        return _ask_for_clean(state, code, 0)
    if state.code is not None:
        return state, ()
    failed = was_running or state.report.failure is not None  # and was told to end for that
    state = replace(state, failures=state.failures + failed)
    is_in_vain = failed and 0 < state.clean_after <= state.failures
    if _restarts_in_place(state) and not is_in_vain:
        return state, ()
    return _ask_for_clean(state, code if was_running else None, state.failures - 1)


def _lost(state: PodState) -> Step:
    """Let kubelet start this Pod's containers anew: one is gone, or cannot be used again."""
    if state.life is WorkerLife.ABSENT:
        raise InvariantError(f"a worker is lost in life {state.life.value}")
    if _is_leaving(state):
        return state, ()
    if state.life is WorkerLife.STOPPING or state.code is not None:
        return _leave(state)
    return _ask_for_clean(state, None, 0)


def _ask_for_clean(state: PodState, code: int | None, in_vain: int) -> Step:
    """Tell of the failure, unless the group restarts anyway, then leave."""
    view, epoch = state.agent.view, state.agent.epoch
    is_known = state.report.answered or view is None or view.deprecated >= epoch
    if is_known or not _restarts_in_place(state):
        return _leave(state)
    failure = WorkerFailed(epoch, code, in_vain)
    if state.report.was_due:  # a stall is being told, which is word enough; its answer is awaited
        return replace(state, life=WorkerLife.LEFTOVERS, report=replace(state.report, failure=failure)), ()
    report, words = step_report(ReportState(), failure)
    return replace(state, life=WorkerLife.LEFTOVERS, report=report), words


def _is_leaving(state: PodState) -> bool:
    """Say whether this process leaves for clean containers as soon as it has told why."""
    return isinstance(state.report.failure, WorkerFailed)


def _is_ending(state: PodState) -> bool:
    """Say whether the worker ends, or this process: a view is kept for what comes then."""
    return state.life in (WorkerLife.STOPPING, WorkerLife.LEFTOVERS) or _is_leaving(state)


def _leave(state: PodState) -> Step:
    """End this process, so that kubelet starts every container of this Pod anew, unless the Pod ends."""
    code = state.clean_code if state.code is None else state.code
    return replace(state, life=WorkerLife.LEFT), (Leave(code),)


def _keep(state: PodState, view: View) -> Step:
    """Keep a view for the next machine; nobody need be told of a failure in an epoch that is deprecated."""
    seen = view if state.agent.view is None else newest(state.agent.view, view)
    state = replace(state, agent=replace(state.agent, view=seen))
    return _leave(state) if _is_leaving(state) and seen.deprecated >= state.agent.epoch else (state, ())


def _keep_lease(state: PodState, *, held: bool) -> Step:
    """Keep the lease for the next machine; without one the worker that still ends has no time left."""
    state = replace(state, agent=replace(state.agent, leased=held))
    ends = state.life is WorkerLife.STOPPING and not held
    return state, (StopWorker(Verdict.FENCED, at_once=True),) if ends else ()


def _gone(state: PodState) -> Step:
    """Leave, or go on with the next epoch."""
    if state.life is not WorkerLife.LEFTOVERS:
        raise InvariantError(f"a worker is gone in life {state.life.value}")
    if _is_leaving(state):
        return state, ()
    if state.code is not None:
        return replace(state, life=WorkerLife.LEFT), (Leave(state.code),)
    return _begin_again(state)


def _terminate(state: PodState, code: int) -> Step:
    """End the worker first, which guards do that end with this process; a second signal loses the patience."""
    if state.restart_code is not None:
        return replace(state, life=WorkerLife.LEFT), (Leave(code),)
    match state.life:
        case WorkerLife.ABSENT:
            return replace(state, life=WorkerLife.LEFT), (Leave(code),)
        case WorkerLife.RUNNING:
            return replace(state, life=WorkerLife.STOPPING, code=code), (StopWorker(None),)
        case WorkerLife.STOPPING if state.code is not None:
            return state, (StopWorker(None, at_once=True),)
    return replace(state, code=code if state.code is None else state.code), ()


def _begin_again(state: PodState) -> Step:
    """Run the agent's machine anew, from what this Pod announced last and the newest view."""
    view = state.agent.view
    if view is None:
        raise InvariantError(f"no view after epoch {state.agent.epoch}")
    old = state.agent
    agent = AgentState(previous=old.epoch, reached=old.reached, leased=old.leased, slot=old.slot)
    # Consistent is relative to the machine's beginning, and this one begins now.
    state = replace(state, report=ReportState())
    return _follow(replace(state, agent=agent, life=WorkerLife.ABSENT), replace(view, consistent=False))


def _restarts_in_place(state: PodState) -> bool:
    """Say whether a dead worker is the group's affair; without in-place restart it is the Job's."""
    view = state.agent.view
    return state.agent.phase is not AgentPhase.BYPASSED and view is not None and view.in_place
