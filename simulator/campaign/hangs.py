"""Hangs in a watched group: some while faults strike, and one without faults, which must be over within a bound.

And a save without faults, for which all ranks of the group wait longer than their limit: nobody hangs then.
"""

from __future__ import annotations

import asyncio

from inplace.agent.announce.failure_reporter import REPORT_S_MAX
from inplace.agent.progress.rank_notices import BUSY_SHARE
from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.stall import LATE_PERIODS
from inplace.common.wire import names as wire
from inplace.common.wire.notice import BUSY
from inplace.controller.plan.notices import EVERY_S
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.liveness import TOGETHER_S, all_watch, epochs_of, is_together, terminal, until
from inplace.simulator.campaign.network import NEVER_S, Ending
from inplace.simulator.campaign.ranks import HANGS, JUMPS, OURS, SAVES, WatchedPods
from inplace.simulator.campaign.world import World

L7 = "L7 a worker that hung was not ended within its limit"
HANGS_MAX, JUMPS_MAX = 2, 2
FROM_S = 2.0
JUMP_S = 3600.0
LATE_S_MAX = 4.0  # of a look, at a file system that hangs for a while
TOLD_S_MAX = REPORT_S_MAX + GRACE_S + 0.5  # PATCH, SIGTERM and SIGKILL, and the way of all that
STEADY_S_MAX = 1_000.0
SAVE_SHARES = (1.5, 4.0)  # of the limit, that a save takes
NEWS_S = EVERY_S + 0.5  # from a busy rank's PATCH to the other Pods, beside the lag of the server's watches


async def disturb(world: World, watched: WatchedPods, until_s: float) -> None:
    """Let workers hang, one or all, wall clocks jump, and looks take long; a healthy group may notice none of it."""
    rng = world.random("hangs")
    watched.late_s_max = rng.choice((0.0, LATE_S_MAX))
    moments = [(rng.uniform(FROM_S, until_s), HANGS) for _ in range(rng.randint(0, HANGS_MAX))]
    moments += [(rng.uniform(FROM_S, until_s), JUMPS) for _ in range(rng.randint(0, JUMPS_MAX))]
    for at_s, kind in sorted(moments):
        await world.clock.sleep(max(0.0, at_s - world.now_s))
        if world.is_calm:
            return
        if kind == JUMPS:
            watched.skew_s += rng.choice((-JUMP_S, JUMP_S))
            watched.count[JUMPS] += 1
            continue
        workers = [one for one in world.machine.workers.values() if one.ranks is not None and one.ranks.may_hang]
        is_collective = rng.random() < 0.5
        for training in workers if is_collective else rng.sample(workers, min(1, len(workers))):
            watched.count[HANGS] += not training.is_hung
            training.hang()
            _wait_for_it(world, watched)


def _wait_for_it(world: World, watched: WatchedPods) -> None:
    """Let the ranks of all other workers wait: they would go on to save, and excuse the one that hangs."""
    for training in world.machine.workers.values():
        if watched.kind == OURS and training.ranks is not None and not training.is_hung:
            training.ranks.hold(NEVER_S)


async def save_once(world: World, watched: WatchedPods) -> None:
    """Let one rank save without other faults while all ranks of the group wait longer than their limit: S10."""
    watched.late_s_max = 0.0
    await world.clock.sleep(LATE_S_MAX)  # the last late look is over
    is_heard = all_watch(world) and not any(stream.ending is Ending.SILENT for stream in world.network.streams)
    if watched.kind != OURS or terminal(world) or not is_together(world) or not is_heard:
        return
    limit_s = watched.limits.stall_after_s
    assert limit_s is not None
    if limit_s * (1.0 - BUSY_SHARE) < NEWS_S + 2 * max(world.scenario.lags_s):
        return  # the news of it takes longer than the limit leaves
    took_s, now_s = limit_s * world.random("save").uniform(*SAVE_SHARES), asyncio.get_running_loop().time()
    for number, training in enumerate(list(world.machine.workers.values())):
        assert training.ranks is not None
        training.ranks.hold(now_s + took_s, 0 if number else round(took_s) + 1)
    watched.count[SAVES] += 1
    await world.clock.sleep(took_s + limit_s)


async def hang_once(world: World, watched: WatchedPods) -> None:
    """Let one worker of a group that runs hang without other faults; it must end in time, and the group come back.

    Raises:
        ViolationError: it does not.
    """
    if terminal(world) or not is_together(world):
        return
    epoch = epochs_of(world)[0]
    victim = next(iter(world.machine.workers.values()))
    assert victim.ranks is not None
    ranks = victim.ranks
    ranks.count_anew()
    await until(world, lambda: ranks.is_steady or victim.ended.done(), STEADY_S_MAX, L7, every_s=0.05)
    if victim.ended.done():
        raise ViolationError(L7, "a healthy worker ended")
    watched.count[HANGS] += 1
    victim.hang()
    _wait_for_it(world, watched)
    limits = watched.limits
    assert limits.stall_after_s is not None
    notices = (world.jobset.get("status") or {}).get(wire.NOTICES) or ()
    excused_s = limits.stall_after_s if any(notice["kind"] == BUSY for notice in notices) else 0.0  # and no longer
    within_s = excused_s + limits.stall_after_s + LATE_PERIODS * limits.period_s + TOLD_S_MAX
    await until(world, victim.ended.done, within_s, L7, every_s=0.05)
    back = lambda: (is_together(world) and epochs_of(world)[0] > epoch) or bool(terminal(world))  # noqa: E731
    await until(world, back, TOGETHER_S, L7)
