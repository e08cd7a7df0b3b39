"""
An API server that follows a test's script, on a real loopback socket.

A list is answered by the next step of `lists`, a watch by the next script of `watches`: steps that run in order on
the raw connection. Everything else is answered by `answer`. Every request is recorded.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from inplace.common.wire import names as wire

COLUMNS = (
    "Name",
    wire.COLUMN_SYNCED,
    wire.COLUMN_DEPRECATED,
    wire.COLUMN_CURRENT,
    wire.COLUMN_PREVIOUS,
    wire.COLUMN_STRATEGY,
    wire.COLUMN_RESTART_IN_PLACE,
    wire.COLUMN_DISABLED,
    wire.COLUMN_UID,
)


NOTHING = {"kind": "JobSetList", "metadata": {"resourceVersion": "1"}, "items": []}


@dataclass(slots=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and self.path.endswith("/jobsets") and not self.is_watch


@dataclass(slots=True)
class Exchange:
    """A connection on which a request waits for its answer."""

    server: ScriptedServer
    request: Received
    writer: asyncio.StreamWriter
    started: bool = False

    @property
    def wants_table(self) -> bool:
        """Return whether the client asked for a Table."""
        return "as=Table" in self.request.headers["accept"]

    async def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        """Send a whole answer."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(payload)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)

    async def chunk(self, data: bytes) -> None:
        """Send a chunk of a streaming answer, the head first."""
        if not self.started:
            self.started = True
            await self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """End a streaming answer with its last chunk."""
        if not self.started:
            await self.answer(200, b"")
        else:
            await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()


Step = Callable[[Exchange], Awaitable[None]]


async def accept_patch(exchange: Exchange) -> None:
    """Answer like an API server that stored the patch."""
    await exchange.answer(200, {"kind": "PartialObjectMetadata", "metadata": {}})


async def lists_nothing(exchange: Exchange) -> None:
    """Answer a list with no JobSet."""
    await exchange.answer(200, listing([], rv=1) if exchange.wants_table else NOTHING)


