"""
One rank of a worker, as the watchdog remembers it: when it changed last, and how long it may be silent.

    before its first step            start_stall_after_s
    in its first three steps         the larger of start_stall_after_s and stall_after_s, or 5 times stall_after_s
    after them                       stall_after_s; twice the fastest step where even that takes longer
    in a busy phase                  the limit of its own
    while it waits for a busy rank   as long as that one; then its own limit begins
    after its process's own exit     for ever

Without a limit for the start, nobody waits for a first step. Without any limit, nothing is a stall.
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final, Sequence

FIRST_STEPS: Final = 3  # they compile and fill caches; and only they can show that a limit is shorter than a step
FIRST_STEPS_FACTOR: Final = 5.0  # of stall_after_s, for them, when there is no limit for the start
STEP_TIME_FACTOR: Final = 2.0  # of the fastest step so far: where that is beyond the limit, it is the limit
LOOKS_PER_LIMIT: Final = 20  # a stall is found at most 2 periods late: a tenth of the limit
PERIOD_S_MIN: Final = 0.1  # ten looks a second, of some 1 ms each for 16 ranks: 1 % of a core
PERIOD_S_MAX: Final = 5.0  # what the next announcement says of the last step is at most this old


@record
class StallSettings:
    """The limits that somebody asked for.

    Args:
        stall_after_s: seconds between two steps, > 0; None is no limit.
        start_stall_after_s: seconds from the worker's start to its first step, > 0; None is no limit.
    """

    stall_after_s: float | None = None
    start_stall_after_s: float | None = None

    @property
    def are_set(self) -> bool:
        """Say whether there is a limit at all."""
        return self.stall_after_s is not None or self.start_stall_after_s is not None

    @property
    def period_s(self) -> float:
        """Return the seconds from one look to the next."""
        limits_s = [limit for limit in (self.stall_after_s, self.start_stall_after_s) if limit is not None]
        wanted_s = min(limits_s, default=PERIOD_S_MAX * LOOKS_PER_LIMIT) / LOOKS_PER_LIMIT
        return min(max(wanted_s, PERIOD_S_MIN), PERIOD_S_MAX)


@record
class RankNumbers:
    """What a rank's script says of its steps; see common.wire.rank_numbers.

    Args:
        bad: so many steps in a row, >= 0, had a loss that is no finite number.
        bad_since: the first of them; None when unknown.
        recent_s: what a step took lately, > 0; None when unknown.
        before_s: what one took earlier in this run, > 0; None when unknown.
        waits: these times leave out what the rank waited for others.
    """

    bad: int = 0
    bad_since: int | None = None
    recent_s: float | None = None
    before_s: float | None = None
    waits: bool = False


@record
class RankLook:
    """One rank at one look.

    Args:
        name: of the rank's file; names are unique in a look.
        changed: its file is not as the last look showed it, or as it was before the worker started.
        step, begun, pid, busy, busy_s_max, ended: see common.wire.progress.ProgressLine.
        modified_s: when its file changed last, by that file's own time; None when unknown.
        first: the first step of this run that is known; None when there is none.
        first_s: when that was made, by the time of a file beside it.
        numbers: of its steps; None when it tells none.
    """

    name: str
    changed: bool
    step: int | None = None
    begun: bool = True
    pid: int | None = None
    busy: str = ""
    busy_s_max: int = 0
    ended: bool = False
    modified_s: float | None = None
    first: int | None = None
    first_s: float | None = None
    numbers: RankNumbers | None = None


@record
class RankState:
    """What is remembered of one rank.

    Args:
        seen: it as of its last change.
        changed_s: when that was, on the machine's clock.
        steps: so many were seen to follow its first one, up to FIRST_STEPS.
        fastest_s: the shortest step so far; None before one was measured.
        excused_s: when it was last seen to wait for a busy rank, on the machine's clock; it is silent since then.
    """

    seen: RankLook
    changed_s: float
    steps: int = 0
    fastest_s: float | None = None
    excused_s: float = 0.0

    def is_busy(self, watched_s: float) -> bool:
        """Say whether it is in a busy phase that may go on."""
        return bool(self.seen.busy) and watched_s - self.changed_s <= self.seen.busy_s_max

    def waits_for(self, busy: Sequence[RankState]) -> bool:
        """Say whether it may wait for one of the busy ranks: it got at least as far, or tells no step."""
        if self.seen.busy:
            return False
        return any(self.seen.step is None or self.seen.step >= (rank.seen.step or 0) for rank in busy)

    def excused(self, watched_s: float) -> RankState:
        """Return it as it waits now."""
        return replace(self, excused_s=watched_s)


def running_rank(seen: RankLook, watched_s: float) -> RankState:
    """Return a rank that is seen for the first time, in a worker that ran before anybody watched it.

    Its files tell how long its steps took: a limit that somebody sets for a job that hangs holds at once.
    """
    made, pace_s = pace(seen)
    return RankState(seen, watched_s, min(made or 0, FIRST_STEPS), pace_s)


def pace(seen: RankLook) -> tuple[int | None, float | None]:
    """Return how many steps a rank made after its first one, and the seconds of each by its files' times."""
    if seen.step is None or seen.first is None or seen.first_s is None or seen.modified_s is None:
        return None, None
    made, span_s = seen.step - seen.first, seen.modified_s - seen.first_s
    return (made, span_s / made) if made > 0 and span_s > 0.0 else (None, None)


def changed_rank(old: RankState | None, seen: RankLook, watched_s: float) -> RankState:
    """Return a rank that was just seen to change.

    A look shows one step at most, whatever the numbers say: some scripts count samples. A step beside a busy phase does
    not show how long steps take.
    """
    if old is None or not (old.seen.begun and seen.begun):
        return RankState(seen, watched_s)
    is_step = seen.step is None or seen.step != old.seen.step
    steps, fastest_s = min(old.steps + is_step, FIRST_STEPS), old.fastest_s
    if is_step and not (old.seen.busy or seen.busy):
        step_s = watched_s - old.changed_s
        fastest_s = step_s if fastest_s is None else min(fastest_s, step_s)
    return RankState(seen, watched_s, steps, fastest_s)


def limit_s(rank: RankState, settings: StallSettings, watched_s: float) -> float | None:
    """Return how long a rank may be silent `watched_s` seconds after the worker's start; None is for ever."""
    stall_s, start_s = settings.stall_after_s, settings.start_stall_after_s
    if rank.seen.ended or (stall_s is None and start_s is None):
        return None
    if rank.seen.busy:
        return float(rank.seen.busy_s_max)
    if not rank.seen.begun:
        return start_s
    if stall_s is None:
        return None
    if rank.seen.step is None and start_s is not None and watched_s <= start_s:
        return None  # the first lines of a log are not the first step
    if rank.steps < FIRST_STEPS:
        return FIRST_STEPS_FACTOR * stall_s if start_s is None else max(start_s, stall_s)
    if rank.fastest_s is not None and rank.fastest_s > stall_s:
        return STEP_TIME_FACTOR * rank.fastest_s
    return stall_s


def behind(rank: RankState) -> tuple[bool, int, float, str]:
    """Sort ranks by how far they are behind: the lowest step, then the longest silence."""
    return rank.seen.step is None, rank.seen.step or 0, rank.changed_s, rank.seen.name
