"""
The network between programs and API servers.

`simulator.campaign.disturbance` describes its disturbances. Requests take time both ways, so a watch may be faster
than an answer. If the sender dies before its request arrives, chance decides whether the request is carried out; no
program can know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Request, Response, Stream, TransportError, TransportTimeoutError
from inplace.common.wire.names import NOTICE
from inplace.simulator.apiserver import ApiServer, InMemoryTransport, StreamingResponse
from inplace.simulator.campaign.disturbance import ON_REQUESTS, Disturbance, DisturbanceKind, refusal
from inplace.simulator.campaign.process import current_process
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.cluster.timings import Delay

NEVER_S = 1e9
_NOTICE = f'"{NOTICE}"'.encode()


class Ending(Enum):
    """How a fault ends an open stream."""

    CLEAN = "clean"  # as at the server's timeout
    BROKEN = "broken"  # a reset
    SILENT = "silent"  # half-open: deliveries stop, and the client gets no error
    GONE = "gone"  # 410 in the stream: its history was compacted


@dataclass(eq=False, slots=True)
class OpenStream:
    """A client's open watch."""

    client: str
    request: Request
    server: int
    reader: asyncio.Task[object] | None = None  # the task that waits for the next delivery
    ending: Ending | None = None

    def end(self, ending: Ending) -> None:
        """End the stream now, or at the next delivery when no task waits for one."""
        if self.ending is None:
            self.ending = ending
            if self.reader is not None:
                self.reader.cancel()


@dataclass(eq=False)
class Network:
    """All connections of one run.

    Args:
        latency: one way of a request.
        note_fault: called with a fault's name and what it does, each time it acts.
        on_write: called before and after each write is carried out; crash points hook in here.
        on_delivery: called before each delivery of a watch; missed and stale views hook in here.
        on_send: called with each request when its client sends it.
        on_refusal: called with each answer that a disturbance gives instead of the server.
        on_lost_answer: called with a client and its request that was carried out, where a disturbance takes the answer.
        on_arrival: called with what a client gets for a request: an answer's body, or a piece of a watch.
    """

    servers: list[ApiServer]
    clock: Clock
    rng: Random
    latency: Delay
    trace: Trace
    note_fault: Callable[[str, str], None]
    on_write: Callable[[str, Request, str], None] = lambda *_: None
    on_delivery: Callable[[OpenStream, bytes], None] = lambda *_: None
    on_send: Callable[[Request], None] = lambda *_: None
    on_refusal: Callable[[Request, Response], None] = lambda *_: None
    on_arrival: Callable[[Request, bytes], None] = lambda *_: None
    on_lost_answer: Callable[[str, Request], None] = lambda *_: None
    disturbances: list[Disturbance] = field(default_factory=list)
    streams: list[OpenStream] = field(default_factory=list)
    routes: dict[str, int] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)  # clients that always go to the same server
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)  # by client and method, WATCH or NOTICE
    unanswered: set[tuple[str, str]] = field(default_factory=set)  # of these, whose last request got no answer yet

    def transport(self, client: str, user: str) -> NetworkTransport:
        """Return a client's connections."""
        return NetworkTransport(self, client, user)

    def route(self, client: str) -> int:
        """Return the API server that a client is connected to."""
        if client in self.pins:
            return self.pins[client]
        if client not in self.routes:
            self.routes[client] = self.rng.randrange(len(self.servers))
        return self.routes[client]

    def reconnect(self, client: str) -> None:
        """Let the load balancer choose again."""
        self.routes.pop(client, None)

    def calm(self) -> None:
        """End all disturbances."""
        self.disturbances.clear()
        self.pins.clear()

    def disturb(
        self,
        fault: str,
        effect: DisturbanceKind,
        for_s: float,
        clients: Callable[[str], bool] = lambda _: True,
        requests: Callable[[Request], bool] = lambda _: True,
        **more: Any,
    ) -> None:
        """Disturb requests for so many seconds; `more` has the other fields of `Disturbance`."""
        until_s = self.clock.monotonic_s() + for_s
        self.disturbances.append(Disturbance(fault, effect, until_s, clients, requests, **more))

    def end_streams(self, ending: Ending, wanted: Callable[[OpenStream], bool]) -> int:
        """End the streams that `wanted` selects; return how many there were."""
        found = [stream for stream in self.streams if stream.ending is None and wanted(stream)]
        for stream in found:
            stream.end(ending)
        return len(found)

    def caught(self, client: str, request: Request, server: int, *, delivery: bool) -> Disturbance | None:
        """Return the disturbance of this request or delivery, and count that it acted."""
        if not self.disturbances:
            return None
        now_s = self.clock.monotonic_s()
        for disturbance in self.disturbances:
            if (
                (disturbance.effect in ON_REQUESTS) != delivery
                and disturbance.left > 0
                and now_s < disturbance.until_s
                and disturbance.server in (None, server)
                and disturbance.clients(client)
                and disturbance.requests(request)
            ):
                disturbance.left -= 1
                what = f"{disturbance.effect.value} {client} {request.method} {request.path}"
                self.note_fault(disturbance.fault, what)
                return disturbance
        return None


