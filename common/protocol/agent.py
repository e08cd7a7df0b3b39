"""
The agent's machine: which epoch a Pod announces, when its barrier lifts, when it must restart.

The whole protocol of one Pod is `TRANSITIONS`: phase x verdict -> phase. A verdict is what a view of the JobSet means
for this Pod; `judge` states which verdict wins when several hold. `step` is pure: the shell performs the returned
actions in order and reports each announcement's outcome back as an event; an announcement is not made before its
outcome says so.

Safety rests on three lines: a Pod never announces from a view that may be older than its own last announcement, or
from a status that lost what it had reached (`is_fresh`), never lifts before the server accepted its announcement
(ANNOUNCING has no way to LIFTED but through `Accepted`), and DEPRECATED beats SYNCED (right after a failure both hold).

Where S has a list of its members (`common.protocol.members`) there is a fourth one: a Pod lifts only by a list in which
its slot plays a rank, and in which its own announcement was counted. So all go on from the step that the list says. A
group with spares always has a list, another one where its Pods told of steps that they could load.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.members import Members, of_epoch
from inplace.common.protocol.resume import Resume


class AgentPhase(Enum):
    """Where this Pod stands."""

    STARTING = "starting"  # no usable view yet
    CONFIRMING = "confirming"  # the view may be stale; waiting for a consistent one
    ANNOUNCING = "announcing"  # announcement sent, outcome unknown
    WAITING = "waiting"  # announced; the barrier is up
    LIFTED = "lifted"  # the worker may run
    BYPASSED = "bypassed"  # in-place restart is off for this JobSet; the worker may run
    RESTARTING = "restarting"  # terminal: every container of the Pod must start again
    EXHAUSTED = "exhausted"  # terminal: int32 has no next epoch


class Verdict(Enum):
    """What a view means for a Pod that announced epoch e."""

    BYPASS = "bypass"  # the strategy is not InPlaceRestart, or the disable annotation is set
    DEPRECATED = "deprecated"  # e <= D
    SYNCED = "synced"  # e == S
    PASSED = "passed"  # e < S: the group moved on without this Pod
    PENDING = "pending"  # e > S: not everybody is here
    UNREAD = "unread"  # e == S in a group with spares, and the view does not say who the members of S are
    SPARE = "spare"  # e == S, and this Pod is no member of S, or was not counted as one
    FENCED = "fenced"  # no view's verdict: nobody knows whether e is over, and the lease is (`common.protocol.lease`)


@record
class View:
    """The JobSet as one watch event showed it.

    Args:
        synced: S, int32 >= 0; 0 before the first sync.
        deprecated: D, int32 >= 0.
        in_place: the strategy is InPlaceRestart and the disable annotation is absent.
        consistent: read at, or after, a consistent read made since this process started.
        members: of S; None where there are none that can be read.
        lists: who wrote S writes a list for a group whose Pods told of steps: it is no controller of upstream's.
    """

    synced: int
    deprecated: int
    in_place: bool = True
    consistent: bool = False
    members: Members | None = None
    lists: bool = True


@record
class Accepted:
    """The server stored the announcement.

    Args:
        epoch: that was announced.
        version: the Pod's then, as a number.
        told: it says which steps this Pod could load.
    """

    epoch: int
    version: int = 0
    told: bool = False


@record
class NotAccepted:
    """The announcement was refused, or its reply was lost: it may or may not be stored. Sending it again is safe."""

    epoch: int


@record
class StillWaiting:
    """The barrier has been up for long: what this Pod announced may be lost, so it is announced again."""


@record
class Lease:
    """A worker may run, or may not: what this Pod knows of the status is too old (`common.protocol.lease`)."""

    held: bool


@record
class TakeConsistentView:
    """Watch again, with a consistent read first: what was seen may be older than this Pod's own last announcement."""


@record
class Announce:
    """Write `epoch` on this Pod, and report Accepted or NotAccepted.

    Args:
        epoch: to announce.
        resume: from which step the epoch before went on: which steps this Pod may tell of (`resume.local_after`). None
            where it was no member of that epoch. It need not have run in it.
    """

    epoch: int
    resume: Resume | None = None


@record
class LiftBarrier:
    """Let the worker start; epoch None when in-place restart is off. It goes on from `resume`."""

    epoch: int | None
    resume: Resume | None = None


@record
class RestartInPlace:
    """Make every container of this Pod start again."""

    epoch: int
    verdict: Verdict


@record
class GiveUp:
    """No epoch after `synced` fits in an int32; the group cannot restart in place again."""

    synced: int


Event = View | Accepted | NotAccepted | StillWaiting
Action = TakeConsistentView | Announce | LiftBarrier | RestartInPlace | GiveUp

