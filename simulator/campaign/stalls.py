"""
Watch one Pod's ranks through a few lives, thousands of times: no healthy worker is called hung, each hang is found.

It is the agent's own watchdog over real files, under virtual time and without a cluster: `soak` has the whole group.
Each life begins beside the files of the last one. In the last life the worker hangs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.progress.watchdog import Watched
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.failure_report import WorkerStalled
from inplace.common.protocol.stall import LATE_PERIODS
from inplace.common.wire.stall_limit import limits_text
from inplace.simulator.campaign.containers import QUIET
from inplace.simulator.campaign.hangs import JUMP_S, LATE_S_MAX, STEADY_S_MAX
from inplace.simulator.campaign.process import campaign_runner
from inplace.simulator.campaign.ranks import HANGS, JUMPS, Ranks, WatchedPods
from inplace.simulator.campaign.scenario import draw_limits

LIVES_MAX: Final = 3
LIFE_S: Final = (1.0, 60.0)
JUMPS_MAX: Final = 2
PAUSE_S_MAX: Final = 120.0
STARTS, PAUSES = "workers", "pauses of the agent"


@dataclass(slots=True)
class StallOutcome:
    """What happened in one seed.

    Args:
        late_s: from a hang to its report, beyond the limit.
        violation: what went wrong; "" when nothing did.
    """

    seed: int
    count: Counter[str] = field(default_factory=Counter)
    late_s: float = 0.0
    violation: str = ""


class _Running(Watched):
    """A worker that runs."""


class PausedClock(LoopClock):
    """The clock of an agent that is stopped now and then; its monotonic time goes on."""

    def __init__(self, rng: Random, count: Counter[str]) -> None:
        super().__init__()
        self._rng = rng
        self._count = count
        self.pauses = True

    async def sleep(self, delay_s: float) -> None:
        """Sleep, and rarely for much longer."""
        if self.pauses and self._rng.random() < 0.005:
            self._count[PAUSES] += 1
            delay_s += self._rng.uniform(0.0, PAUSE_S_MAX)
        await super().sleep(delay_s)


def run_stalls(seed: int) -> StallOutcome:
    """Run one seed."""
    with campaign_runner() as runner:
        return runner.run(_lives(seed))


async def _lives(seed: int) -> StallOutcome:
    rng = Random(f"{seed}/stalls")
    watched = WatchedPods(draw_limits(rng), rng)
    outcome = StallOutcome(seed, watched.count)
    try:
        clock = PausedClock(rng, watched.count)
        config = AgentConfig("default", "pod", "train", progress_dir=str(watched.folder("pod")))
        stalls = watched.stalls(config, clock, QUIET)
        limits = (watched.limits.stall_after_s, watched.limits.start_stall_after_s)
        stalls.take_limits(limits_text(*limits))
        lives = rng.randint(1, LIVES_MAX)
        for epoch in range(1, lives + 1):
            watched.count[STARTS] += 1
            await _live(rng, stalls, watched, clock, epoch, outcome, is_last=epoch == lives)
    finally:
        watched.close()
    return outcome


async def _live(
    rng: Random,
    stalls: StallWatch,
    watched: WatchedPods,
    clock: PausedClock,
    epoch: int,
    outcome: StallOutcome,
    *,
    is_last: bool,
) -> None:
    """Let a worker run for a while; in its last life it hangs in the end."""
    loop, found = asyncio.get_running_loop(), list[tuple[float, WorkerStalled]]()
    clock.pauses, watched.late_s_max = True, rng.choice((0.0, LATE_S_MAX))
    stalls.begin(epoch)
    ranks = watched.start("pod", epoch)
    watching = loop.create_task(stalls.watch(_Running(), lambda stall: found.append((loop.time(), stall))))
    for _ in range(rng.randint(0, JUMPS_MAX)):
        await asyncio.sleep(rng.uniform(0.0, LIFE_S[1] / 2))
        watched.skew_s += rng.choice((-JUMP_S, JUMP_S))
        watched.count[JUMPS] += 1
    await asyncio.sleep(rng.uniform(*LIFE_S))
    if is_last:
        await _steady(ranks, LoopClock())
        clock.pauses, watched.late_s_max = False, 0.0
        await asyncio.sleep(PAUSE_S_MAX + LATE_S_MAX)  # the last pause is over
        ranks.count_anew()
        await _steady(ranks, LoopClock())
    if found:
        outcome.violation = outcome.violation or f"a healthy worker was called hung: {found[0][1]}"
    elif is_last:
        await _hang(ranks, watched, found, outcome)
    ranks.end()
    watching.cancel()
    await asyncio.wait([watching])


async def _hang(
    ranks: Ranks, watched: WatchedPods, found: list[tuple[float, WorkerStalled]], outcome: StallOutcome
) -> None:
    """Hang, and see that it is found in time."""
    watched.count[HANGS] += 1
    ranks.hang()
    limits, began_s = watched.limits, ranks.silent_since_s
    assert limits.stall_after_s is not None
    within_s = limits.stall_after_s + LATE_PERIODS * limits.period_s
    await asyncio.sleep(max(began_s, ranks.excused_s) + within_s + 0.01 - asyncio.get_running_loop().time())
    if not found:
        outcome.violation = f"a hang was not found within {within_s:g} s"
    else:
        excused = [ranks.excused_s] if found[0][0] > ranks.excused_s + limits.stall_after_s else []
        outcome.late_s = found[0][0] - max([began_s, *excused]) - limits.stall_after_s


async def _steady(ranks: Ranks, clock: LoopClock) -> None:
    """Wait until each rank's limit is the one between steps."""
    async with asyncio.timeout(STEADY_S_MAX):
        while not ranks.is_steady:
            await clock.sleep(0.05)
