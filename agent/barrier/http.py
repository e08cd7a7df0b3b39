"""
The barrier: it is closed until the agent lifts it, and answers what it waits for.

Beside guards the query `?worker` asks more: whether a guard has said that its worker of this epoch runs. A readiness
probe asks it, so that a Pod whose guard never starts a worker is not ready. A spare, which waits without a worker while
its group runs, is ready. A startup probe must not ask it: the guard starts after it.

A request with `Prefer: wait=SECONDS` (RFC 7240) is answered at the lift, or after that time. A kubelet that asks once a
second learns of the lift up to a second late, and writes an Event for each refusal.

Every Pod of the cluster may reach the port. Some connections are reserved for the processes of this Pod, and no client
can lock others out (`common.connection_limiter`).

`Barrier` is the seam: `HttpBarrier` answers kubelet's startup probe over HTTP, the simulator's barrier is in memory.
Itself it is the barrier of a worker that only the lift starts.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from inplace.agent.report.log import LazyLog
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.settings.config import AgentConfig
from inplace.common.connection_limiter import ConnectionLimiter
from inplace.common.kube.clock import Clock
from inplace.common.wire.barrier import HEALTH_PATH, METRICS_PATH, OUR_PATH, UPSTREAM_PATH, WORKER_QUERY

REQUEST_BYTES_MAX: Final = 8 * 1024  # kubelet's probe is 150 bytes, a scraper's request some 500
REQUEST_TIMEOUT_S: Final = 5.0  # whole exchange; a probe's own default is 1 s
LOCAL_SEATS: Final = 64  # processes of this Pod; of a Pod in the node's network also the kubelet
PEER_SEATS: Final = 32  # kubelet's probe and a few scrapers; 8 KiB each at most
PEER_SEATS_PER_SOURCE: Final = 8  # a kubelet has one, a scraper two; the source's oldest connection is closed for more
WORKER_LOOK_S: Final = (
    0.05  # between looks at the link while an answer is held; a guard starts its worker in milliseconds
)
HOLD_S_MAX: Final = 600.0  # who prefers to wait longer asks again
_JSON: Final = "application/json"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class BarrierState(NamedTuple):
    """The agent's state, for clients of the barrier.

    Args:
        phase: `common.protocol.agent.AgentPhase`'s value.
        epoch: the epoch this process chose, 0 before.
        synced, deprecated: S and D as last seen; None before the first view.
        since_s: the clock's monotonic seconds at which the phase began.
        problem: the last problem with the API server that is not over, None when all is well.
        rank: that this Pod's worker plays in a group with spares; None for none.
        spare: S runs without this Pod.
    """

    phase: str
    epoch: int
    synced: int | None
    deprecated: int | None
    since_s: float
    problem: str | None
    rank: int | None = None
    spare: bool = False


class Barrier:
    """Holds the worker back until lifted. It closes between two workers of one process.

    This one opens no port, and does nothing.
    """

    async def start(self) -> None:
        """Close the barrier and begin to answer."""

    def lift(self, epoch: int | None) -> None:
        """Let the worker start; `epoch` is None when in-place restart is off."""

    def close(self) -> None:
        """Hold the next worker back."""

    def report(self, report: BarrierState) -> None:
        """Take note of what the agent is doing."""

    async def stop(self) -> None:
        """Stop answering; idempotent."""


class HttpBarrier(Barrier):
    """Answer 503 until lifted, 200 from then on; also /metrics and /healthz.

    Args:
        render_metrics: returns (media type, body) of the metrics for an Accept header; None while the start would
            pay for loading what renders them.
        listener: the socket that it answers on, see `agent.start.shell.listen`; the barrier closes it.

    Attributes:
        runs: says whether a guard's worker runs; None where no guard could say it.
    """

    runs: Callable[[], bool] | None = None

    def __init__(
        self,
        config: AgentConfig,
        *,
        listener: socket.socket,
        clock: Clock,
        render_metrics: Callable[[str], tuple[str, bytes] | None],
    ) -> None:
        self._paths = frozenset((config.barrier_path, OUR_PATH, UPSTREAM_PATH))
        self._clock = clock
        self._render_metrics = render_metrics
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._local: ConnectionLimiter[asyncio.StreamWriter] = ConnectionLimiter(LOCAL_SEATS, per_source=LOCAL_SEATS)
        self._peers: ConnectionLimiter[asyncio.StreamWriter] = ConnectionLimiter(
            PEER_SEATS, per_source=PEER_SEATS_PER_SOURCE
        )
        self._lifted = asyncio.Event()
        self._ready = asyncio.Event()  # lifted, or a spare: what a probe with the query waits for first
        self._is_bypassed = False
        self._report: BarrierState | None = None

    @property
    def port(self) -> int:
        """Return the port in use (the one the system chose when the configured one is 0)."""
        return int(self._listener.getsockname()[1])

    async def start(self) -> None:
        """Begin to answer 503."""
        self._server = await asyncio.start_server(self._accept, sock=self._listener, limit=REQUEST_BYTES_MAX)

    def lift(self, epoch: int | None) -> None:
        """Answer 200 from now on."""
        self._is_bypassed = epoch is None  # no guard tells of a worker that runs without an epoch
        self._lifted.set()
        self._ready.set()

    def close(self) -> None:
        """Answer 503 again."""
        self._lifted.clear()
        self._ready.clear()

    def report(self, report: BarrierState) -> None:
        """Keep the newest report for the next answer."""
        self._report = report
        if report.spare:
            self._ready.set()
        elif not self._lifted.is_set():
            self._ready.clear()

    async def stop(self) -> None:
        """Close the listener and every exchange."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        # Aborted and not cancelled: each exchange sees its peer gone and ends like any other.
        for writer in self._exchanges.values():
            writer.transport.abort()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin an exchange, and end another one for it when there are too many."""
        if self._server is None:
            writer.transport.abort()
            return
        source = _host(writer, "peername")
        seats = self._local if source == _host(writer, "sockname") else self._peers
        if (loser := seats.take(writer, source)) is not None:
            loser.transport.abort()
        exchange = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges[exchange] = writer
        exchange.add_done_callback(self._ended)

    def _ended(self, exchange: asyncio.Task[None]) -> None:
        """Forget an exchange; what it could not expect is a bug, and told."""
        writer = self._exchanges.pop(exchange)
        self._local.leave(writer)
        self._peers.leave(writer)
        if not exchange.cancelled() and (error := exchange.exception()) is not None:
            context = {"message": "bug in the barrier's answer", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close; every failure is the peer's and ends here."""
        try:
            async with self._clock.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._hold(head, reader)
            async with self._clock.timeout(REQUEST_TIMEOUT_S):
                writer.write(self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # slow, oversized, gone: the prober asks again
        finally:
            writer.transport.abort()

    async def _hold(self, head: bytes, reader: asyncio.StreamReader) -> None:
        """Wait for the lift as long as the peer prefers to, and listens."""
        hold_s = min(preferred_wait_s(_header(head, b"prefer")), HOLD_S_MAX)
        if self._is_up(head) or hold_s == 0 or _target(head)[0] not in self._paths:
            return
        ends = [asyncio.ensure_future(end) for end in (self._until_up(head), reader.read(1))]
        try:
            await asyncio.wait(ends, timeout=hold_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _until_up(self, head: bytes) -> None:
        """Return when the answer to a request is 200."""
        _, query = _target(head)
        await (self._ready if query == WORKER_QUERY else self._lifted).wait()
        while not self._is_up(head):
            await self._clock.sleep(WORKER_LOOK_S)

    def _is_up(self, head: bytes) -> bool:
        """Say whether the barrier is lifted, and whether the worker runs where the request asks that."""
        _, query = _target(head)
        if query == WORKER_QUERY and self._report is not None and self._report.spare:
            return True
        if not self._lifted.is_set():
            return False
        return query != WORKER_QUERY or self._is_bypassed or self.runs is None or self.runs()

    def _answer(self, head: bytes) -> bytes:
        """Return the whole answer to a request's head."""
        line = head.split(b"\r\n", 1)[0].split(b" ")
        if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
            return _response(400, _JSON, b'{"error":"expected an HTTP/1.1 request"}')
        method, (path, _) = line[0].decode("latin-1"), _target(head)
        if method not in ("GET", "HEAD"):
            return _response(405, _JSON, b'{"error":"expected GET or HEAD"}')
        status, media_type, body = self._metrics(head) if path == METRICS_PATH else self._resource(path, head)
        return _response(status, media_type, body, with_body=method == "GET")

    def _resource(self, path: str, head: bytes) -> tuple[int, str, bytes]:
        if path in self._paths:
            return 200 if self._is_up(head) else 503, _JSON, self._state()
        if path == HEALTH_PATH:
            return 200, _JSON, b'{"ok":true}'
        expected = ", ".join((*sorted(self._paths), METRICS_PATH, HEALTH_PATH))
        return 404, _JSON, json.dumps({"error": f"expected one of {expected}"}).encode()

    def _metrics(self, head: bytes) -> tuple[int, str, bytes]:
        rendered = self._render_metrics(_header(head, b"accept"))
        if rendered is None:
            return 503, _JSON, b'{"error":"the agent is starting; ask again in a second"}'
        return 200, *rendered

    def _state(self) -> bytes:
        """Return what the barrier waits for, as JSON."""
        state: dict[str, object] = {"lifted": self._lifted.is_set()}
        if self._report is not None:
            report = self._report
            state |= {
                "phase": report.phase,
                "epoch": report.epoch or None,
                "synced": report.synced,
                "deprecated": report.deprecated,
                "for_s": round(self._clock.monotonic_s() - report.since_s, 3),
                "problem": report.problem,
            }
            if report.rank is not None or report.spare:
                state |= {"rank": report.rank, "spare": report.spare}
        return json.dumps(state).encode()


def _host(writer: asyncio.StreamWriter, end: str) -> str:
    """Return the address of one end of a connection, "" when it is gone.

    Both ends have the same one only inside of a Pod, or a node for who uses its network: Linux drops what comes from
    outside with an address of its own (Source: net/ipv4/route.c, "martian source").
    """
    address = writer.get_extra_info(end)
    return str(address[0]) if address else ""


def renderer(metrics: AgentMetrics, log: LazyLog, clock: Clock) -> Callable[[str], tuple[str, bytes] | None]:
    """Return the `render_metrics` of an agent's barrier: it loads prometheus_client when it is first asked."""

    def render_metrics(accept: str) -> tuple[str, bytes] | None:
        if not log.loaded:
            return None
        from inplace.agent.report.exposition import render

        return render(metrics, accept, clock.monotonic_s)

    return render_metrics


def _target(head: bytes) -> tuple[str, str]:
    """Return the path and the query of a request; a part that is missing is ""."""
    _, _, target = head.split(b"\r\n", 1)[0].partition(b" ")
    path, _, query = target.partition(b" ")[0].decode("latin-1").partition("?")
    return path, query


def preferred_wait_s(prefer: str) -> int:
    """Return how long a peer with this header Prefer wants to wait for a better answer; RFC 7240, section 4.3."""
    for preference in prefer.split(","):
        name, _, value = preference.strip().partition("=")
        if name.lower() == "wait" and value.isascii() and value.isdigit():
            return int(value[:6])
    return 0


def _header(head: bytes, name: bytes) -> str:
    """Return a request header's value, "" when it is not there; several of a name are one list."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return ",".join(value.strip().decode("latin-1") for key, _, value in fields if key.lower() == name)


def _response(status: int, media_type: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {media_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