# docs/protocol.md draws this table; `make rewrite` regenerates it.
TRANSITIONS: Final[Mapping[AgentPhase, Mapping[Verdict, AgentPhase]]] = {
    AgentPhase.ANNOUNCING: {
        Verdict.BYPASS: AgentPhase.BYPASSED,
        # Every other verdict waits for the outcome: leaving with a write in flight could let it land on our successor.
        Verdict.DEPRECATED: AgentPhase.ANNOUNCING,
        Verdict.SYNCED: AgentPhase.ANNOUNCING,
        Verdict.PASSED: AgentPhase.ANNOUNCING,
        Verdict.PENDING: AgentPhase.ANNOUNCING,
        Verdict.UNREAD: AgentPhase.ANNOUNCING,
        Verdict.SPARE: AgentPhase.ANNOUNCING,
    },
    AgentPhase.WAITING: {
        Verdict.BYPASS: AgentPhase.BYPASSED,
        Verdict.DEPRECATED: AgentPhase.RESTARTING,
        Verdict.SYNCED: AgentPhase.LIFTED,
        Verdict.PASSED: AgentPhase.RESTARTING,
        Verdict.PENDING: AgentPhase.WAITING,
        Verdict.UNREAD: AgentPhase.WAITING,
        Verdict.SPARE: AgentPhase.ANNOUNCING,  # the next epoch: nothing of this one runs here
    },
    AgentPhase.LIFTED: {
        Verdict.BYPASS: AgentPhase.LIFTED,
        Verdict.DEPRECATED: AgentPhase.RESTARTING,
        Verdict.SYNCED: AgentPhase.LIFTED,
        Verdict.PASSED: AgentPhase.RESTARTING,
        # The members of an epoch stay: what seems to take them back says nothing.
        Verdict.UNREAD: AgentPhase.LIFTED,
        Verdict.SPARE: AgentPhase.LIFTED,
    },
}
TERMINAL: Final = frozenset({AgentPhase.RESTARTING, AgentPhase.EXHAUSTED})


@record
class AgentState:
    """All that the machine remembers.

    Args:
        previous: the last epoch this Pod announced, int32 >= 1; None when unknown (a new or replaced Pod).
        reached: an S that this Pod kept as certain: where its worker ran, or from which it chose; 0 for none.
        slot: this Pod's number in a group with spares; None in a group without.
        accepted: the version of the Pod when `epoch` was first accepted; 0 before that.
        told: that announcement said which steps this Pod could load.
        epoch: the epoch chosen by this process; 0 before it chose.
        view: the newest of everything seen (S and D never decrease, so a stale view cannot take back a fresh one).
    """

    previous: int | None = None
    phase: AgentPhase = AgentPhase.STARTING
    epoch: int = 0
    view: View | None = None
    reached: int = 0
    leased: bool = True
    slot: int | None = None
    accepted: int = 0
    told: bool = False


def step(state: AgentState, event: Event | Lease) -> tuple[AgentState, tuple[Action, ...]]:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (an event after a terminal phase, an outcome nobody asked for).
    """
    if state.phase in TERMINAL:
        raise InvariantError(f"event {event!r} after terminal phase {state.phase.value}")
    if isinstance(event, View):
        state = replace(state, view=newest(state.view, event))
        if state.phase in (AgentPhase.STARTING, AgentPhase.CONFIRMING):
            return _choose(state)
        return _settle(state)
    if isinstance(event, Lease):
        return _take_lease(replace(state, leased=event.held))
    if isinstance(event, StillWaiting):
        if state.phase is not AgentPhase.WAITING:
            raise InvariantError(f"{event!r} in phase {state.phase.value}")
        # Not beside WAITING: as with the first one, nobody leaves while the write is in flight.
        return replace(state, phase=AgentPhase.ANNOUNCING), (_announce(state),)
    if state.phase is AgentPhase.BYPASSED:
        return state, ()
    if state.phase is not AgentPhase.ANNOUNCING or event.epoch != state.epoch:
        raise InvariantError(f"outcome {event!r} in phase {state.phase.value} with epoch {state.epoch}")
    waiting = replace(state, phase=AgentPhase.WAITING)
    if isinstance(event, Accepted):
        first = replace(waiting, accepted=event.version, told=event.told)
        return _settle(waiting if state.accepted else first)
    if judge(state.epoch, _seen(state)) in (Verdict.DEPRECATED, Verdict.PASSED):
        return _settle(waiting)
    return state, (_announce(state),)


def _take_lease(state: AgentState) -> tuple[AgentState, tuple[Action, ...]]:
    """End the worker whose lease is over; lift what waited for a lease."""
    if state.phase is AgentPhase.LIFTED and not state.leased and _seen(state).in_place:
        return replace(state, phase=AgentPhase.RESTARTING), (RestartInPlace(state.epoch, Verdict.FENCED),)
    return _settle(state) if state.phase is AgentPhase.WAITING else (state, ())


def judge(epoch: int, view: View) -> Verdict:
    """Say what `view` means for a Pod at `epoch`. The order of the questions is the protocol's precedence."""
    if not view.in_place:
        return Verdict.BYPASS
    if epoch <= view.deprecated:
        return Verdict.DEPRECATED
    if epoch == view.synced:
        return Verdict.SYNCED
    if epoch < view.synced:
        return Verdict.PASSED
    return Verdict.PENDING


