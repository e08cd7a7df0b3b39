"""The barrier over HTTP: closed, lifted, and unharmed by garbage."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from inplace.agent.barrier import http as barrier_module
from inplace.agent.barrier.http import BarrierState, HttpBarrier
from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.start.shell import BarrierError, listen
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from tests.agent.rig import CONFIG, ShortClock

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def listening(address: str = "127.0.0.1", port: int = 0, **config: object) -> AsyncIterator[HttpBarrier]:
    """Run a barrier on a port the system chooses."""
    metrics = AgentMetrics()
    metrics.epoch = 3
    barrier = HttpBarrier(
        replace(CONFIG, **config),
        listener=listen(address, port),
        clock=LoopClock(),
        render_metrics=lambda accept: render(metrics, accept),
    )
    await barrier.start()
    try:
        yield barrier
    finally:
        await barrier.stop()


async def ask(barrier: HttpBarrier, request: bytes, address: str = "127.0.0.1") -> tuple[int, bytes]:
    """Send raw bytes; return status and body, status 0 when the connection closed without an answer."""
    reader, writer = await asyncio.open_connection(address, barrier.port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.transport.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, body


def get(path: str) -> bytes:
    """Return a probe's request."""
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


async def test_it_is_closed_until_lifted_and_open_from_then_on() -> None:
    """The barrier answers 503 before the lift and 200 after it, on the seed's path and on upstream's."""
    async with listening() as barrier:
        for path in ("/barrier-is-lifted", "/barrier-is-down"):
            assert (await ask(barrier, get(path)))[0] == 503
        barrier.lift(1)
        for path in ("/barrier-is-lifted", "/barrier-is-down", "/barrier-is-down?x=1"):
            assert (await ask(barrier, get(path)))[0] == 200


async def test_a_configured_path_is_answered_too() -> None:
    """BARRIER_PATH adds a path; another path gets 404 with the list of paths."""
    async with listening(barrier_path="/go") as barrier:
        assert (await ask(barrier, get("/go")))[0] == 503
        status, body = await ask(barrier, get("/stop"))
        assert status == 404
        assert b"/go" in body


async def test_it_says_what_it_waits_for() -> None:
    """The 503 carries phase, epochs, since when, and the last problem."""
    async with listening() as barrier:
        barrier.report(BarrierState("waiting", 3, 2, 1, LoopClock().monotonic_s() - 5, "watch jobsets: forbidden"))
        _, body = await ask(barrier, get("/barrier-is-lifted"))
        state = json.loads(body)
        assert 5 <= state.pop("for_s") < 60
        assert state == {
            "lifted": False,
            "phase": "waiting",
            "epoch": 3,
            "synced": 2,
            "deprecated": 1,
            "problem": "watch jobsets: forbidden",
        }


async def test_a_spare_is_ready_and_starts_nothing() -> None:
    """While its group runs; a startup probe, which asks without the query, holds its worker back."""
    async with listening() as barrier:
        barrier.runs = lambda: False
        for is_spare, status in ((True, 200), (False, 503)):
            barrier.report(BarrierState("waiting", 3, 2, 1, 0.0, None, spare=is_spare))
            answered, body = await ask(barrier, get("/barrier-is-lifted?worker"))
            assert (answered, json.loads(body).get("spare", False)) == (status, is_spare)
            assert (await ask(barrier, get("/barrier-is-lifted")))[0] == 503
        barrier.report(BarrierState("lifted", 3, 3, 2, 0.0, None, rank=4))
        assert json.loads((await ask(barrier, get("/barrier-is-lifted")))[1])["rank"] == 4


async def test_metrics_and_health_are_served() -> None:
    """/metrics speaks Prometheus' text format, /healthz says that the process answers."""
    async with listening() as barrier:
        status, body = await ask(barrier, get("/metrics"))
        assert status == 200
        assert b"inplace_agent_epoch 3.0" in body
        openmetrics = b"GET /metrics HTTP/1.1\r\nACCEPT: application/openmetrics-text; version=1.0.0\r\n\r\n"
        assert (await ask(barrier, openmetrics))[1].endswith(b"# EOF\n")
        assert (await ask(barrier, get("/healthz"))) == (200, b'{"ok":true}')


async def test_a_scrape_does_not_delay_the_start() -> None:
    """Until the metrics are loaded a scrape gets 503 with Retry-After, and it loads no module."""
    barrier = HttpBarrier(CONFIG, listener=listen("127.0.0.1", 0), clock=LoopClock(), render_metrics=lambda _: None)
    await barrier.start()
    assert (await ask(barrier, get("/metrics")))[0] == 503
    await barrier.stop()


