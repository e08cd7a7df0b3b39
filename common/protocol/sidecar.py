"""
The sidecar's machine: the agent's machine, and what it does about a worker that failed in this Pod.

Without it a sidecar knows only views, and kubelet is the first to notice a dead worker, up to a second later. With a
guard the agent hears of the death at once: it tells the controller, then ends its own process, and kubelet finds every
container of the Pod ended at one look. A worker that hangs is told in the same way (`common.protocol.failure_report`).
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.protocol.agent import (
    TERMINAL,
    Accepted,
    AgentPhase,
    AgentState,
    Announce,
    GiveUp,
    LiftBarrier,
    NotAccepted,
    RestartInPlace,
    StillWaiting,
    TakeConsistentView,
    View,
)
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ReportState,
    ScheduleReport,
    SendReport,
    WorkerFailed,
    WorkerStalled,
)
from inplace.common.protocol.failure_report import step as step_report


@record
class RestartPod:
    """Make every container of this Pod start again: its worker failed."""

    failure: WorkerFailed | WorkerStalled


Event = View | Accepted | NotAccepted | StillWaiting | WorkerFailed | WorkerStalled | ReportDue | ReportSent
Action = (
    TakeConsistentView | Announce | LiftBarrier | RestartInPlace | GiveUp | ScheduleReport | SendReport | RestartPod
)
Step = tuple["SidecarState", tuple[Action, ...]]


@record
class SidecarState:
    """All that the machine remembers.

    Args:
        agent: the agent's own machine.
        report: what became of this Pod's first failure.
    """

    agent: AgentState = AgentState()
    report: ReportState = ReportState()


def step(state: SidecarState, event: Event) -> Step:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (an event after a terminal phase, an outcome nobody asked for).
    """
    if isinstance(event, View | Accepted | NotAccepted | StillWaiting):
        agent, actions = step_agent(state.agent, event)
        return replace(state, agent=agent), actions
    if state.agent.phase in TERMINAL:
        raise InvariantError(f"event {event!r} after terminal phase {state.agent.phase.value}")
    if isinstance(event, WorkerFailed | WorkerStalled) and not _is_ours(state.agent, event.epoch):
        return state, ()
    report, words = step_report(state.report, event)
    state = replace(state, report=report)
    if isinstance(event, ReportSent) and report.failure is not None:
        agent = replace(state.agent, phase=AgentPhase.RESTARTING)
        return replace(state, agent=agent), (RestartPod(report.failure),)
    return state, words


def _is_ours(agent: AgentState, epoch: int) -> bool:
    """Say whether this process let that worker start: with in-place restart off, a death is kubelet's affair."""
    return agent.phase is AgentPhase.LIFTED and epoch == agent.epoch
