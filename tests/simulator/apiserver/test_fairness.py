"""Priority and fairness: seats, queues, rejections."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from types import MappingProxyType

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.simulator.apiserver.apf import PriorityAndFairness, PriorityLevel
from inplace.simulator.apiserver.route import Route
from inplace.simulator.apiserver.status import StatusError

pytestmark = pytest.mark.asyncio

ROUTE = Route("patch", "", "v1", "pods", "ns", "p", "", MappingProxyType({}))


async def _herd(level: PriorityLevel, users: list[str]) -> tuple[Counter[str], int]:
    """Send one request per user at once; return outcomes by user and the greatest number that ran together."""
    fairness = PriorityAndFairness((level,), LoopClock(), Random(1))
    running = peak = 0
    outcomes: Counter[str] = Counter()

    async def one(user: str) -> None:
        nonlocal running, peak
        try:
            async with fairness.seat(user, ROUTE):
                running += 1
                peak = max(peak, running)
                await asyncio.sleep(0)
                running -= 1
                outcomes[f"{user} ok"] += 1
        except StatusError as error:
            outcomes[f"{user} rejected" if (error.code, error.retry_after_s) == (429, 1) else str(error)] += 1

    await asyncio.gather(*(one(user) for user in users))
    return outcomes, peak


async def test_one_flow_fills_its_hand_of_queues() -> None:
    """A flow gets seats plus hand_size x queue_length requests in; the rest are 429s with a Retry-After."""
    level = PriorityLevel("l", seats=4, queues=8, hand_size=2, queue_length=5)
    outcomes, peak = await _herd(level, ["agent"] * 20)
    assert outcomes == {"agent ok": 14, "agent rejected": 6}
    assert peak == 4


async def test_no_queues_rejects_at_once() -> None:
    """A level without queues admits its seats and nothing else."""
    outcomes, _ = await _herd(PriorityLevel("l", seats=3, queues=0), ["agent"] * 5)
    assert outcomes == {"agent ok": 3, "agent rejected": 2}


async def test_another_flow_is_not_starved() -> None:
    """A small flow finds a queue although a herd has filled its own."""
    level = PriorityLevel("l", seats=1, queues=64, hand_size=2, queue_length=5)
    outcomes, _ = await _herd(level, ["herd"] * 50 + ["other"] * 3)
    assert outcomes["other ok"] == 3
    assert outcomes["herd rejected"] == 50 - 11


async def test_seats_are_given_back() -> None:
    """After a herd every seat is free again."""
    level = PriorityLevel("l", seats=2, queues=4, hand_size=1, queue_length=50)
    fairness = PriorityAndFairness((level,), LoopClock(), Random(1))

    async def one() -> None:
        async with fairness.seat("u", ROUTE):
            await asyncio.sleep(0)

    for _ in range(3):
        await asyncio.gather(*(one() for _ in range(10)))
    async with asyncio.timeout(1), fairness.seat("u", ROUTE), fairness.seat("u", ROUTE):
        pass


async def test_cancelled_waiter_frees_its_place() -> None:
    """A client that gives up while queued neither holds a place nor loses a seat."""
    level = PriorityLevel("l", seats=1, queues=1, hand_size=1, queue_length=1)
    fairness = PriorityAndFairness((level,), LoopClock(), Random(1))

    async def waiter() -> None:
        async with fairness.seat("u", ROUTE):
            pass

    async with fairness.seat("u", ROUTE):
        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await task


async def test_requests_that_no_level_matches_are_exempt() -> None:
    """A request outside every level's rules runs at once."""
    level = PriorityLevel("l", seats=0, queues=0, matches=lambda user, route: user == "agent")
    outcomes, _ = await _herd(level, ["admin"] * 3 + ["agent"])
    assert outcomes == {"admin ok": 3, "agent rejected": 1}
