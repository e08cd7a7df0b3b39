"""
The guard's machine: when a worker's process starts, and when it must end.

A guard is the parent of the worker in the worker's own container; the agent in the other container decides. The guard
starts the worker when the agent has lifted the barrier, tells the agent how the worker ended, and ends it when the
agent leaves. The whole machine is `step`: phase x event -> phase and actions.

Safety rests on two lines: WAITING has no way to RUNNING but `Lifted`, and RUNNING does not outlive the link
(`LinkEnded`), so that no worker runs on beside the announcement of a new agent.

Pure, and on the guard's start path.
"""

from __future__ import annotations

from inplace.common.epoch.errors import InvariantError
from inplace.common.record import record, replace
from inplace.common.typed import Final

# The guard's phases; plain texts, because loading `enum` takes as long as all else that a guard loads.
WAITING: Final = "waiting"  # no worker yet: the barrier is closed, or there is no agent
RUNNING: Final = "running"
ENDING: Final = "ending"  # the Pod ends: the worker was told, and may take its time
STOPPING: Final = "stopping"  # the agent left: the worker is being ended
GONE: Final = "gone"  # terminal: the guard's process ends

SIGTERM: Final = 15
SIGINT: Final = 2
STOPPED: Final = 128 + SIGTERM  # the guard's exit code when it ended the worker, if the worker itself gave 0


@record
class BarrierLifted:
    """The agent lets the worker start; epoch 0 when in-place restart is off."""

    epoch: int


@record
class LinkEnded:
    """The agent leaves, or is gone."""


@record
class WorkerEnded:
    """The worker's main process is gone; `code` is 128 + n after signal n."""

    code: int


@record
class GraceOver:
    """The worker had its time to end."""


@record
class Signalled:
    """The guard got signal `number`."""

    number: int


@record
class StartWorker:
    """Start the worker, and tell the agent."""

    epoch: int


@record
class PassOn:
    """Send the worker the signal that the guard got."""

    number: int


@record
class StopWorker:
    """Tell the worker to end; report GraceOver after its grace."""


@record
class KillWorker:
    """Kill the worker's whole process tree."""


@record
class TellEnding:
    """Tell the agent that the Pod ends, BEFORE the worker does."""

    epoch: int


@record
class TellEnd:
    """Tell the agent how the worker ended, BEFORE the guard leaves."""

    epoch: int
    code: int
    failed: bool


@record
class Leave:
    """End the guard's process with this code."""

    code: int


Event = BarrierLifted | LinkEnded | WorkerEnded | GraceOver | Signalled
Action = StartWorker | PassOn | StopWorker | KillWorker | TellEnding | TellEnd | Leave
Step = tuple["GuardState", tuple[Action, ...]]


@record
class GuardState:
    """All that the machine remembers.

    Args:
        phase: one of the five above.
        epoch: in which the worker runs; 0 before, or when in-place restart is off.
        final_codes: exit codes of the worker that are the Pod's end and no reason to restart the group; 0 always is.
    """

    phase: str = WAITING
    epoch: int = 0
    final_codes: frozenset[int] = frozenset()


def step(state: GuardState, event: Event) -> Step:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (an event after the end, the end of a worker that never ran).
    """
    phase = state.phase
    if phase == GONE or (phase == WAITING and isinstance(event, WorkerEnded | GraceOver)):
        raise InvariantError(f"event {event!r} in phase {phase}")
    if isinstance(event, Signalled):
        return _signalled(state, event.number)
    if isinstance(event, WorkerEnded):
        return _ended(state, event.code)
    if isinstance(event, BarrierLifted):
        if phase == WAITING:
            return replace(state, phase=RUNNING, epoch=event.epoch), (StartWorker(event.epoch),)
        if event.epoch == state.epoch:
            return state, ()
        return _stop(state)  # another epoch on the same link: the agent is another one than the worker's
    if isinstance(event, LinkEnded):
        return _stop(state)
    return state, (KillWorker(),) if phase == STOPPING else ()


def _stop(state: GuardState) -> Step:
    """End the worker that runs."""
    if state.phase in (RUNNING, ENDING):
        return replace(state, phase=STOPPING), (StopWorker(),)
    return state, ()


def _signalled(state: GuardState, number: int) -> Step:
    """Pass a signal on; kubelet's says that the Pod ends, or that its containers start again."""
    if state.phase == WAITING:
        return replace(state, phase=GONE), (Leave(128 + number),)
    if state.phase == RUNNING and number in (SIGTERM, SIGINT):
        return replace(state, phase=ENDING), (TellEnding(state.epoch), PassOn(number))
    return state, (PassOn(number),)


def _ended(state: GuardState, code: int) -> Step:
    """Leave with the worker's code, and say what it means."""
    gone = replace(state, phase=GONE)
    if state.phase == STOPPING:  # nobody is there to be told
        return gone, (Leave(code or STOPPED),)
    failed = state.phase == RUNNING and code != 0 and code not in state.final_codes
    return gone, (TellEnd(state.epoch, code, failed), Leave(code))