class NetworkTransport(InMemoryTransport):
    """One client's connections, each to the server that the network chooses."""

    def __init__(self, network: Network, client: str, user: str) -> None:
        super().__init__(network.servers[0], user=user)
        self._network = network
        self._client = client

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer."""
        what = self._client, _method_of(request)
        self._network.unanswered.add(what)
        try:
            answer = await super().request(request, timeout_s=timeout_s)
        except TransportTimeoutError:
            self._network.reconnect(self._client)
            raise
        self._network.unanswered.discard(what)
        self._network.on_arrival(request, answer.body)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a stream."""
        network = self._network
        stream = OpenStream(self._client, request, network.route(self._client))
        try:
            async with super().stream(request, timeout_s=timeout_s) as answer:
                if not isinstance(answer, StreamingResponse):
                    yield answer
                    return
                network.streams.append(stream)
                try:
                    yield _Deliveries(network, stream, answer)
                finally:
                    network.streams.remove(stream)
                    network.reconnect(self._client)
        except TransportTimeoutError:
            network.reconnect(self._client)
            raise

    async def _send(self, request: Request) -> Response | StreamingResponse:
        return await self._exchange(request, self._network.route(self._client))

    async def _exchange(self, request: Request, server: int) -> Response | StreamingResponse:
        """Carry the request to the server and the answer back, with the disturbance of each."""
        network, client = self._network, self._client
        process = current_process()
        if process is not None and not process.alive:
            raise TransportError("the process is dead", sent=False)
        network.requests[client, _method_of(request)] += 1
        network.on_send(request)
        disturbance = network.caught(client, request, server, delivery=False)
        effect = disturbance.effect if disturbance is not None else None
        out_s, back_s = network.latency.draw(network.rng), network.latency.draw(network.rng)
        if disturbance is not None:
            if effect is DisturbanceKind.REFUSE:
                network.reconnect(client)
                raise TransportError("connection refused", sent=False)
            if effect is DisturbanceKind.ANSWER:
                await network.clock.sleep(out_s + back_s)
                assert disturbance.answer is not None
                network.on_refusal(request, disturbance.answer)
                return disturbance.answer
            if effect is DisturbanceKind.LOSE:
                await network.clock.sleep(NEVER_S)
            out_s += disturbance.amount if effect is DisturbanceKind.SLOW else 0.0
            back_s += disturbance.amount if effect is DisturbanceKind.SLOW_REPLY else 0.0
        try:
            await network.clock.sleep(out_s)
        except asyncio.CancelledError:
            if out_s < 1.0 and request.method != "GET" and network.rng.random() < 0.5:
                await self._do(request, server)  # the request was already under way and arrives
            raise
        answer = await self._do(request, server)
        if effect in (DisturbanceKind.LOSE_REPLY, DisturbanceKind.HANG_REPLY):
            network.on_lost_answer(client, request)
        if effect is DisturbanceKind.LOSE_REPLY:
            network.reconnect(client)
            raise TransportError("connection reset", sent=True)
        await network.clock.sleep(NEVER_S if effect is DisturbanceKind.HANG_REPLY else back_s)
        return answer

    async def _do(self, request: Request, server: int) -> Response | StreamingResponse:
        network = self._network
        is_write = request.method != "GET"
        process = current_process()
        if is_write and process is not None and process.alive:
            network.on_write(self._client, request, "before")
            if not process.alive:
                raise TransportError("the process died before its write", sent=False)
        answer = await network.servers[server].handle(request, user=self._user)
        if is_write and process is not None and process.alive:
            network.on_write(self._client, request, "after")
        return answer