@dataclass(slots=True)
class ScriptedServer:
    """Listen on loopback; `async with` starts and stops it.

    Args:
        lists: one step per list, in order; a list beyond them is empty, at version 1.
        watches: one script per watch, in order; a watch beyond them stays silent.
        answer: the step for every other request.
        tls: TLS settings, None for plain HTTP.
    """

    watches: Sequence[Sequence[Step]] = ()
    lists: Sequence[Step] = ()
    answer: Step = accept_patch
    tls: ssl.SSLContext | None = None
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        serving = tuple(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._server.wait_closed()

    def requests(self, method: str) -> list[Received]:
        """Return the requests with one method."""
        return [request for request in self.received if request.method == method]

    @property
    def annotations(self) -> list[dict[str, str]]:
        """Return the annotations of each PATCH, in order."""
        return [json.loads(patch.body)["metadata"]["annotations"] for patch in self.requests("PATCH")]

    def told(self, name: str) -> list[str]:
        """Return the values of one annotation, in order, of the PATCHes that have it."""
        return [annotations[name] for annotations in self.annotations if name in annotations]

    @property
    def watched(self) -> list[Received]:
        """Return the watch requests."""
        return [request for request in self.received if request.is_watch]

    @property
    def listed(self) -> list[Received]:
        """Return the list requests."""
        return [request for request in self.received if request.is_list]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until requests make `condition` true, at most 10 s."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(condition)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                await self._reply(Exchange(self, request, writer))
                if writer.is_closing():
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the agent closed the connection, or the test is over
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def _reply(self, exchange: Exchange) -> None:
        index = len(self.listed if exchange.request.is_list else self.watched)
        self.received.append(exchange.request)
        async with self._news:
            self._news.notify_all()
        if exchange.request.is_list:
            await (self.lists[index] if index < len(self.lists) else lists_nothing)(exchange)
            return
        if not exchange.request.is_watch:
            await self.answer(exchange)
            return
        for step in self.watches[index] if index < len(self.watches) else (silence,):
            await step(exchange)


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return Received(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


# Steps of a watch's script.


def jobset(
    synced: object = 0,
    deprecated: object = 0,
    *,
    rv: int = 10,
    kind: str = "MODIFIED",
    name: str = "train",
    uid: str = "uid-1",
    strategy: str | None = wire.IN_PLACE_RESTART,
    restart_in_place: str | None = None,
    disabled: str | None = None,
    scopes: list[dict[str, Any]] | None = None,
    limits: str | None = None,
    saving: int | None = None,
    stacks: str | None = None,
    notices: list[dict[str, Any]] | None = None,
    ended: str | None = None,
) -> Step:
    """Show the JobSet, as an event or a list: a Table row, or a whole object when no Table was asked for.

    Only a whole object says the epoch whose workers are asked to save.
    """

    async def step(exchange: Exchange) -> None:
        row = table([name, synced, deprecated, None, None, strategy, restart_in_place, disabled, uid], rv)
        whole = plain(synced, deprecated, rv=rv, name=name, uid=uid, strategy=strategy, disabled=disabled)
        if restart_in_place is not None:
            whole["metadata"]["annotations"][wire.RESTART_IN_PLACE] = restart_in_place
        if scopes is not None:
            row["columnDefinitions"].append({"name": wire.COLUMN_SCOPED})
            row["rows"][0]["cells"].append(json.dumps(scopes))
            whole["status"][wire.SCOPED_EPOCHS] = scopes
        if saving is not None:
            whole["status"][wire.SAVING] = {"epoch": saving}
        if limits is not None:
            row["columnDefinitions"].append({"name": wire.COLUMN_STALL})
            row["rows"][0]["cells"].append(limits)
            whole["metadata"]["annotations"][wire.STALL] = limits
        if stacks is not None:
            row["columnDefinitions"].append({"name": wire.COLUMN_STACKS})
            row["rows"][0]["cells"].append(stacks)
            whole["metadata"]["annotations"][wire.STACKS_REQUESTED] = stacks
        if notices is not None:
            row["columnDefinitions"].append({"name": wire.COLUMN_NOTICES})
            row["rows"][0]["cells"].append(json.dumps(notices))
            whole["status"][wire.NOTICES] = notices
        if ended is not None:
            row["columnDefinitions"].append({"name": wire.COLUMN_TERMINAL})
            row["rows"][0]["cells"].append(ended)
            whole["status"][wire.TERMINAL_STATE] = ended
        if not exchange.request.is_list:
            await exchange.chunk(line(kind, row if exchange.wants_table else whole))
        elif exchange.wants_table:
            await exchange.answer(200, row)
        else:
            await exchange.answer(200, NOTHING | {"metadata": {"resourceVersion": str(rv)}, "items": [whole]})

    return step


def scoped(**epochs: tuple[int, int]) -> Step:
    """Show the JobSet divided into scopes, each with its (S, D)."""
    entries = [
        {"name": name, wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}
        for name, (synced, deprecated) in epochs.items()
    ]
    return jobset(scopes=entries)


def line(kind: str, obj: object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def table(cells: list[Any], rv: int, columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Return a Table of one row."""
    return listing([cells], rv, columns)


def listing(rows: Sequence[list[Any]], rv: int, columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Return a Table."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(rv)},
        "columnDefinitions": [{"name": column} for column in columns],
        "rows": [{"cells": cells, "object": None} for cells in rows],
    }


def plain(
    synced: object,
    deprecated: object,
    *,
    rv: int = 10,
    name: str = "train",
    uid: str = "uid-1",
    strategy: str | None = wire.IN_PLACE_RESTART,
    disabled: str | None = None,
) -> dict[str, Any]:
    """Return a whole JobSet."""
    annotations = {} if disabled is None else {wire.DISABLE: disabled}
    return {
        "kind": "JobSet",
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(rv), "annotations": annotations},
        "spec": {"failurePolicy": {"restartStrategy": strategy}},
        "status": {wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated},
    }


def bookmark(rv: int) -> Step:
    """Send a bookmark."""
    return sends(line("BOOKMARK", {"kind": "Table", "metadata": {"resourceVersion": str(rv)}, "rows": []}))


def error_event(code: int, reason: str, message: str = "said the server") -> Step:
    """Send an ERROR event."""
    return sends(line("ERROR", status(code, reason, message)))


def status(code: int, reason: str, message: str = "said the server") -> dict[str, Any]:
    """Return a metav1.Status."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "status": "Failure"}


def sends(data: bytes) -> Step:
    """Send bytes as a part of the answer."""

    async def step(exchange: Exchange) -> None:
        await exchange.chunk(data)

    return step


def answers(code: int, body: object, headers: dict[str, str] | None = None) -> Step:
    """Send a whole answer."""

    async def step(exchange: Exchange) -> None:
        await exchange.answer(code, body, headers)

    return step


def refuses(code: int, reason: str = "", message: str = "said the server", **headers: str) -> Step:
    """Answer with an error status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return answers(code, status(code, reason, message), named)


async def ends(exchange: Exchange) -> None:
    """End the watch with its last chunk."""
    await exchange.end()


async def resets(exchange: Exchange) -> None:
    """Drop the connection in the middle of the answer."""
    exchange.writer.transport.abort()


async def hangs(exchange: Exchange) -> None:
    """Never answer, and keep the connection open."""
    await asyncio.Event().wait()


async def hangs_up(exchange: Exchange) -> None:
    """Close without an answer."""
    exchange.writer.close()


async def shouts(exchange: Exchange) -> None:
    """Speak no HTTP."""
    await exchange.raw(b"220 smtp ready\r\n\r\n")
    exchange.writer.close()


async def silence(exchange: Exchange) -> None:
    """Send nothing and keep the connection open."""
    if not exchange.started:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    await asyncio.Event().wait()


def in_turn(*steps: Step) -> Step:
    """Answer with one step after the other, and then as `accept_patch` does."""
    left = list(steps)

    async def step(exchange: Exchange) -> None:
        await (left.pop(0) if left else accept_patch)(exchange)

    return step


def until_patched(count: int = 1) -> Step:
    """Wait until the agent has sent `count` announcements."""

    async def step(exchange: Exchange) -> None:
        await exchange.server.until(lambda: len(exchange.server.requests("PATCH")) >= count)

    return step


@dataclass
class Views:
    """A watch that shows what its test says, when it does."""

    _steps: asyncio.Queue[Step] = field(default_factory=asyncio.Queue)
    _version: int = 10

    def show(self, synced: int, deprecated: int, **more: Any) -> None:
        """Let the open watch show a status; `more` is of `jobset`."""
        self._version += 1
        self._steps.put_nowait(jobset(synced, deprecated, rv=self._version, **more))

    async def follow(self, exchange: Exchange) -> None:
        """Show one after the other."""
        while True:
            await (await self._steps.get())(exchange)


# A watch that lifts the barrier of epoch 1 and then restarts the group; the same from before the announcement.
SYNC_THEN_RESTART: tuple[Step, ...] = (jobset(1, 0, rv=20), jobset(1, 1, rv=30))
ONE_EPOCH: tuple[Step, ...] = (jobset(0), until_patched(), *SYNC_THEN_RESTART)
