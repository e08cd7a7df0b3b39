"""Hangs in a watched group: some while faults strike, and one without faults, which must be over within a bound.

And a save without faults, for which all ranks of the group wait longer than their limit: nobody hangs then.
"""

from __future__ import annotations

import asyncio

from inplace.agent.announce.failure_reporter import REPORT_S_MAX
from inplace.agent.progress.rank_notices import BUSY_SHARE
from inplace.agent.settings.arguments import GRACE_S
from inplace.common.protocol.stall import LATE_PERIODS
from inplace.common.wire import names as wire
from inplace.controller.plan.epochs import EVERY_S
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.liveness import TOGETHER_S, all_watch, epochs_of, is_together, terminal, until
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.ranks import BUSY_S_MAX, HANGS, JUMPS, OURS, SAVES, WatchedPods
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


def _is_heard(world: World) -> bool:
    """Say whether news reach every agent: no watch is closed, or half-open."""
    return all_watch(world) and not any(stream.ending is Ending.SILENT for stream in world.network.streams)


def _have_begun(world: World) -> bool:
    """Say whether every rank of the group has made a step: nobody compiles any more."""
    return all(one.ranks is None or one.ranks.have_begun for one in world.machine.workers.values())


async def save_once(world: World, watched: WatchedPods) -> None:
    """Let one rank save without other faults while all ranks of the group wait longer than their limit: S10."""
    watched.late_s_max = 0.0
    await world.clock.sleep(LATE_S_MAX)  # the last late look is over
    if watched.kind != OURS or terminal(world) or not is_together(world) or not _is_heard(world):
        return
    limit_s = watched.limits.stall_after_s
    assert limit_s is not None
    if limit_s * (1.0 - BUSY_SHARE) < NEWS_S + 2 * max(world.scenario.lags_s):
        return  # the news of it takes longer than the limit leaves
    await until(world, lambda: _have_begun(world), STEADY_S_MAX, L7, every_s=0.05)
    ranks = [training.ranks for training in world.machine.workers.values() if training.ranks is not None]
    saving = next((one for one in ranks if not one.is_busy), None)
    if saving is None:
        return  # all are busy with something else
    took_s = limit_s * world.random("save").uniform(*SAVE_SHARES)
    for one in ranks:
        one.hold(asyncio.get_running_loop().time() + took_s, round(took_s) + 1 if one is saving else 0)
    watched.count[SAVES] += 1
    await world.clock.sleep(took_s + limit_s)


async def hang_once(world: World, watched: WatchedPods) -> None:
    """Let one worker of a group that runs hang without other faults; it must end in time, and the group come back.

    Raises:
        ViolationError: it does not.
    """
    if terminal(world) or not is_together(world) or (watched.kind == OURS and not _is_heard(world)):
        return
    epoch = epochs_of(world)[0]
    victim = next(iter(world.machine.workers.values()))
    assert victim.ranks is not None
    ranks = victim.ranks
    ranks.count_anew()
    is_ready = lambda: (ranks.is_steady and _have_begun(world)) or victim.ended.done()  # noqa: E731
    await until(world, is_ready, STEADY_S_MAX, L7, every_s=0.05)
    if victim.ended.done():
        raise ViolationError(L7, "a healthy worker ended")
    watched.count[HANGS] += 1
    victim.hang()
    limits = watched.limits
    assert limits.stall_after_s is not None
    is_excused = any(wire.NOTICE in (pod["metadata"].get("annotations") or {}) for pod in world.pods)
    is_busy = any(one.ranks is not None and one.ranks.is_busy for one in world.machine.workers.values())
    excused_s = (NEWS_S + limits.stall_after_s) * (is_excused or is_busy) + BUSY_S_MAX * is_busy
    within_s = excused_s + limits.stall_after_s + LATE_PERIODS * limits.period_s + TOLD_S_MAX
    await until(world, victim.ended.done, within_s, L7, every_s=0.05)
    back = lambda: (is_together(world) and epochs_of(world)[0] > epoch) or bool(terminal(world))  # noqa: E731
    await until(world, back, TOGETHER_S, L7)
