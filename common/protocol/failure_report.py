"""
How a Pod tells the controller that its worker failed: once, at a moment of its own, or not at all.

When one worker dies or hangs, its peers do so a moment later. So an agent waits for a moment of its own before it
tells (`agent.announce.report_delay`), and keeps silent if a view deprecates the epoch meanwhile. Sidecar and supervisor
share this machine. It is pure; the shell performs the returned actions and reports their outcomes.
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.protocol.errors import InvariantError


@record
class WorkerFailed:
    """The worker of `epoch` died in this Pod.

    Args:
        epoch: in which it ran.
        code: its exit code; None if its container ended without a word.
        in_vain: so many restarts in a row did not help, and the Pod gets clean containers; else 0.
    """

    epoch: int
    code: int | None
    in_vain: int = 0


@record
class WorkerStalled:
    """The worker of `epoch` hangs in this Pod.

    Args:
        silent_s: how long its furthest rank behind has been silent, whole seconds >= 1.
        step: that rank's last one; None when unknown.
    """

    epoch: int
    silent_s: int
    step: int | None


@record
class WorkerRaised:
    """A rank of the worker of `epoch` has failed for good in this Pod, and its process has not ended yet.

    Args:
        code: with which it is about to end.
    """

    epoch: int
    code: int


@record
class ReportDue:
    """The moment of this Pod has come, and the epoch is not deprecated yet."""


@record
class ReportSent:
    """The server has answered, or did not within its time: this process need not wait any longer."""


@record
class ScheduleReport:
    """Report ReportDue after a delay."""


@record
class SendReport:
    """Write on this Pod how its worker failed, and report ReportSent."""

    failure: WorkerFailed | WorkerStalled | WorkerRaised


Event = WorkerFailed | WorkerStalled | WorkerRaised | ReportDue | ReportSent
Action = ScheduleReport | SendReport


@record
class ReportState:
    """All that the machine remembers.

    Args:
        failure: the first failure of this Pod's worker; None while there was none.
        was_due: the PATCH that says so was begun. It is sent ONCE.
        answered: ReportSent came.
    """

    failure: WorkerFailed | WorkerStalled | WorkerRaised | None = None
    was_due: bool = False
    answered: bool = False


def step(state: ReportState, event: Event) -> tuple[ReportState, tuple[Action, ...]]:
    """Advance the machine by one event; what follows ReportSent is the mode's affair.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (an outcome nobody asked for).
    """
    if isinstance(event, WorkerFailed | WorkerStalled | WorkerRaised):
        if state.failure is not None:
            return state, ()
        return replace(state, failure=event), (ScheduleReport(),)
    expected = ReportSent if state.was_due else ReportDue
    if state.failure is None or state.answered or not isinstance(event, expected):
        raise InvariantError(f"event {event!r} after failure {state.failure!r}, was due: {state.was_due}")
    if state.was_due:
        return replace(state, answered=True), ()
    return replace(state, was_due=True), (SendReport(state.failure),)
