"""
The sidecar's machine: the agent's machine, and what it does about a worker that died in this Pod.

Without it a sidecar knows only views, and kubelet is the first to notice a dead worker, up to a second later. With a
guard the agent hears of the death at once: it tells the controller, then ends its own process, and kubelet finds every
container of the Pod ended at one look.

When one worker dies its peers die soon after. So an agent waits for a moment of its own before it tells
(`agent.herd.telling_delay_s`), and it keeps silent if a view deprecates the epoch meanwhile: then it restarts as ever.
"""

from __future__ import annotations

from inplace.common.epoch.agent import (
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
from inplace.common.epoch.agent import step as step_agent
from inplace.common.epoch.errors import InvariantError
from inplace.common.record import record, replace


@record
class WorkerFailed:
    """The worker of `epoch` died in this Pod; code None if its container ended without a word."""

    epoch: int
    code: int | None


@record
class TellingDue:
    """The moment of this Pod has come, and the epoch is not deprecated yet."""


@record
class FailureTold:
    """The server has answered, or did not within its time: this process need not wait any longer."""


@record
class ScheduleTelling:
    """Report TellingDue after a delay."""


@record
class TellFailure:
    """Write on this Pod that its worker of `epoch` died, and report FailureTold."""

    epoch: int
    code: int | None


@record
class RestartPod:
    """Make every container of this Pod start again: its worker is dead."""

    epoch: int
    code: int | None


Event = View | Accepted | NotAccepted | StillWaiting | WorkerFailed | TellingDue | FailureTold
Action = (
    TakeConsistentView | Announce | LiftBarrier | RestartInPlace | GiveUp | ScheduleTelling | TellFailure | RestartPod
)
Step = tuple["SidecarState", tuple[Action, ...]]


@record
class SidecarState:
    """All that the machine remembers.

    Args:
        agent: the agent's own machine.
        failure: the first death of this Pod's worker; None while there was none.
        telling: the PATCH that says so was begun. It is sent ONCE.
    """

    agent: AgentState = AgentState()
    failure: WorkerFailed | None = None
    telling: bool = False


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
    if isinstance(event, WorkerFailed):
        # Only the worker that this process let start: with in-place restart off, a death is kubelet's affair.
        if state.failure is not None or state.agent.phase is not AgentPhase.LIFTED or event.epoch != state.agent.epoch:
            return state, ()
        return replace(state, failure=event), (ScheduleTelling(),)
    if state.failure is None or state.telling is isinstance(event, TellingDue):
        raise InvariantError(f"event {event!r} after failure {state.failure!r}, telling: {state.telling}")
    epoch, code = state.failure.epoch, state.failure.code
    if isinstance(event, TellingDue):
        return replace(state, telling=True), (TellFailure(epoch, code),)
    return replace(state, agent=replace(state.agent, phase=AgentPhase.RESTARTING)), (RestartPod(epoch, code),)
