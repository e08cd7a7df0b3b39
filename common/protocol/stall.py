"""
The watchdog's machine: which rank of this Pod's worker fell silent, from looks at its progress files.

A rank is silent while no look shows its file changed. How long is counted on a clock of the machine's own, which only
looks advance: a look that comes much too late (the agent was stopped, the virtual machine suspended) says nothing about
the worker. No clock of a file is ever compared with ours, so a clock that jumps changes nothing.

A stall is reported once for each start of a worker; common.protocol.rank says how long a rank may be silent. Without a
limit that somebody set, `common.protocol.learned_limit` says when its silence is worth telling.
`step` is pure: the shell looks every `period_s` seconds and performs the returned actions in order.
"""

from __future__ import annotations

from enum import Enum

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Callable, Final
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.learned_limit import LearnedLimits
from inplace.common.protocol.rank import (
    FIRST_STEPS,
    STEP_TIME_FACTOR,
    RankLook,
    RankState,
    StallSettings,
    behind,
    changed_rank,
    limit_s,
    running_rank,
)

RANKS_MAX: Final = 64  # four times the ranks of the largest node there is; bounds a look's cost and this state
NEAR: Final = 0.75
"""Of a limit. In a hung collective all Pods find the stall within a tenth of it: by then all have passed this share."""
LATE_PERIODS: Final = 2.0  # a look after more than so many periods is late


class StallPhase(Enum):
    """Where the watchdog stands."""

    OFF = "off"  # no worker runs
    WATCHING = "watching"
    ASKING = "asking"  # a stall was found, and its command runs
    STALLED = "stalled"  # reported; the group restarts


@record
class Look:
    """All that one look showed.

    Args:
        epoch: of the worker whose files these are; None when in-place restart is off.
        ranks: at most RANKS_MAX; only files that count as this epoch's.
        left_out: so many files, at least, were not looked at.
        problem: why the folder cannot be read; "" when it can.
    """

    epoch: int | None
    ranks: tuple[RankLook, ...] = ()
    left_out: int = 0
    problem: str = ""


@record
class WorkerStarted:
    """A worker starts in this epoch; None when in-place restart is off.

    Args:
        runs: it started earlier, and is watched from now on.
    """

    epoch: int | None
    now_s: float
    runs: bool = False


@record
class WorkerEnded:
    """The worker's main process is gone, or is told to end."""

    now_s: float


@record
class LimitsChanged:
    """Other limits hold from now on, for the worker that runs too: its steps were measured all the time."""

    settings: StallSettings


@record
class Excused:
    """Another Pod has a busy rank, so silence counts from `for_s` seconds from now on at the earliest."""

    now_s: float
    for_s: float


@record
class Looked:
    """A look was taken; one of another epoch's files is passed over."""

    now_s: float
    look: Look


@record
class StallCommandEnded:
    """The command that RunStallCommand asked for is over, however it ended."""


@record
class RunStallCommand:
    """Run the command for a stall, then report StallCommandEnded; rank "" and pid None when there is none."""

    rank: str
    pid: int | None


@record
class Silence:
    """A rank that is, or was, silent for longer than its limit. As an action: report that the worker hangs.

    Args:
        rank: who is furthest behind of those beyond their limit; "" when no rank made itself known.
        step: its last one; None when unknown.
        silent_s: since it was last seen to change, or since the start; so far, or in all.
        limit_s: the limit that is over: set, or learned.
        busy: the busy phase that it is in; "" outside of one.
    """

    rank: str
    step: int | None
    silent_s: float
    limit_s: float
    busy: str = ""


@record
class LimitTooShort:
    """The stall limit is below what this worker's step takes; `limit_s` is used instead. Said once for each start."""

    rank: str
    step_s: float
    limit_s: float


Event = WorkerStarted | WorkerEnded | LimitsChanged | Excused | Looked | StallCommandEnded
Action = RunStallCommand | Silence | LimitTooShort