def _method_of(request: Request) -> str:
    if "watch=" in request.path:
        return "WATCH"
    return "NOTICE" if request.method == "PATCH" and _NOTICE in request.body else request.method


class _Deliveries:
    """A watch's deliveries, with their disturbances."""

    def __init__(self, network: Network, stream: OpenStream, answer: StreamingResponse) -> None:
        self._network = network
        self.status = answer.status
        self.headers = answer.headers
        self._stream = stream
        self._answer = answer

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the deliveries; end or break as the stream's `ending` says."""
        stream, network = self._stream, self._network
        inner = self._answer.chunks()
        while True:
            chunk = None if stream.ending is not None else await self._next(inner)
            if chunk is not None and stream.ending is None:
                network.on_delivery(stream, chunk)
            if stream.ending is not None:
                async for last in self._last_words(stream.ending):
                    yield last
                return
            if chunk is None:
                return
            async for piece in self._disturbed(chunk):
                network.trace.add("deliver", f"{stream.client} {len(piece)} {crc32(piece):08x}")
                network.on_arrival(stream.request, piece)
                yield piece

    async def _next(self, inner: AsyncIterator[bytes]) -> bytes | None:
        """Return the next delivery, None at the end; stop waiting when a fault ends the stream."""
        stream = self._stream
        task = stream.reader = asyncio.current_task()
        try:
            return await anext(inner, None)
        except asyncio.CancelledError:
            process = current_process()
            if stream.ending is None or task is None or (process is not None and not process.alive):
                raise
            task.uncancel()  # `OpenStream.end` cancelled, not the program
            return None
        finally:
            stream.reader = None

    async def _last_words(self, ending: Ending) -> AsyncIterator[bytes]:
        self._network.trace.add("deliver", f"{self._stream.client} ends: {ending.value}")
        if ending is Ending.SILENT:
            await self._network.clock.sleep(NEVER_S)
        if ending is Ending.BROKEN:
            raise TransportError("connection reset", sent=True)
        if ending is Ending.GONE:
            yield GONE_LINE

    async def _disturbed(self, chunk: bytes) -> AsyncIterator[bytes]:
        network, stream = self._network, self._stream
        disturbance = network.caught(stream.client, stream.request, stream.server, delivery=True)
        match disturbance.effect if disturbance is not None else None:
            case DisturbanceKind.DUPLICATE:
                yield chunk
                yield chunk
            case DisturbanceKind.DELAY:
                assert disturbance is not None
                await network.clock.sleep(disturbance.amount)
                yield chunk
            case DisturbanceKind.SPLIT:
                cut = network.rng.randrange(len(chunk))
                yield chunk[:cut]
                await network.clock.sleep(network.latency.draw(network.rng))
                yield chunk[cut:]
            case DisturbanceKind.CUT_SHORT:
                yield chunk[: len(chunk) // 2]
                raise TransportError("connection reset inside a line", sent=True)
            case DisturbanceKind.NO_BOOKMARK if all(b'"BOOKMARK"' in line for line in chunk.splitlines()):
                return
            case _:
                yield chunk


GONE_LINE = msgspec.json.encode({"type": "ERROR", "object": msgspec.json.decode(refusal(410, "Expired").body)}) + b"\n"
