"""
What the ranks of a running worker make its Pod tell the group, although nobody has failed.

    loss    LOSS_STEPS steps in a row had no finite loss
    slow    the rank's own work took SLOW_FACTOR times as long as before, in each of its newest four blocks of steps
    steps   the same of whole steps, where the script does not say how long it waited: the rank may be a healthy one
    busy    a rank has been in a busy phase for BUSY_SHARE of the stall limit: its peers in other Pods wait for it
    stall   a rank makes no step for longer than this Pod's workers ever took for one (common.protocol.learned_limit)
    pause   such a silence is over

The rank of a notice is the one that is worst off. Pure; docs/adr/0104.
"""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.bare.typed import Final
from inplace.common.protocol.rank import RankNumbers, RankState
from inplace.common.protocol.stall import StallState, silence
from inplace.common.wire.notice import BUSY, LOSS, PAUSE, SLOW, STALL, STEPS, Notice

LOSS_STEPS: Final = 20  # a single overflow is what loss scaling lives with
SLOW_FACTOR: Final = 2.0  # equal ranks stay below: tests/agent/progress/test_rank_notices.py has 10,000 seeds
BUSY_SHARE: Final = 0.5  # the news must reach every Pod before the limit is over


def notices_of(state: StallState, wall_s: float) -> Iterator[Notice]:
    """Yield what the ranks give reason for now, one of each kind at most, what is urgent first.

    Args:
        state: after a look.
        wall_s: Unix time, seconds.
    """
    if state.epoch is None:
        return
    epoch = state.epoch
    limits_s = [limit for limit in (state.settings.stall_after_s, state.learned.limit_s) if limit is not None]
    stall_s = min(limits_s, default=None)  # the peers' is about the same
    if stall_s is not None and (busy := _busiest(state, stall_s)) is not None:
        left_s = busy.seen.busy_s_max - (state.watched_s - busy.changed_s)
        yield Notice(epoch, BUSY, max(1, round(min(left_s, stall_s))), busy.seen.name, busy.seen.step, wall_s)
    if (silent := silence(state)) is not None:
        yield Notice(epoch, STALL, round(silent.silent_s), silent.rank, silent.step, wall_s)
    elif (pause := state.pause) is not None:
        yield Notice(epoch, PAUSE, round(pause.silent_s), pause.rank, pause.step, wall_s)
    told = [(rank, numbers) for rank in state.ranks if (numbers := rank.seen.numbers) is not None]
    bad = [(rank, numbers) for rank, numbers in told if numbers.bad >= LOSS_STEPS]
    if bad:
        rank, numbers = min(bad, key=lambda one: (one[1].bad_since is None, one[1].bad_since or 0))
        yield Notice(epoch, LOSS, numbers.bad, rank.seen.name, numbers.bad_since, wall_s)
    slower = [(rank, numbers) for rank, numbers in told if slowdown(numbers) >= SLOW_FACTOR]
    if slower:
        rank, numbers = max(slower, key=lambda one: slowdown(one[1]))
        kind = SLOW if numbers.waits else STEPS
        yield Notice(epoch, kind, round(slowdown(numbers) * 100), rank.seen.name, rank.seen.step, wall_s)


def slowdown(numbers: RankNumbers) -> float:
    """Return how many times as long as before a step takes; 0 when that is unknown."""
    if numbers.recent_s is None or numbers.before_s is None:
        return 0.0
    return numbers.recent_s / numbers.before_s


def work_s_of(state: StallState) -> dict[str, float]:
    """Return by rank what its own work on a step takes, seconds; only of ranks that say how long they wait."""
    return {
        rank.seen.name: numbers.recent_s
        for rank in state.ranks
        if (numbers := rank.seen.numbers) is not None and numbers.waits and numbers.recent_s is not None
    }


def _busiest(state: StallState, stall_s: float) -> RankState | None:
    """Return the rank whose busy phase goes on the longest, of those in one for long; None for none."""
    busy = [
        rank
        for rank in state.ranks
        if rank.is_busy(state.watched_s)
        and not rank.seen.ended
        and state.watched_s - rank.changed_s >= BUSY_SHARE * stall_s
    ]
    return max(busy, key=lambda rank: rank.seen.busy_s_max + rank.changed_s, default=None)
