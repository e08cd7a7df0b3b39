"""An informer on an embedded API server, with faults between the two."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import structlog

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.codec import RAW
from inplace.common.kube.http.request import Request, Response, Stream, Transport, TransportError
from inplace.common.kube.informer import Handler, Informer
from inplace.common.kube.resources import CONFIG_MAPS, KubeObject
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport

Change = tuple[str | None, str | None]


def config_map(name: str, **data: str) -> KubeObject:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Rig:
    """An embedded API server with faults, an administrator, and an informer whose changes are recorded."""

    def __init__(self, *handlers: Handler[KubeObject], **informer_options: Any) -> None:
        self.clock = LoopClock(0.0)
        self.fault: Callable[[Request], Response | None] = lambda _: None
        self.requests: list[Request] = []
        self.server = ApiServer(clock=self.clock, rng=Random(1), options=ApiServerOptions(interceptor=self._intercept))
        self.server.load([])
        self.admin = KubeClient(InMemoryTransport(self.server), user_agent="admin", field_manager="admin")
        self.changes: list[Change] = []
        self.endings: list[str] = []
        self._handlers = handlers
        self._options = informer_options
        self.informer = self.start(InMemoryTransport(self.server, user="informer"))

    def start(self, transport: Transport) -> Informer[KubeObject]:
        """Return a new informer over `transport`."""
        client = KubeClient(transport, user_agent="informer", field_manager="informer")
        self.informer = Informer(
            client,
            CONFIG_MAPS,
            RAW,
            clock=self.clock,
            rng=Random(2),
            log=structlog.get_logger(),
            namespace="default",
            on_ending=self.endings.append,
            **self._options,
            handlers=(self._record, *self._handlers),
        )
        return self.informer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the server and the informer."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.server.run()), group.create_task(self.informer.run())]
            yield
            for task in tasks:
                task.cancel()

    async def create(self, name: str, **data: str) -> KubeObject:
        """Create a ConfigMap."""
        return await self.admin.create(CONFIG_MAPS, "default", config_map(name, **data))

    async def settle(self, seconds: float = 1.0) -> None:
        """Let the informer catch up."""
        await self.clock.sleep(seconds)

    def lists(self) -> int:
        """Return how many list requests the informer made."""
        return sum("watch=" not in request.path for request in self.requests)

    def watches(self) -> int:
        """Return how many watches the informer opened."""
        return sum("watch=" in request.path for request in self.requests)

    def shown(self) -> set[str]:
        """Return the names in the cache."""
        return {obj["metadata"]["name"] for obj in self.informer}

    async def _intercept(self, request: Request, user: str) -> Response | None:
        if user != "informer":
            return None
        self.requests.append(request)
        return self.fault(request)

    def _record(self, old: KubeObject | None, new: KubeObject | None) -> None:
        self.changes.append(tuple(obj and obj["metadata"]["name"] for obj in (old, new)))  # type: ignore[arg-type]


def once(answer: Response, *, watch: bool) -> Callable[[Request], Response | None]:
    """Refuse only the next list, or only the next watch."""
    left = [answer]

    def fault(request: Request) -> Response | None:
        return left.pop() if left and ("watch=" in request.path) == watch else None

    return fault


class BreakingTransport:
    """A transport with faults that a server cannot cause: it refuses, resets inside a line, falls silent."""

    def __init__(self, inner: Transport, clock: LoopClock) -> None:
        self.inner = inner
        self.clock = clock
        self.mode = ""

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Refuse the request if the test says so."""
        if self.mode == "refuse":
            raise TransportError("connection refused", sent=False)
        return await self.inner.request(request, timeout_s=timeout_s)

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Break the stream in the test's way."""
        if self.mode == "refuse":
            raise TransportError("connection refused", sent=False)
        async with self.inner.stream(request, timeout_s=timeout_s) as stream:
            yield _BreakingStream(stream, self)


class _BreakingStream:
    def __init__(self, inner: Stream, transport: BreakingTransport) -> None:
        self._inner = inner
        self._transport = transport
        self.status = inner.status
        self.headers = inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        mode, self._transport.mode = self._transport.mode, ""
        if mode == "reset":
            raise TransportError("connection reset")
        if mode == "garbled":
            yield b'{"type":"ADDED","obj'
            return
        if mode == "nonsense":
            yield b"<html>proxy error</html>\n"
            return
        if mode == "silent":
            await self._transport.clock.sleep(1e6)
        async for chunk in self._inner.chunks():
            yield chunk
