"""Writes adapt to the server's speed, slow down when it is overloaded, and are never dropped."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from random import Random

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response, Stream, TransportError
from inplace.common.kube.resources import JOBS, JOBSETS
from inplace.controller.api.pace import WRITES_MAX, PacedTransport, is_status_write
from tests.common.kube.answers import refusal

pytestmark = pytest.mark.virtual_time

CREATE = Request("POST", JOBS.path("default"))
STATUS = Request("PATCH", JOBSETS.path("default", "train", subresource="status", query={"fieldManager": "x"}))
READ = Request("GET", JOBS.path("default"))
ANSWER_S = 0.01
OK = Response(201, {}, b"{}")


class Server:
    """Answers after ANSWER_S; records each request's time and how many were open at once."""

    def __init__(self, answer: Callable[[Request], Response] = lambda _: OK) -> None:
        self.answer = answer
        self.came: list[tuple[str, float]] = []
        self.most = 0
        self._now = 0

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer one request."""
        self.came.append((request.method, asyncio.get_running_loop().time()))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            answer = self.answer(request)
            await asyncio.sleep(ANSWER_S)
            return answer
        finally:
            self._now -= 1

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Refuse: no test streams."""
        raise NotImplementedError


def paced(server: Server) -> PacedTransport:
    """Return a transport to `server`."""
    return PacedTransport(server, clock=LoopClock(), rng=Random(1))


async def send(transport: PacedTransport, request: Request, times: int) -> list[Response]:
    """Send the same request many times at once."""
    return await asyncio.gather(*(transport.request(request, timeout_s=1.0) for _ in range(times)))


async def test_writes_in_flight_are_bounded_and_status_writes_do_not_wait_for_them() -> None:
    """At most WRITES_MAX ordinary writes at once, in order; a status write and a read go at once beside them."""
    server = Server()
    transport = paced(server)
    creating = asyncio.create_task(send(transport, CREATE, WRITES_MAX * 3))
    await asyncio.sleep(0)
    await asyncio.gather(send(transport, STATUS, 1), send(transport, READ, 1))
    assert asyncio.get_running_loop().time() == pytest.approx(ANSWER_S)
    assert len(await creating) == WRITES_MAX * 3
    assert server.most == WRITES_MAX + 2
    assert asyncio.get_running_loop().time() == pytest.approx(3 * ANSWER_S)


async def test_a_large_write_takes_the_places_of_many() -> None:
    """Writes of a megabyte go one at a time, of 32 kB half as many at once; a status write does not wait.

    A Job of 1 MB costs an API server a second of CPU time: four at once starved everybody else's requests.
    """
    server = Server()
    transport = paced(server)
    large = Request("POST", JOBS.path("default"), body=b"x" * 1_000_000)
    writing = asyncio.create_task(send(transport, large, 3))
    await asyncio.sleep(0)
    small = asyncio.create_task(send(transport, CREATE, 1))
    await send(transport, STATUS, 1)
    assert asyncio.get_running_loop().time() == pytest.approx(ANSWER_S)
    await asyncio.gather(writing, small)
    assert asyncio.get_running_loop().time() == pytest.approx(4 * ANSWER_S)
    assert server.most == 2
    server.most = 0
    await send(transport, Request("POST", JOBS.path("default"), body=b"x" * 32_000), WRITES_MAX)
    assert server.most == WRITES_MAX // 2


def create_in(namespace: str, size: int = 0) -> Request:
    """Return the creation of a Job."""
    return Request("POST", JOBS.path(namespace), body=b"x" * size)


async def write(transport: PacedTransport, request: Request) -> float:
    """Send a write; return when it was answered."""
    await transport.request(request, timeout_s=1.0)
    return asyncio.get_running_loop().time()


