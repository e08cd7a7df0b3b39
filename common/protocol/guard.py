"""
The guard's machine: when a worker's process starts, and when it must end.

A guard is the parent of the worker in the worker's own container; the agent in the other container decides. The guard
starts the worker when the agent has lifted the barrier, tells the agent how the worker ended, and ends it when the
agent leaves. The whole machine is `step`: phase x event -> phase and actions.

Its agent says how deep a restart goes. In depth `containers` the guard ends with its worker, and kubelet starts both
again. In depth `process` (`StayOn`) it stays, says when no process of the worker is left, and waits for the next lift.

Safety rests on two lines: WAITING has no way to RUNNING but `BarrierLifted`, and RUNNING does not outlive the link
(`LinkEnded`), so that no worker runs on beside the announcement of a new agent.

Pure, and on the guard's start path.
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final
from inplace.common.protocol.errors import InvariantError

# The guard's phases; plain texts, because loading `enum` takes as long as all else that a guard loads.
WAITING: Final = "waiting"  # no worker yet: the barrier is closed, or there is no agent
RUNNING: Final = "running"
HALTING: Final = "halting"  # the agent ends this worker, and the guard stays for the next one
ENDING: Final = "ending"  # the Pod ends: the worker was told, and may take its time
STOPPING: Final = "stopping"  # the agent left: the worker is being ended
GONE: Final = "gone"  # terminal: the guard's process ends

SIGTERM: Final = 15
SIGINT: Final = 2
HARMLESS: Final = frozenset(
    (17, 18, 20, 21, 22, 23, 28)
)  # SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH
STOPPED: Final = 128 + SIGTERM  # the guard's exit code when it ended the worker, if the worker itself gave 0


@record
class BarrierLifted:
    """The agent lets the worker start; epoch 0 when in-place restart is off."""

    epoch: int


@record
class LinkEnded:
    """The agent leaves, or is gone."""


@record
class StayOn:
    """The agent restarts workers in this container: the guard outlives them."""


@record
class AgentSignal:
    """The agent wants the worker to end by signal `number`."""

    number: int


@record
class WorkerEnded:
    """The worker's main process is gone.

    Args:
        code: its exit status, 128 + n after signal n.
        is_tree_gone: no process of its tree is left; asked only of a guard that stays.
    """

    code: int
    is_tree_gone: bool = True


@record
class GraceOver:
    """The worker had its time to end."""


@record
class Signalled:
    """The guard got signal `number`.

    Args:
        number: of the signal.
        ends: it says that this Pod ends, or that its containers start again; SIGTERM and SIGINT always do.
    """

    number: int
    ends: bool = False


@record
class StartWorker:
    """Start the worker, and tell the agent."""

    epoch: int


@record
class PassOn:
    """Send the worker the signal that the guard got, or that its agent sends."""

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
class TellAbsent:
    """Tell the agent that no process of a worker is left, and that this guard waits for a lift."""


@record
class Leave:
    """End the guard's process with this code."""

    code: int


Event = StayOn | BarrierLifted | AgentSignal | LinkEnded | WorkerEnded | GraceOver | Signalled
Action = StartWorker | PassOn | StopWorker | KillWorker | TellEnding | TellEnd | TellAbsent | Leave
Step = tuple["GuardState", tuple[Action, ...]]


@record
class GuardState:
    """All that the machine remembers.

    Args:
        phase: one of the six above.
        signal: by which the Pod ends, in phase ENDING; 0 before.
        epoch: in which the worker runs; 0 before, or when in-place restart is off.
        final_codes: exit codes of the worker that are the Pod's end and no reason to restart the group; 0 always is.
        stays: depth `process`: the guard outlives its worker.
    """

    phase: str = WAITING
    signal: int = 0
    epoch: int = 0
    final_codes: frozenset[int] = frozenset()
    stays: bool = False


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
        return _signalled(state, event)
    if isinstance(event, WorkerEnded):
        return _ended(state, event)
    if isinstance(event, StayOn):
        return (replace(state, stays=True), (TellAbsent(),)) if phase == WAITING else (state, ())
    if isinstance(event, AgentSignal):
        return _told_to_end(state, event.number)
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
    """End the worker that runs; a guard that stayed ends with its agent: kubelet finds both ended at one look."""
    if state.phase in (RUNNING, HALTING, ENDING):
        return replace(state, phase=STOPPING), (StopWorker(),)
    if state.phase == WAITING and state.stays:
        return replace(state, phase=GONE), (Leave(STOPPED),)
    return state, ()


def _told_to_end(state: GuardState, number: int) -> Step:
    """End the worker as the agent says; one that has ended meanwhile was told of."""
    if state.phase == WAITING or not state.stays:
        return state, ()
    return replace(state, phase=HALTING if state.phase == RUNNING else state.phase), (PassOn(number),)


def _signalled(state: GuardState, event: Signalled) -> Step:
    """Pass a signal on; kubelet's says that the Pod ends, or that its containers start again."""
    number, ends = event.number, event.ends or event.number in (SIGTERM, SIGINT)
    if state.phase == WAITING:
        if not ends and number in HARMLESS:
            return state, ()
        return replace(state, phase=GONE), (Leave(128 + number),)
    if state.phase in (RUNNING, HALTING) and ends:
        return replace(state, phase=ENDING, signal=number), (TellEnding(state.epoch), PassOn(number))
    return state, (PassOn(number),)


def _ended(state: GuardState, ended: WorkerEnded) -> Step:
    """Leave with the worker's code, or wait for the next one; say what the end means."""
    code, gone = ended.code, replace(state, phase=GONE)
    if state.phase == STOPPING:  # nobody is there to be told
        return gone, (Leave(code or STOPPED),)
    failed = state.phase == RUNNING and code != 0 and code not in state.final_codes
    if state.phase == ENDING:  # a worker that saves and gives 0 did not complete: its Job must replace this Pod
        code = code or 128 + state.signal
    told = TellEnd(state.epoch, code, failed)
    goes_on = state.phase == HALTING or (failed and state.epoch > 0)  # with in-place restart off, the Pod ends
    if not (state.stays and goes_on):
        return gone, (told, Leave(code))
    words = (told,) if failed else ()
    if not ended.is_tree_gone:  # the end of the link says it, and kubelet gives clean containers
        return gone, (*words, Leave(code or STOPPED))
    return replace(state, phase=WAITING), (*words, TellAbsent())