async def test_head_has_no_body_and_other_methods_are_refused() -> None:
    """HEAD answers like GET without the body; other methods are refused."""
    async with listening() as barrier:
        assert await ask(barrier, b"HEAD /barrier-is-lifted HTTP/1.1\r\n\r\n") == (503, b"")
        assert (await ask(barrier, b"POST /barrier-is-lifted HTTP/1.1\r\n\r\n"))[0] == 405


@pytest.mark.parametrize(
    ("garbage", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"\x16\x03\x01 TLS?\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"\xff\xff \xff \xff\r\n\r\n", 400),
        pytest.param(b"GET /" + b"a" * 10 * barrier_module.REQUEST_BYTES_MAX, 0, id="beyond the bound"),
    ],
)
async def test_garbage_is_survived(garbage: bytes, status: int) -> None:
    """A malformed request gets 400, one beyond the bound no answer, and the next probe gets its own."""
    async with listening() as barrier:
        assert (await ask(barrier, garbage))[0] == status
        assert (await ask(barrier, get("/barrier-is-lifted")))[0] == 503


async def test_a_slow_request_is_dropped() -> None:
    """A peer that does not end its request is cut off after the bound."""
    barrier = HttpBarrier(CONFIG, listener=listen("127.0.0.1", 0), clock=ShortClock(), render_metrics=lambda _: None)
    await barrier.start()
    assert (await ask(barrier, b"GET /healthz HTT"))[0] == 0
    await barrier.stop()


HOLD = b"GET /barrier-is-lifted HTTP/1.1\r\nPrefer: wait=600\r\n\r\n"


@asynccontextmanager
async def held_from(source: str, barrier: HttpBarrier, count: int = 1) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open connections from an address of its own, each of which asks for an answer in ten minutes."""
    held = []
    for _ in range(count):
        held.append(await asyncio.open_connection("127.0.0.1", barrier.port, local_addr=(source, 0)))
        held[-1][1].write(HOLD)
    try:
        yield [reader for reader, _ in held]
    finally:
        for _, writer in held:
            writer.transport.abort()


async def probe_from(source: str, barrier: HttpBarrier) -> bytes:
    """Return the first line of the answer to a probe from `source`, b"" when there was none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", barrier.port, local_addr=(source, 0))
    writer.write(get("/barrier-is-lifted"))
    try:
        return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("sources", [1, 4, 2 * barrier_module.PEER_SEATS])
async def test_holders_keep_neither_kubelet_nor_the_pod_s_own_processes_out(sources: int) -> None:
    """While other Pods hold connections open, 20 of 20 probes are answered, and so is an older one of the Pod."""
    each = 2 * barrier_module.PEER_SEATS // sources
    async with asyncio.timeout(20), AsyncExitStack() as peers:
        barrier = await peers.enter_async_context(listening())
        [waiting] = await peers.enter_async_context(held_from("127.0.0.1", barrier))
        for number in range(sources):
            await peers.enter_async_context(held_from(f"127.0.1.{1 + number}", barrier, each))
        answers = {await probe_from("127.0.0.9", barrier) for _ in range(20)}
        assert answers == {b"HTTP/1.1 503 Service Unavailable\r\n"}
        assert len(barrier._exchanges) <= barrier_module.PEER_SEATS + 2  # the Pod's own, and one that closes
        barrier.lift(1)
        assert await waiting.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_source_beyond_its_seats_loses_its_oldest_connection() -> None:
    """A Pod above its bound of connections loses its oldest one; another Pod's stay open."""
    most = barrier_module.PEER_SEATS_PER_SOURCE
    async with (
        asyncio.timeout(20),
        listening() as barrier,
        held_from("127.0.1.1", barrier) as other,
        held_from("127.0.1.2", barrier, most + 1) as flood,
    ):
        with suppress(ConnectionResetError):
            assert await flood[0].read() == b""
        barrier.lift(1)
        for reader in (*other, *flood[1:]):
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_the_pods_own_connections_have_a_bound_too() -> None:
    """Above the bound the Pod's own oldest connection is closed; its client asks again."""
    most = barrier_module.LOCAL_SEATS
    async with asyncio.timeout(20), listening() as barrier, held_from("127.0.0.1", barrier, most + 1) as held:
        with suppress(ConnectionResetError):
            assert await held[0].read() == b""
        await until(lambda: len(barrier._exchanges) == most)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, at most 5 s."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the state is in memory
            await asyncio.sleep(0)


