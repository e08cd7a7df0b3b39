"""Hangs in a watched group: some while faults strike, and one without faults, which must be over within a bound."""

from __future__ import annotations

from inplace.agent.announce.failure_reporter import REPORT_S_MAX
from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.stall import LATE_PERIODS
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.liveness import TOGETHER_S, epochs_of, is_together, terminal, until
from inplace.simulator.campaign.ranks import HANGS, JUMPS, WatchedPods
from inplace.simulator.campaign.world import World

L7 = "L7 a worker that hung was not ended within its limit"
HANGS_MAX, JUMPS_MAX = 2, 2
FROM_S = 2.0
JUMP_S = 3600.0
LATE_S_MAX = 4.0  # of a look, at a file system that hangs for a while
TOLD_S_MAX = REPORT_S_MAX + GRACE_S + 0.5  # PATCH, SIGTERM and SIGKILL, and the way of all that
STEADY_S_MAX = 1_000.0


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
    limits = watched.limits
    assert limits.stall_after_s is not None
    within_s = limits.stall_after_s + LATE_PERIODS * limits.period_s + TOLD_S_MAX
    await until(world, victim.ended.done, within_s, L7, every_s=0.05)
    back = lambda: (is_together(world) and epochs_of(world)[0] > epoch) or bool(terminal(world))  # noqa: E731
    await until(world, back, TOGETHER_S, L7)
