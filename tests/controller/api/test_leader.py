"""Two candidates and one Lease: leaders never overlap, whatever happens to requests and clocks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

import pytest
import structlog

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response, Stream, TransportError
from inplace.common.kube.resources import CONFIG_MAPS, LEASES
from inplace.controller.api.leader import (
    DURATION_S,
    RENEW_DEADLINE_S,
    RETRY_S,
    Elector,
    LeaderOnlyTransport,
    LeadershipLostError,
    NotLeaderError,
)
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from tests.controller.background import background

pytestmark = pytest.mark.virtual_time

LEASE = ("default", "inplace-controller")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


class FaultyTransport:
    """Loses replies, loses requests or hangs, for writes and reads alike."""

    def __init__(self, server: ApiServer, clock: LoopClock) -> None:
        self._inner = InMemoryTransport(server)
        self._clock = clock
        self.mode = ""
        self.timeouts: list[float] = []

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request, lose it, lose its reply, or hang."""
        self.timeouts.append(timeout_s)
        match self.mode:
            case "refuse":
                raise TransportError("connection refused", sent=False)
            case "lose reply" if request.method != "GET":
                await self._inner.request(request, timeout_s=timeout_s)
                raise TransportError("connection reset")
            case "hang":
                await self._clock.sleep(1e6)
        return await self._inner.request(request, timeout_s=timeout_s)

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Open a stream."""
        return self._inner.stream(request, timeout_s=timeout_s)


class JumpingClock(LoopClock):
    """A clock whose monotonic time jumps forward, as after the machine slept, and whose wall time jumps anywhere."""

    def __init__(self) -> None:
        super().__init__(1_700_000_000.0)
        self.jump_s = 0.0
        self.wall_jump_s = 0.0

    def monotonic_s(self) -> float:
        """Return the loop's time plus the jump."""
        return super().monotonic_s() + self.jump_s

    def wall_s(self) -> float:
        """Return wall time plus its jump."""
        return super().wall_s() + self.wall_jump_s


class Candidate:
    """One process: acquires, holds until lost, and again."""

    def __init__(self, server: ApiServer, identity: str, clock: LoopClock | None = None) -> None:
        self.clock = clock or LoopClock(1_700_000_000.0)
        self.transport = FaultyTransport(server, self.clock)
        self.client = KubeClient(self.transport, user_agent=identity, field_manager=identity)
        self.elector = Elector(
            self.client, identity, *LEASE, clock=self.clock, rng=Random(hash(identity)), log=structlog.get_logger()
        )
        self.lost: list[str] = []

    async def live(self) -> None:
        """Acquire and hold for ever."""
        while True:
            await self.elector.acquire()
            try:
                await self.elector.hold()
            except LeadershipLostError as error:
                self.lost.append(str(error))


Pair = tuple[Candidate, Candidate]


def make_server() -> ApiServer:
    """Return a server."""
    server = ApiServer(clock=LoopClock(1_700_000_000.0), rng=Random(1))
    server.load([])
    return server


async def watch_for_overlap(candidates: list[Candidate], seconds: float) -> float:
    """Let time pass; return the seconds without a leader.

    Raises:
        AssertionError: two led at once.
    """
    nobody = 0.0
    for _ in range(round(seconds * 10)):
        leaders = [candidate for candidate in candidates if candidate.elector.is_leader]
        assert len(leaders) <= 1
        nobody += 0.1 * (not leaders)
        await asyncio.sleep(0.1)
    return nobody


@asynccontextmanager
async def living(clock: LoopClock | None = None) -> AsyncIterator[Pair]:
    """Run two candidates; `a`, which may have another clock, leads first."""
    server = make_server()
    a, b = Candidate(server, "a", clock), Candidate(server, "b")
    async with background(a.live()):
        await asyncio.sleep(1.0)
        async with background(b.live()):
            await asyncio.sleep(5.0)
            assert a.elector.is_leader
            yield a, b


@pytest.fixture
def pair() -> AbstractAsyncContextManager[Pair]:
    """Return two living candidates, the first of which leads."""
    return living()


async def test_a_leader_that_renews_leads_for_ever(pair: Pair) -> None:
    """A leader that renews keeps the Lease."""
    a, b = pair
    assert await watch_for_overlap([a, b], 300.0) == 0.0
    assert a.elector.is_leader


@pytest.mark.parametrize("mode", ["refuse", "hang", "lose reply"])
async def test_a_leader_that_cannot_renew_stops_before_anybody_takes_over(pair: Pair, mode: str) -> None:
    """It stops 10 s after it sent its last good renewal; the other waits 15 s from the renewal it saw."""
    a, b = pair
    a.transport.mode = mode
    nobody = await watch_for_overlap([a, b], 60.0)
    assert b.elector.is_leader
    assert 3.0 < nobody < 20.0
    assert a.lost