@pytest.mark.attack
async def test_a_write_of_another_namespace_waits_for_one_place_and_not_for_a_flood() -> None:
    """While 2,000 writes of a namespace wait, one of another goes as soon as any write was answered."""
    transport = paced(Server())
    flood = [asyncio.create_task(write(transport, create_in("flood"))) for _ in range(2_000)]
    await asyncio.sleep(ANSWER_S / 2)
    others = [asyncio.create_task(write(transport, create_in(namespace))) for namespace in ("team", "other", "team")]
    assert await asyncio.gather(*others) == [pytest.approx(2 * ANSWER_S)] * 3
    assert max(await asyncio.gather(*flood)) == pytest.approx(-(-2_003 // WRITES_MAX) * ANSWER_S)


async def test_the_writes_of_one_place_need_no_other() -> None:
    """In a window of one, a task that holds the place writes twice, one after the other; another task waits."""
    server = Server(lambda _: refusal(500, "InternalError"))
    transport = paced(server)
    while transport.window > 1:
        await send(transport, CREATE, 1)
    began_s = asyncio.get_running_loop().time()
    async with transport.place("team", 0):
        other = asyncio.create_task(write(transport, create_in("team")), context=Context())
        await write(transport, create_in("team"))
        await write(transport, create_in("team"))
    assert await other == pytest.approx(began_s + 3 * ANSWER_S)
    assert server.most == 1


@pytest.mark.attack
async def test_large_writes_of_a_namespace_do_not_take_the_turns_of_small_ones() -> None:
    """After the first of 20 writes of a megabyte all 20 small ones of another namespace go, not one after each."""
    transport = paced(Server())
    large = [asyncio.create_task(write(transport, create_in("flood", 1_000_000))) for _ in range(20)]
    await asyncio.sleep(ANSWER_S / 2)
    small = [asyncio.create_task(write(transport, create_in("team"))) for _ in range(20)]
    assert max(await asyncio.gather(*small)) <= 3.1 * ANSWER_S
    assert max(await asyncio.gather(*large)) == pytest.approx(21 * ANSWER_S)


async def test_a_throttling_server_is_left_alone_for_as_long_as_it_says() -> None:
    """After a 429 no write of any kind is sent before Retry-After is over; reads go on."""
    answers = [Response(429, {"retry-after": "3"}, b"{}")]
    server = Server(lambda request: answers.pop() if answers and request is CREATE else OK)
    transport = paced(server)
    assert (await send(transport, CREATE, 1))[0].status == 429
    await asyncio.gather(send(transport, CREATE, 5), send(transport, STATUS, 1), send(transport, READ, 1))
    (_, first_s), *others = server.came
    assert [at_s for method, at_s in others if method == "GET"] == [pytest.approx(ANSWER_S)]
    writes_s = [at_s for method, at_s in others if method != "GET"]
    assert len(writes_s) == 6
    assert min(writes_s) >= first_s + ANSWER_S + 3.0


async def test_the_window_halves_once_for_what_was_refused_together_and_grows_again() -> None:
    """48 refusals at one moment halve the window once; each windowful of successes gives one place back."""
    server = Server(lambda _: refusal(503, "ServiceUnavailable"))
    transport = paced(server)
    await send(transport, CREATE, WRITES_MAX)
    assert transport.window == WRITES_MAX // 2
    await send(transport, CREATE, 1)
    assert transport.window == WRITES_MAX // 4
    server.answer = lambda _: OK
    server.most = 0
    await send(transport, CREATE, WRITES_MAX // 4)
    assert server.most == WRITES_MAX // 4
    await send(transport, CREATE, 1)
    assert transport.window == WRITES_MAX // 4 + 1
    for _ in range(60):
        await send(transport, CREATE, WRITES_MAX)
    assert transport.window == WRITES_MAX


async def test_pauses_grow_while_the_server_is_overloaded_and_the_window_never_closes() -> None:
    """To a server that answers 503 for long, single writes go ever more rarely, until it is back."""
    server = Server(lambda _: refusal(503, "ServiceUnavailable"))
    transport = paced(server)

    async def insist() -> None:
        while (await send(transport, CREATE, 1))[0].status != 201:
            pass

    tasks = [asyncio.create_task(insist()) for _ in range(100)]
    await asyncio.sleep(120.0)
    assert transport.window == 1
    tries = sum(at_s > 60.0 for _, at_s in server.came)
    assert 10 <= tries <= 60  # the requests in 60 s of 100 writers that retry at once
    server.answer = lambda _: OK
    await asyncio.gather(*tasks)


async def test_an_error_about_one_object_slows_down_and_does_not_stop() -> None:
    """A 500 (a webhook that fails) halves the window and makes no pause."""
    answers = [refusal(500, "InternalError")]
    server = Server(lambda _: answers.pop() if answers else OK)
    transport = paced(server)
    await send(transport, CREATE, 2)
    assert transport.window == WRITES_MAX // 2
    await send(transport, CREATE, 1)
    assert asyncio.get_running_loop().time() == pytest.approx(2 * ANSWER_S)


async def test_a_cancelled_write_gives_its_place_back() -> None:
    """A cancelled write gives its place back: while it waited, just after it got it, and while it was sent."""
    server = Server()
    transport = paced(server)
    tasks = [asyncio.create_task(transport.request(CREATE, timeout_s=1.0)) for _ in range(WRITES_MAX * 2 + 10)]
    await asyncio.sleep(ANSWER_S / 2)
    for task in tasks[:20] + tasks[WRITES_MAX : WRITES_MAX + 30]:
        task.cancel()
    await asyncio.sleep(0)
    for task in tasks[WRITES_MAX + 30 : WRITES_MAX + 35]:  # these have just been let in
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.most = 0
    await send(transport, CREATE, WRITES_MAX * 2)
    assert server.most == WRITES_MAX


async def test_a_lost_answer_slows_down() -> None:
    """A write without an answer in time slows down; a write that was never sent does not."""
    errors = [TransportError("unsent", sent=False), TransportError("lost")]

    def answer(_: Request) -> Response:
        raise errors.pop(0)

    transport = paced(Server(answer))
    for window in (WRITES_MAX, WRITES_MAX // 2):
        with pytest.raises(TransportError):
            await transport.request(CREATE, timeout_s=1.0)
        assert transport.window == window


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (STATUS, True),
        (CREATE, False),
        (Request("PATCH", JOBS.path("default", "train", subresource="status")), False),
        (Request("PATCH", JOBSETS.path("default", "status")), False),
    ],
)
def test_status_writes_of_jobsets_are_told_apart(request_: Request, expected: bool) -> None:
    """Status writes are recognised by kind and subresource, also for a JobSet named "status"."""
    assert is_status_write(request_) is expected
