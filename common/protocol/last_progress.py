"""How far a worker was: what the next announcement of its Pod says, by the watchdog's looks. Pure."""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.protocol.rank import PERIOD_S_MIN, RankState, behind, pace
from inplace.common.protocol.stall import LATE_PERIODS, StallState


@record
class LastProgress:
    """What the Pod's next announcement says of the worker before it: of its rank that was furthest behind, and slowest.

    Args:
        step: its last step, 0 to 10^12 - 1; None when unknown.
        quiet_s: seconds for which it had made no step when the worker ended, >= 0.
        made: steps that it made after its first one, >= 1; None when unknown, or there were none.
        pace_s: seconds that each of them took on average; None with `made`.
        work_s: the median of the seconds that its slowest rank itself worked on a step, > 0; None when unknown.
        work_rank: that rank's number, >= 0; None if it has none.
    """

    step: int | None
    quiet_s: float
    made: int | None = None
    pace_s: float | None = None
    work_s: float | None = None
    work_rank: int | None = None


def last_progress(state: StallState, wall_s: float | None = None) -> LastProgress | None:
    """Return how far the worker was that ended last, or runs, of its rank that is furthest behind.

    None when no rank of it made itself known, unless a first step was waited for.

    Args:
        state: after the last look.
        wall_s: Unix time of that; None when unknown.
    """
    if not state.ranks:
        waits = state.settings.start_stall_after_s is not None and not state.was_heard
        return LastProgress(None, state.watched_s) if waits else None
    rank = min(state.ranks, key=behind)
    made, pace_s = pace(rank.seen)
    return LastProgress(rank.seen.step, _quiet_s(state, rank, wall_s), made, pace_s, *_most_work(state))


def _most_work(state: StallState) -> tuple[float | None, int | None]:
    """Return what the slowest rank's own work on a step takes, and that rank's number, as far as they are known."""
    works = [(rank.seen.numbers, rank.seen.name) for rank in state.ranks]
    told = [(numbers.recent_s, name) for numbers, name in works if numbers and numbers.waits and numbers.recent_s]
    if not told:
        return None, None
    work_s, name = max(told)
    kind, _, number = name.partition("-")
    return work_s, int(number) if kind in ("rank", "jax") and number.isdigit() else None


def _quiet_s(state: StallState, rank: RankState, wall_s: float | None) -> float:
    """Return for how long a rank has not changed: by its file's time, where the looks say that it may be right."""
    looks_s = state.watched_s - rank.changed_s
    if wall_s is None or rank.seen.modified_s is None:
        return looks_s
    file_s = wall_s - rank.seen.modified_s
    latest_s = looks_s + LATE_PERIODS * state.settings.period_s  # it changed up to one late look before it was seen
    return file_s if looks_s - PERIOD_S_MIN <= file_s <= latest_s else looks_s
