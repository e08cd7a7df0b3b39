"""
A model of API Priority and Fairness: seats, queues, and 429 for a request that fits in neither.

A request of a user is one flow; a flow is hashed to a hand of queues and joins the shortest. Freed seats go round-robin
over the queues. Deliberately simpler than the real one: one seat per request, seats are not lent between levels, no
virtual-time fairness inside a queue.
Source: k8s.io/apiserver/pkg/util/flowcontrol; KEP-1040.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from inplace.common.kube.clock import Clock
from inplace.simulator.apiserver.route import Route
from inplace.simulator.apiserver.status import too_many_requests

QUEUE_WAIT_S = 15.0
"""Longest wait in a queue. Source: a quarter of the 60 s request timeout, config.go."""

RETRY_AFTER_S = 1
"""The first Retry-After of a rejected client, in seconds. Source: dropped_requests_tracker.go."""


def _everything(_user: str, _route: Route) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """One level; a request belongs to the first whose `matches` accepts it.

    Args:
        seats: requests that run at once.
        queues, hand_size, queue_length: 0 queues rejects at once. One flow can wait with hand_size * queue_length
            requests.
        matches: decides by user and route; the flow is the user.
        service_s: seconds for which a request holds its seat.
    """

    name: str
    seats: int
    queues: int = 128
    hand_size: int = 6
    queue_length: int = 50
    matches: Callable[[str, Route], bool] = _everything
    service_s: Callable[[Route], float] = field(default=lambda _: 0.0)


class _Level:
    """The running state of a priority level."""

    def __init__(self, level: PriorityLevel, clock: Clock, rng: Random) -> None:
        self.level = level
        self._clock = clock
        self._rng = rng
        self._running = 0
        self._queues: list[deque[asyncio.Future[None]]] = [deque() for _ in range(level.queues)]
        self._hands: dict[str, list[int]] = {}
        self._next = 0

    async def acquire(self, flow: str) -> None:
        """Take a seat, waiting in a queue if need be; raises 429 when queue and seats are full."""
        if self._running < self.level.seats:
            self._running += 1
            return
        queue = self._shortest_queue(flow)
        if queue is None or len(queue) >= self.level.queue_length:
            raise too_many_requests(RETRY_AFTER_S)
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(seat)
        try:
            async with self._clock.timeout(QUEUE_WAIT_S):
                await seat
        except TimeoutError:
            self._abandon(queue, seat)
            raise too_many_requests(RETRY_AFTER_S) from None
        except asyncio.CancelledError:
            self._abandon(queue, seat)
            raise

    def release(self) -> None:
        """Give the seat to the next queue in turn, or free it."""
        for offset in range(len(self._queues)):
            index = (self._next + offset) % len(self._queues)
            queue = self._queues[index]
            while queue:
                seat = queue.popleft()
                if not seat.done():
                    self._next = index + 1
                    seat.set_result(None)
                    return
        self._running -= 1

    def _abandon(self, queue: deque[asyncio.Future[None]], seat: asyncio.Future[None]) -> None:
        if seat.done() and not seat.cancelled():
            self.release()  # the seat was granted at the moment of the cancellation
        elif seat in queue:
            queue.remove(seat)

    def _shortest_queue(self, flow: str) -> deque[asyncio.Future[None]] | None:
        if not self._queues:
            return None
        hand = self._hands.get(flow)
        if hand is None:
            size = min(self.level.hand_size, len(self._queues))
            hand = self._hands[flow] = self._rng.sample(range(len(self._queues)), size)
        return min((self._queues[index] for index in hand), key=len)


class PriorityAndFairness:
    """Admits requests to the priority levels; with no level everything runs at once."""

    def __init__(self, levels: tuple[PriorityLevel, ...], clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._levels = [_Level(level, clock, rng) for level in levels]

    def __bool__(self) -> bool:
        return bool(self._levels)

    @asynccontextmanager
    async def seat(self, user: str, route: Route) -> AsyncIterator[None]:
        """Hold a seat for the body and for the level's service time."""
        running = next((level for level in self._levels if level.level.matches(user, route)), None)
        if running is None:
            yield
            return
        await running.acquire(user)
        try:
            service_s = running.level.service_s(route)
            if service_s > 0:
                await self._clock.sleep(service_s)
            yield
        finally:
            running.release()