@record
class StallState:
    """All that the machine remembers.

    Args:
        watched_s: the machine's clock: seconds of the worker's run that looks covered.
        looked_s: the shell's clock at the last look.
        was_late: the last look came late.
        was_heard: some rank changed since the start.
        has_advised: LimitTooShort was said.
        ran: the worker ran before it was watched.
        excused_until_s: no silence before this moment of the machine's clock counts: a rank of another Pod is busy.
        found: the stall that is reported once its command is over.
        learned: what this Pod's workers took so far, those before this one included.
        pause: the newest silence of this worker that was longer than learned, and that a step ended; None for none.
    """

    settings: StallSettings
    phase: StallPhase = StallPhase.OFF
    epoch: int | None = None
    watched_s: float = 0.0
    looked_s: float = 0.0
    was_late: bool = False
    was_heard: bool = False
    has_advised: bool = False
    ran: bool = False
    excused_until_s: float = 0.0
    ranks: tuple[RankState, ...] = ()
    found: Silence | None = None
    learned: LearnedLimits = LearnedLimits()
    pause: Silence | None = None


def step(state: StallState, event: Event) -> tuple[StallState, tuple[Action, ...]]:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        InvariantError: the shell broke its contract (a second worker beside the first, too many ranks in a look).
    """
    match event:
        case WorkerStarted(epoch, now_s, runs):
            if state.phase is not StallPhase.OFF:
                raise InvariantError(f"{event!r} in phase {state.phase.value} of epoch {state.epoch}")
            learned = state.learned
            return StallState(state.settings, StallPhase.WATCHING, epoch, looked_s=now_s, ran=runs, learned=learned), ()
        case WorkerEnded(now_s):
            state = _advance(state, now_s)
            silent = silence(state)
            learned = state.learned if silent is None else state.learned.with_end(silent.limit_s)
            return replace(state, phase=StallPhase.OFF, found=None, learned=learned), ()
        case LimitsChanged(settings):
            return replace(state, settings=settings, has_advised=False), ()
        case Excused(now_s, for_s) if state.phase is not StallPhase.OFF:
            until_s = state.watched_s + max(0.0, now_s - state.looked_s) + for_s
            return replace(state, excused_until_s=max(state.excused_until_s, until_s)), ()
        case StallCommandEnded() if state.phase is StallPhase.ASKING and state.found is not None:
            return replace(state, phase=StallPhase.STALLED, found=None), (state.found,)
        case Looked(now_s, look) if state.phase is not StallPhase.OFF and look.epoch == state.epoch:
            return _looked(state, now_s, look)
    return state, ()  # a look or a command that outlived its worker


def nears_stall(state: StallState) -> bool:
    """Say whether a rank has been silent for most of its limit: time to see where it is, BEFORE anybody ends it."""
    if state.phase is not StallPhase.WATCHING:
        return False
    return _beyond_set(state, NEAR) is not None or silence(state, NEAR) is not None


def silence(state: StallState, share: float = 1.0) -> Silence | None:
    """Return the rank that is furthest behind of those that are silent for longer than was learned; None for none.

    Args:
        state: after a look.
        share: of what was learned, that its silence has to last.
    """
    if state.phase is StallPhase.OFF:
        return None
    return _beyond(state, share, state.learned.start_limit_s, lambda rank: _learned_s(state.learned, rank))


def _beyond_set(state: StallState, share: float = 1.0) -> Silence | None:
    """Return the same of the limits that somebody set."""
    settings = state.settings
    return _beyond(state, share, settings.start_stall_after_s, lambda rank: limit_s(rank, settings, state.watched_s))


def _beyond(
    state: StallState, share: float, start_s: float | None, limit_of: Callable[[RankState], float | None]
) -> Silence | None:
    """Return the rank that is furthest behind of those that are silent for more than a share of their limit."""
    if not state.was_heard:
        silent_s = state.watched_s - state.excused_until_s
        return (
            Silence("", None, state.watched_s, start_s) if start_s is not None and silent_s > share * start_s else None
        )
    over = []
    for rank in state.ranks:
        allowed_s = limit_of(rank)
        if allowed_s is not None and _silent_s(state, rank) > share * allowed_s:
            over.append((rank, allowed_s))
    if not over:
        return None
    rank, allowed_s = min(over, key=lambda found: behind(found[0]))
    return Silence(rank.seen.name, rank.seen.step, state.watched_s - rank.changed_s, allowed_s, rank.seen.busy)


def _learned_s(learned: LearnedLimits, rank: RankState) -> float | None:
    """Return for how long a rank may be silent, as far as that was learned; None is for ever."""
    if rank.seen.ended:
        return None
    if not rank.seen.begun or rank.steps < FIRST_STEPS:
        return learned.start_limit_s
    if learned.limit_s is None or not rank.seen.busy:
        return learned.limit_s
    return max(float(rank.seen.busy_s_max), learned.limit_s)


def _silent_s(state: StallState, rank: RankState) -> float:
    """Return how long a rank's silence has lasted, as far as it counts; one in a busy phase waits for nobody."""
    since_s = rank.changed_s if rank.seen.busy else max(rank.changed_s, rank.excused_s, state.excused_until_s)
    return state.watched_s - since_s


