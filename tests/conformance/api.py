"""The tools of a case: a client, raw requests and watches, in a namespace of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest

from inplace.common.kube.client import MERGE_PATCH, KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import Request, Response, Stream, Transport
from inplace.common.kube.resources import KubeObject, Resource
from tests.conformance.widgets import WIDGETS, widget

NEWEST_ONLY = pytest.mark.skipif(bool(os.environ.get("WORLD")), reason="only the newest Kubernetes does this")
"""For what the simulator does as the newest Kubernetes does, and WORLD asks for an older one (testbed/go_module.py)."""

DEADLINE_S = 20.0
"""The longest single wait of a case; the slowest operation is a real watch cache's consistent read (3 s)."""

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

CONSISTENT = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
"""The query of a watch that starts with every completed write."""

Event = dict[str, Any]
Refused = TypeVar("Refused", bound=ApiError)


class Watch:
    """An open watch, read event by event."""

    def __init__(self, stream: Stream) -> None:
        self.status = stream.status
        self.headers = stream.headers
        self.bytes_of_last = 0
        self._chunks = stream.chunks()
        self._buffer = b""

    async def next(self) -> Event:
        """Return the next event."""
        async with asyncio.timeout(DEADLINE_S):
            while b"\n" not in self._buffer:
                self._buffer += await anext(self._chunks)
        line, _, self._buffer = self._buffer.partition(b"\n")
        self.bytes_of_last = len(line)
        event: Event = json.loads(line)
        return event

    async def next_change(self) -> Event:
        """Return the next event that is not a bookmark."""
        event = await self.next()
        while event["type"] == "BOOKMARK":
            event = await self.next()
        return event

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next changes."""
        events = [await self.next_change() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    async def until_initial_events_end(self) -> list[Event]:
        """Return the events up to and including the bookmark that ends the initial ones."""
        events = []
        while True:
            events.append(await self.next())
            if events[-1]["type"] == "BOOKMARK":
                return events

    async def rest(self) -> list[Event]:
        """Return the remaining events until the server ends the watch."""
        async with asyncio.timeout(DEADLINE_S):
            async for chunk in self._chunks:
                self._buffer += chunk
        return [json.loads(line) for line in self._buffer.splitlines()]


async def refusal(request: Awaitable[Any], kind: type[Refused] | tuple[type[Refused], ...], words: str = "") -> Refused:
    """Return the error of this kind that a request ends with; check that its message has these words."""
    with pytest.raises(kind) as refused:
        await request
    assert words in refused.value.message, f"expected {words!r}, saw {refused.value.message!r}"
    return refused.value


class Api:
    """One API server as seen from one namespace.

    Attributes:
        ns: a namespace that no other case uses.
    """

    def __init__(self, transport: Transport, ns: str) -> None:
        self.transport = transport
        self.ns = ns
        self.client = KubeClient(transport, user_agent="conformance/1.0", field_manager="conformance")

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Response:
        """Send a request and return the answer, whatever its status."""
        headers = {"accept": accept, "user-agent": "conformance/1.0"}
        payload = b""
        if body is not None:
            headers["content-type"] = content_type
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        return await self.transport.request(Request(method, target, headers, payload), timeout_s=DEADLINE_S)

    async def json(self, method: str, path: str, body: Any = None, **options: str) -> Any:
        """Send a request and return the decoded body, whatever the status."""
        return json.loads((await self.send(method, path, body, **options)).body)

    def path(self, resource: Resource = WIDGETS, name: str | None = None, subresource: str | None = None) -> str:
        """Return a path in the case's namespace."""
        return resource.path(self.ns, name, subresource=subresource)

    async def create(self, obj: KubeObject, resource: Resource = WIDGETS) -> KubeObject:
        """Create an object in the case's namespace."""
        return await self.client.create(resource, self.ns, obj)

    async def widget(self, name: str = "w", **spec: Any) -> KubeObject:
        """Create a Widget."""
        return await self.create(widget(name, **spec))

    async def get(self, name: str = "w", resource: Resource = WIDGETS) -> KubeObject:
        """Read an object of the case's namespace."""
        return await self.client.get(resource, self.ns, name)

    async def patch(
        self,
        patch: Any,
        name: str = "w",
        resource: Resource = WIDGETS,
        *,
        kind: str = MERGE_PATCH,
        subresource: str | None = None,
    ) -> KubeObject:
        """Patch an object of the case's namespace."""
        return await self.client.patch(resource, self.ns, name, patch, kind=kind, subresource=subresource)

    async def gone(self, name: str = "w", resource: Resource = WIDGETS) -> None:
        """Return when an object does not exist (any more)."""
        async with self.watch(resource, fieldSelector=f"metadata.name={name}", query=CONSISTENT) as watch:
            *present, _ = await watch.until_initial_events_end()
            while present and (await watch.next_change())["type"] != "DELETED":
                pass

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource = WIDGETS,
        *,
        accept: str = "application/json",
        everywhere: bool = False,
        query: dict[str, str] | None = None,
        **more: str,
    ) -> AsyncIterator[Watch]:
        """Open a watch in the case's namespace."""
        namespace = None if everywhere else self.ns
        path = resource.path(namespace, query={"watch": "true", **(query or {}), **more})
        request = Request("GET", path, {"accept": accept, "user-agent": "conformance/1.0"})
        async with self.transport.stream(request, timeout_s=DEADLINE_S) as stream:
            yield Watch(stream)