async def test_every_request_is_bounded_below_the_renew_deadline(pair: Pair) -> None:
    """A leader with a request that hangs for ever stops leading in time."""
    a, _ = pair
    a.transport.mode = "hang"
    await asyncio.sleep(10.1)
    assert not a.elector.is_leader
    assert max(a.transport.timeouts) <= 30.0


async def test_a_lost_reply_is_made_good_by_looking(pair: Pair) -> None:
    """A renewal that was stored although its reply was lost costs one read, not the leadership."""
    a, b = pair
    a.transport.mode = "lose reply"
    await asyncio.sleep(3.0)
    a.transport.mode = ""
    assert await watch_for_overlap([a, b], 60.0) == 0.0
    assert a.elector.is_leader
    assert a.lost == []


async def test_a_released_lease_is_taken_at_the_next_look() -> None:
    """A released Lease is taken at the next look, without the wait of 15 seconds."""
    server = make_server()
    a, b = Candidate(server, "a"), Candidate(server, "b")
    await a.elector.acquire()
    await a.elector.release()
    assert not a.elector.is_leader
    started_s = a.clock.monotonic_s()
    await b.elector.acquire()
    assert a.clock.monotonic_s() - started_s < 3.0


@pytest.mark.parametrize(
    ("change", "holder"),
    [({"renewTime": "2026-01-01T00:00:00.000000Z"}, ""), ({"holderIdentity": "b"}, "b")],
    ids=["a renewal of its own, stored unseen", "another candidate's"],
)
async def test_a_lease_that_changed_is_released_if_it_is_still_its_own(change: dict[str, str], holder: str) -> None:
    """When a shutdown interrupts a renewal, the successor need not wait 15 seconds; another's Lease is left alone."""
    server = make_server()
    a, b = Candidate(server, "a"), Candidate(server, "b")
    await a.elector.acquire()
    stored = await b.client.get(LEASES, *LEASE)
    await b.client.replace(LEASES, *LEASE, stored | {"spec": stored["spec"] | change})
    await a.elector.release()
    assert (await b.client.get(LEASES, *LEASE))["spec"]["holderIdentity"] == holder


async def test_wall_clocks_do_not_matter() -> None:
    """A leader whose wall clock jumps by a year keeps leading, and nobody takes over."""
    clock = JumpingClock()
    async with living(clock) as (a, b):
        for jump in (-3.15e7, 3.15e7):
            clock.wall_jump_s = jump
            assert await watch_for_overlap([a, b], 60.0) == 0.0
        assert a.elector.is_leader


async def test_a_process_that_slept_does_not_write_before_it_knows() -> None:
    """When time has jumped past the deadline, the process refuses its own next write."""
    clock = JumpingClock()
    a = Candidate(make_server(), "a", clock)
    await a.elector.acquire()
    fenced = KubeClient(LeaderOnlyTransport(a.transport, a.elector), user_agent="a", field_manager="a")
    await fenced.create(CONFIG_MAPS, "default", CONFIG_MAP)
    clock.jump_s = 11.0
    sent = len(a.transport.timeouts)
    with pytest.raises(NotLeaderError):
        await fenced.delete(CONFIG_MAPS, "default", "a")
    assert len(a.transport.timeouts) == sent
    await fenced.get(CONFIG_MAPS, "default", "a")


async def test_a_write_may_not_outlive_the_leadership() -> None:
    """A write's timeout is the remaining time of the leadership."""
    a = Candidate(make_server(), "a")
    await a.elector.acquire()
    await asyncio.sleep(7.0)
    fenced = KubeClient(LeaderOnlyTransport(a.transport, a.elector), user_agent="a", field_manager="a")
    await fenced.create(CONFIG_MAPS, "default", CONFIG_MAP)
    assert a.transport.timeouts[-1] == pytest.approx(3.0)


async def test_a_lease_deleted_by_hand_is_made_again(pair: Pair) -> None:
    """After the Lease is deleted by hand the leader notices at its next renewal, and one candidate leads again."""
    a, b = pair
    await a.client.delete(LEASES, "default", "inplace-controller")
    await watch_for_overlap([a, b], 60.0)
    assert a.elector.is_leader or b.elector.is_leader


async def test_two_that_start_together_agree() -> None:
    """Of two candidates that find no Lease, the one whose creation succeeds leads."""
    server = make_server()
    candidates = [Candidate(server, identity) for identity in "abcde"]
    async with background(*(candidate.live() for candidate in candidates)):
        await watch_for_overlap(candidates, 60.0)
        assert sum(candidate.elector.is_leader for candidate in candidates) == 1


def test_a_leader_stops_before_another_may_begin() -> None:
    """And it tries to renew before it has to stop."""
    assert RETRY_S < RENEW_DEADLINE_S < DURATION_S