def _looked(state: StallState, now_s: float, look: Look) -> tuple[StallState, tuple[Action, ...]]:
    """Take note of a look, and judge by it."""
    if look.problem:  # nothing was seen: neither life nor silence
        return replace(state, looked_s=now_s), ()
    state = _note(_advance(state, now_s), look)
    if state.phase is not StallPhase.WATCHING:
        return state, ()
    state, advice = _advise(state)
    found = _beyond_set(state)
    if found is None or (look.left_out and not state.was_heard):  # a file that was left out may be that of a rank
        return state, advice
    pid = next((rank.seen.pid for rank in state.ranks if rank.seen.name == found.rank), None)
    return replace(state, phase=StallPhase.ASKING, found=found), (*advice, RunStallCommand(found.rank, pid))


def _advance(state: StallState, now_s: float) -> StallState:
    """Advance the machine's clock.

    The first late look adds nothing, because the worker may have been paused as well; each one right after it adds one
    period, so that an agent that is always late still finds a stall.
    """
    passed_s = max(0.0, now_s - state.looked_s)
    period_s = state.settings.period_s
    is_late = passed_s > LATE_PERIODS * period_s
    if is_late:
        passed_s = period_s if state.was_late else 0.0
    return replace(state, watched_s=state.watched_s + passed_s, looked_s=now_s, was_late=is_late)


def _note(state: StallState, look: Look) -> StallState:
    """Fold the ranks of a look into what is known; a rank whose file is gone is watched no longer."""
    if len(look.ranks) > RANKS_MAX:
        raise InvariantError(f"a look at {len(look.ranks)} ranks; at most {RANKS_MAX} are watched")
    known = {rank.seen.name: rank for rank in state.ranks}
    ranks = []
    learned, pause = state.learned, state.pause
    for seen in look.ranks:
        old = known.get(seen.name)
        if seen.changed and old is None and state.ran:
            ranks.append(running_rank(seen, state.watched_s))
        elif seen.changed:
            ranks.append(changed_rank(old, seen, state.watched_s))
            if old is not None and old.steps >= FIRST_STEPS and not (old.seen.busy or seen.busy):
                step_s = _silent_s(state, old)
                if learned.limit_s is not None and step_s > learned.limit_s:
                    pause = Silence(seen.name, old.seen.step, step_s, learned.limit_s)
                learned = learned.with_step(step_s)
        elif old is not None:
            ranks.append(old)
    ended = {seen.name for seen in look.ranks if seen.ended}
    busy = [rank for rank in ranks if rank.is_busy(state.watched_s) and rank.seen.name not in ended]
    if busy:
        ranks = [rank.excused(state.watched_s) if rank.waits_for(busy) else rank for rank in ranks]
    if ranks and not state.was_heard and not state.ran:
        learned = learned.with_start(state.watched_s)
    was_heard = state.was_heard or bool(ranks)
    return replace(state, ranks=tuple(ranks), was_heard=was_heard, learned=learned, pause=pause)


def _advise(state: StallState) -> tuple[StallState, tuple[Action, ...]]:
    """Say once that the limit is below the step time, when even the fastest of a rank's first steps was beyond it."""
    asked_s = state.settings.stall_after_s
    if state.has_advised or asked_s is None:
        return state, ()
    for rank in state.ranks:
        if rank.steps >= FIRST_STEPS and rank.fastest_s is not None and rank.fastest_s > asked_s:
            advice = LimitTooShort(rank.seen.name, rank.fastest_s, STEP_TIME_FACTOR * rank.fastest_s)
            return replace(state, has_advised=True), (advice,)
    return state, ()
