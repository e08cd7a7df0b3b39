"""What ranks of a real worker say of their steps is told with one PATCH, and what others tell is obeyed."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.common.wire.names import NOTICE
from inplace.common.wire.notice import BUSY, LOSS, SLOW, Notice, parse_notice
from tests.agent.progress.test_watchdog import STALL_S, STEPS, failures, watched
from tests.agent.scripted_server import ScriptedServer
from tests.agent.supervisor_rig import Supervised, until

pytestmark = pytest.mark.asyncio

SICK = """
import inplace
note('main')
step = 0
while True:
    step += 1
    slow = step > 160
    time.sleep(0.03 if slow else 0.005)
    inplace.progress(step, loss=float('nan') if step >= 50 else 0.5, waited_s=0.0)
"""
SAVES = """
import inplace
note('main')
for step in range(10):
    inplace.progress(step)
    time.sleep(0.05)
with inplace.busy("checkpoint", up_to_s=30):
    time.sleep(3)
"""
WAITS = """
import inplace
note('main')
for step in range(10):
    inplace.progress(step)
    time.sleep(0.05)
time.sleep(4)  # for a rank of another Pod, which saves
"""


def notices(server: ScriptedServer) -> list[Notice]:
    """Return what was told, in order."""
    return [parse_notice(text) for text in server.told(NOTICE)]


async def told(group: Supervised, count: int = 1) -> list[Notice]:
    """Wait until so many notices were told."""
    await group.server.until(lambda: len(notices(group.server)) >= count)
    return notices(group.server)


async def test_bad_numbers_are_told_and_nothing_ends(tmp_path: Path) -> None:
    """A loss that is no number, then steps that got slower: each once, from a script that goes on."""
    async with watched(tmp_path, SICK, RANK="17", STALL_AFTER_S="10") as group:
        loss, slow = sorted(await told(group, 2), key=lambda notice: notice.kind)
        assert (loss.epoch, loss.kind, loss.rank, loss.step) == (1, LOSS, "rank-17", 50)
        assert (slow.epoch, slow.kind, slow.rank) == (1, SLOW, "rank-17")
        assert slow.value > 200
        assert failures(group.server) == []
        assert group.child.returncode is None


@pytest.mark.slow
async def test_a_rank_that_is_busy_for_long_is_told_of(tmp_path: Path) -> None:
    """At half of the limit, and again while it lasts."""
    async with watched(tmp_path, SAVES, RANK="0") as group:
        first, second = (await told(group, 2))[:2]
        assert (first.kind, first.value, first.rank, first.step) == (BUSY, round(STALL_S), "rank-0", 9)
        assert second.at_s - first.at_s <= STALL_S
        assert await group.finished() == 0
        assert failures(group.server) == []


@pytest.mark.slow
async def test_a_rank_that_waits_for_a_busy_one_of_another_pod_is_no_stall(tmp_path: Path) -> None:
    """Its own steps have stopped for four times the limit."""
    async with watched(tmp_path, WAITS, RANK="1") as group:
        busy = {"kind": BUSY, "epoch": 1, "pod": "train-w-0-1", "value": 30, "rank": "rank-0", "at": "1"}
        group.notices = [busy]
        group.show(1, 0)
        assert await group.finished() == 0
        assert failures(group.server) == []
        assert group.logged("worker_stalled") == []


async def test_healthy_steps_cost_no_request(tmp_path: Path) -> None:
    """One PATCH announces; that is all of a worker that trains."""
    async with watched(tmp_path, STEPS, RANK="0") as group:
        await until((tmp_path / "progress" / ".rank-0.numbers").exists, "numbers")
        assert len(group.server.requests("PATCH")) == 1