def judge_state(state: AgentState) -> Verdict:
    """Say what the newest view means for this Pod; where S has a list, SYNCED is for members that were counted.

    Another Pod of this slot may have announced this epoch before, and be the member: then the newer announcement, this
    one's, is newer than all that were counted.
    """
    view = _seen(state)
    verdict = judge(state.epoch, view)
    if verdict is not Verdict.SYNCED:
        return verdict
    members = of_epoch(view.members, view.synced)
    if members is None:
        if state.slot is not None:
            return Verdict.UNREAD
        # Others may have seen the list before it was lost, and go on from its step.
        return Verdict.SPARE if state.told and view.lists else Verdict.SYNCED
    is_counted = 0 < state.accepted <= members.seen and not members.skipped
    return Verdict.SYNCED if is_counted and _plays(state, members) else Verdict.SPARE


def is_spare(state: AgentState) -> bool:
    """Say whether S runs without this Pod, which stands in for nobody and waits for S + 1."""
    view, slot = state.view, state.slot
    if view is None or slot is None or state.phase not in (AgentPhase.WAITING, AgentPhase.ANNOUNCING):
        return False
    is_told = state.phase is AgentPhase.WAITING or state.accepted > 0  # a reminder changes nothing
    if not view.in_place or not is_told or not view.deprecated < view.synced == state.epoch - 1:
        return False
    members = of_epoch(view.members, view.synced)
    return members is not None and members.rank_of(slot) is None


def is_fresh(view: View, previous: int | None, reached: int = 0) -> bool:
    """Say whether an epoch may be chosen from `view`.

    A group without spares cannot have synced past this Pod, and one with spares only past a Pod that is no member. So a
    view with S >= `previous` shows every sync this Pod took part in. Any other cheap view may be older than the running
    epoch, which a restarted worker must not join. A consistent view with S < `reached` shows that the status was lost:
    the controller finds S again in what Pods announced before, this one too, so this Pod says nothing until then.
    docs/adr/0007
    """
    if previous is not None and view.synced >= previous:
        return True
    return view.consistent and view.synced >= reached


def _choose(state: AgentState) -> tuple[AgentState, tuple[Action, ...]]:
    """Choose the epoch of this process from a fresh view, or ask for one."""
    view = _seen(state)
    if not view.in_place:
        return replace(state, phase=AgentPhase.BYPASSED), (LiftBarrier(None),)
    if not is_fresh(view, state.previous, state.reached):
        actions = () if state.phase is AgentPhase.CONFIRMING else (TakeConsistentView(),)
        return replace(state, phase=AgentPhase.CONFIRMING), actions
    if view.synced >= INT32_MAX:
        return replace(state, phase=AgentPhase.EXHAUSTED), (GiveUp(view.synced),)
    epoch = view.synced + 1
    state = replace(state, phase=AgentPhase.ANNOUNCING, epoch=epoch, accepted=0, told=False)
    return state, (_announce(state),)


def _announce(state: AgentState) -> Announce:
    """Return the announcement: of the steps that this Pod may tell of, the list of the epoch before says which."""
    members = of_epoch(_seen(state).members, state.epoch - 1)
    return Announce(state.epoch, members.resume if members is not None and _plays(state, members) else None)


def _plays(state: AgentState, members: Members) -> bool:
    """Say whether this Pod's slot is a member; without spares every slot is."""
    return members.everyone if state.slot is None else members.rank_of(state.slot) is not None


def _settle(state: AgentState) -> tuple[AgentState, tuple[Action, ...]]:
    """Move along TRANSITIONS by the verdict of the newest view."""
    if state.phase is AgentPhase.BYPASSED:
        return state, ()
    verdict = judge_state(state)
    phase = TRANSITIONS[state.phase].get(verdict)
    if phase is None:
        raise InvariantError(f"verdict {verdict.value} in phase {state.phase.value}: {state!r}")
    if phase is state.phase or (phase is AgentPhase.LIFTED and not state.leased):
        return state, ()
    if phase is AgentPhase.ANNOUNCING:
        return _choose(replace(state, previous=state.epoch))
    state = replace(state, phase=phase)
    return state, _entering(state, verdict)


def _entering(state: AgentState, verdict: Verdict) -> tuple[Action, ...]:
    """Return the action that goes with entering a phase."""
    match state.phase:
        case AgentPhase.LIFTED:
            members = of_epoch(_seen(state).members, state.epoch)
            return (LiftBarrier(state.epoch, members.resume if members is not None else None),)
        case AgentPhase.BYPASSED:
            return (LiftBarrier(None),)
        case AgentPhase.RESTARTING:
            return (RestartInPlace(state.epoch, verdict),)
        case _:
            return ()


def newest(old: View | None, new: View) -> View:
    """Fold a view into what is known: epochs only grow, and once consistent, later events of the stream are too."""
    if old is None:
        return new
    synced = max(old.synced, new.synced)
    return View(
        synced=synced,
        deprecated=max(old.deprecated, new.deprecated),
        in_place=new.in_place,
        consistent=new.consistent,
        members=of_epoch(old.members, synced) or of_epoch(new.members, synced),
        lists=new.lists,
    )


def _seen(state: AgentState) -> View:
    if state.view is None:
        raise InvariantError(f"no view in phase {state.phase.value}")
    return state.view