async def test_a_port_in_use_is_an_error_that_names_it() -> None:
    """Another listener on the port is refused with address and port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BarrierError, match=f"127.0.0.1 port {port}: .*in use"):
            async with listening(port=port):
                pass


async def test_every_address_is_the_default() -> None:
    """Without BARRIER_ADDRESS both families are answered where the system has both."""
    async with listening(address="") as barrier:
        assert (await ask(barrier, get("/healthz")))[0] == 200
        if socket.has_dualstack_ipv6():
            assert (await ask(barrier, get("/healthz"), address="::1"))[0] == 200


async def test_stop_cuts_open_exchanges_and_may_be_repeated() -> None:
    """Stopping leaves no task and no socket behind, and the loop reports no error."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with listening() as barrier:
        reader, writer = await asyncio.open_connection("127.0.0.1", barrier.port)
        writer.write(b"GET ")
        await until(lambda: bool(barrier._exchanges))
        await barrier.stop()
        assert not barrier._exchanges
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
    await asyncio.sleep(0)
    assert complaints == []


async def test_who_prefers_to_wait_is_answered_at_the_lift() -> None:
    """A request that prefers to wait gets its answer at the lift, without a refusal before it."""
    async with listening() as barrier:
        request = b"GET /barrier-is-lifted HTTP/1.1\r\nhost: x\r\nPrefer: respond-async, wait=60\r\n\r\n"
        held = asyncio.create_task(ask(barrier, request))
        assert (await ask(barrier, get("/barrier-is-lifted")))[0] == 503
        assert not held.done()
        barrier.lift(1)
        async with asyncio.timeout(5):
            assert (await held)[0] == 200


async def test_a_readiness_probe_is_answered_when_its_pod_becomes_a_spare() -> None:
    """And a startup probe, which lets a worker start, is not."""
    async with listening() as barrier:
        barrier.runs = lambda: False
        async with asyncio.timeout(10):
            ready = asyncio.create_task(ask(barrier, held("/barrier-is-lifted?worker", 60)))
            started = asyncio.create_task(ask(barrier, held("/barrier-is-lifted", 1)))
            assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 503
            assert not ready.done()
            barrier.report(BarrierState("waiting", 3, 2, 1, 0.0, None, spare=True))
            assert (await ready)[0] == 200
            assert (await started)[0] == 503


@pytest.mark.parametrize("preference", ["wait=0", "wait=-1", "wait=soon", "handling=lenient"])
async def test_a_preference_that_names_no_time_holds_nothing(preference: str) -> None:
    """Any other preference is ignored, as RFC 7240 requires."""
    async with listening() as barrier, asyncio.timeout(5):
        request = f"GET /barrier-is-lifted HTTP/1.1\r\nPrefer: {preference}\r\n\r\n".encode()
        assert (await ask(barrier, request))[0] == 503


async def test_an_answer_is_held_no_longer_than_preferred() -> None:
    """After the preferred time the usual 503 is sent; only requests for the barrier's paths are held."""
    async with listening() as barrier, asyncio.timeout(5):
        status, body = await ask(barrier, b"GET /barrier-is-lifted HTTP/1.1\r\nPrefer: wait=1\r\n\r\n")
        assert (status, json.loads(body)["lifted"]) == (503, False)
        assert (await ask(barrier, b"GET /healthz HTTP/1.1\r\nPrefer: wait=60\r\n\r\n"))[0] == 200


async def test_who_hangs_up_is_held_no_longer() -> None:
    """A prober that closes its connection before the preferred time leaves no exchange behind."""
    async with listening() as barrier:
        for _ in range(2 * barrier_module.LOCAL_SEATS):
            _, writer = await asyncio.open_connection("127.0.0.1", barrier.port)
            writer.write(b"GET /barrier-is-lifted HTTP/1.1\r\nPrefer: wait=60\r\n\r\n")
            await writer.drain()
            writer.transport.abort()
        async with asyncio.timeout(5):
            status = 0
            while status != 503:
                status, _ = await ask(barrier, get("/barrier-is-lifted"))


async def test_a_readiness_probe_waits_for_the_worker() -> None:
    """With the query it is answered when a guard's worker runs, and refused once that ends; a startup probe is not."""
    runs = [False]
    async with listening() as barrier:
        barrier.runs = lambda: runs[0]
        asked = asyncio.create_task(ask(barrier, held("/barrier-is-lifted?worker", 5)))
        barrier.lift(1)
        assert (await ask(barrier, get("/barrier-is-lifted")))[0] == 200
        assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 503
        assert not asked.done()
        runs[0] = True
        assert (await asked)[0] == 200
        assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 200
        runs[0] = False
        assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 503


async def test_a_readiness_probe_where_nobody_tells_of_workers() -> None:
    """Without guards, and with in-place restart off, the lift is enough."""
    async with listening() as barrier:
        barrier.lift(1)
        assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 200
        barrier.runs = lambda: False
        barrier.lift(None)
        assert (await ask(barrier, get("/barrier-is-lifted?worker")))[0] == 200


def held(path: str, seconds: int) -> bytes:
    """Return the request of a probe that prefers to wait."""
    return f"GET {path} HTTP/1.1\r\nhost: x\r\nprefer: wait={seconds}\r\n\r\n".encode()
