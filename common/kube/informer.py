"""
A cache of one kind of object, filled by a list and a watch, that tells handlers about changes.

Guarantees: `has_synced` is true only after a whole consistent list was read. Every change is told once, in the server's
order, as (old, new). An object that vanished while the watch was away is told as a deletion. An object that was
replaced by one of the same name is told as a deletion and a creation. A process can absorb its own writes at once, so
that a decision never works on a cache older than its own last write.

Deliberately not here: indexes (handlers build them), several watches for one cache, threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

import msgspec
from anyio import create_task_group

from inplace.common.kube.answers import UNREADABLE
from inplace.common.kube.backoff import Backoff
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.codec import Codec, Meta, is_older, version_number
from inplace.common.kube.errors import ApiError, Expired, error_from_status
from inplace.common.kube.http.request import GarbledError, Request, TransportError
from inplace.common.kube.listing import PAGE_SIZE, read_pages
from inplace.common.kube.resources import KubeObject, Resource
from inplace.common.kube.watch import (
    Broken,
    Busy,
    Closed,
    Denied,
    Gone,
    Unauthenticated,
    WatchEnding,
    ending_of,
    watch_lines,
)

T = TypeVar("T")

TURN_OBJECTS = (
    10  # taken in before others run: 100,000 small ones would keep the loop for seconds, 10 of 1 MB for 50 ms
)
WATCH_LIFE_S = (300, 600)  # the server ends the watch after a random time in this range, so that watches do not pile up
BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 15.0  # four informers against a sick server: about one request every two seconds
DENIED_CAP_S = 30.0  # an administrator must act first; one request in 15 s on average
LIFE_MIN_S = 1.0  # a watch that ends in good order, sooner and without a line, is a server in trouble


class Log(Protocol):
    """The part of a structlog logger that is used here."""

    def info(self, event: str, **keys: Any) -> Any:
        """Log a normal event."""

    def warning(self, event: str, **keys: Any) -> Any:
        """Log what cures itself."""

    def error(self, event: str, **keys: Any) -> Any:
        """Log a problem that a person must look at."""


Handler = Callable[[T | None, T | None], None]
"""Called in the event loop with (old, new); must not block and must not raise."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


_EVENT: Final = msgspec.json.Decoder(_Event)
_BOOKMARK: Final = msgspec.json.Decoder(_Bookmark)


class Informer(Generic[T]):
    """Keeps a cache of one kind.

    Args:
        client: used for the lists and for its transport and headers.
        resource: the kind.
        namespace: None is all namespaces.
        label_selector: keeps the rest on the server.
        field_selector: the same; metadata.name for one object.
        read_all: reads the objects and their resourceVersion at less cost than a list of whole ones.
        keep: drops objects that are not needed here before they cost memory.
        resync_s: how often every object is told again as (object, object); None never.
        on_ending: hears the name of each way a watch ended; for metrics.
        rest_s: lets events come together, as for `watch_lines`.
        on_list: hears the version of each list BEFORE its differences are told: what came before it may be missed.
        handlers: hear of every change, one after the other in this order.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        codec: Codec[T],
        *,
        clock: Clock,
        rng: Random,
        log: Log,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        read_all: Callable[[], Awaitable[tuple[list[T], str]]] | None = None,
        keep: Callable[[T], bool] | None = None,
        page_size: int = PAGE_SIZE,
        resync_s: float | None = None,
        on_ending: Callable[[str], None] | None = None,
        rest_s: Callable[[int], float] | None = None,
        on_list: Callable[[int], None] | None = None,
        handlers: Sequence[Handler[T]] = (),
    ) -> None:
        self.resource = resource
        self._client = client
        self._codec = codec
        self._clock = clock
        self._rng = rng
        self._log = log
        self._namespace = namespace
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selector = {name: selector for name, selector in selectors.items() if selector is not None}
        self._read_all = read_all or self._list
        self._keep = keep
        self._page_size = page_size
        self._resync_s = resync_s
        self._on_ending = on_ending
        self._rest_s = rest_s
        self._on_list = on_list
        self._handlers = handlers
        self._objects: dict[tuple[str, str], T] = {}
        self._since: str | None = None  # the collection's resourceVersion that the cache shows; None: list first
        self._page_limit = page_size
        self._synced = asyncio.Event()
        self._backoff = Backoff(BACKOFF_BASE_S, BACKOFF_CAP_S, rng)
        self._denied = Backoff(BACKOFF_CAP_S, DENIED_CAP_S, rng)
        self._last_activity_s: float | None = None

    @property
    def has_synced(self) -> bool:
        """Say whether a whole list was taken in since the start."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once a whole list was taken in."""
        await self._synced.wait()

    @property
    def silent_s(self) -> float | None:
        """Return the seconds since the server last said anything; None before its first word."""
        if self._last_activity_s is None:
            return None
        return self._clock.monotonic_s() - self._last_activity_s

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object as last seen."""
        return self._objects.get((namespace, name))

    def absorb(self, obj: KubeObject) -> None:
        """Take in the answer to a write of ours, unless the watch has already passed it.

        The watch will tell it again, and any deletion after it.
        """
        new = self._codec.convert(obj)
        meta = self._codec.meta(new)
        number, since = version_number(meta.resource_version), version_number(self._since)
        if number is not None and since is not None and number > since:
            self._put(new, meta)

    async def run(self) -> None:
        """List, watch and resync until cancelled."""
        async with create_task_group() as group:
            group.start_soon(self._follow, name=f"follow {self.resource.plural}")
            if self._resync_s is not None:
                group.start_soon(self._resync, self._resync_s, name=f"resync {self.resource.plural}")

    async def _follow(self) -> None:
        """Watch for ever; each way in which a watch can end has one arm."""
        while True:
            started_s = self._clock.monotonic_s()
            ending = await self._watch_once()
            name = type(ending).__name__
            if self._on_ending is not None:
                self._on_ending(name)
            keys = {"kind": self.resource.kind, "ending": name}
            match ending:
                case Closed():  # the server's timeout: resume at once, unless it ends every watch at once
                    spoke = self._last_activity_s is not None and self._last_activity_s > started_s
                    if not spoke and self._clock.monotonic_s() - started_s < LIFE_MIN_S:
                        await self._clock.sleep(self._backoff.next_s())
                case Gone():  # that version left the server's history: read fresh state, never retry it
                    self._log.info("watch_expired", **keys)
                    self._since = None
                    await self._clock.sleep(self._backoff.next_s())
                case Busy(after_s, error):
                    self._log.warning("server_busy", message=str(error), **keys)
                    await self._clock.sleep(self._backoff.next_s(after_s))
                case Broken(transport_error):
                    self._log.warning("server_unreachable", message=str(transport_error), **keys)
                    await self._clock.sleep(self._backoff.next_s())
                case Unauthenticated(error):  # the transport reads its credentials again after a 401
                    self._log.error("credentials_refused", message=str(error), then="they are read again", **keys)
                    await self._clock.sleep(self._backoff.next_s())
                case Denied(error):  # RBAC, or the kind is not installed: waiting may cure it, hurrying will not
                    self._log.error("watch_denied", message=str(error), path=self._path({}), **keys)
                    await self._clock.sleep(self._denied.next_s(BACKOFF_CAP_S))
                case _:
                    assert_never(ending)

    async def _watch_once(self) -> WatchEnding:
        """List if needed, then watch until the watch ends."""
        try:
            if self._since is None:
                await self._replace_all(*await self._read_all())
            request = Request("GET", self._path(self._watch_query()), self._client.headers)
            lines = watch_lines(self._client.transport, request, clock=self._clock, rest_s=self._rest_s)
            taken = 0  # many come together: a megabyte that was read at once has 500 small JobSets
            async with aclosing(lines):
                async for line in lines:
                    self._take(line)
                    taken += 1
                    await _let_others_run(taken)
        except (ApiError, TransportError) as error:
            return ending_of(error)
        return Closed()

    async def _list(self) -> tuple[list[T], str]:
        """Read the whole collection as of one moment."""
        items: list[T] = []
        version = ""
        try:
            async with aclosing(read_pages(self._client, self._path, self._selector, limit=self._page_limit)) as pages:
                async for page in pages:
                    self._last_activity_s = self._clock.monotonic_s()
                    for number, raw in enumerate(page.items or (), 1):
                        self._decode_into(items, raw)
                        await _let_others_run(number)
                    version = page.metadata.resource_version
        except Expired:  # read it in one piece next time
            self._page_limit = 0
            raise
        return items, version

    def _decode_into(self, items: list[T], raw: msgspec.Raw) -> None:
        """Decode one object; an unexpected one is logged and left out: it must not hide the others."""
        try:
            obj = self._codec.decode(raw)
        except (*UNREADABLE, KeyError) as error:
            self._log.error("object_skipped", kind=self.resource.kind, message=str(error), start=bytes(raw)[:80])
            return
        if self._keep is None or self._keep(obj):
            items.append(obj)

    async def _replace_all(self, items: list[T], resource_version: str) -> None:
        """Make the cache show exactly `items`, and tell the differences.

        The first time others run in between: nobody decides from a cache that is being filled. A cache that was full
        goes from one moment to another at once; most of it has not changed, and costs next to nothing.
        """
        self._since = resource_version
        if self._on_list is not None:
            self._on_list(version_number(resource_version) or 0)
        self._page_limit = self._page_size
        metas = [self._codec.meta(item) for item in items]
        new_keys = {meta.key for meta in metas}
        for key in [key for key in self._objects if key not in new_keys]:
            self._remove(key)
        for number, (item, meta) in enumerate(zip(items, metas, strict=True), 1):
            self._put(item, meta)
            if not self.has_synced:
                await _let_others_run(number)
        self._backoff.reset()
        self._denied.reset()
        if not self._synced.is_set():
            self._log.info("cache_filled", kind=self.resource.kind, objects=len(self._objects))
            self._synced.set()

    def _take(self, line: bytes) -> None:
        """Take in one line of the watch."""
        self._last_activity_s = self._clock.monotonic_s()
        try:
            change = self._codec.decode_change(line)
        except (*UNREADABLE, KeyError):
            self._take_other(line)
            return
        self._backoff.reset()
        meta = self._codec.meta(change.object)
        if self._keep is None or self._keep(change.object):
            if change.type == "DELETED":
                self._delete(meta)
            else:
                self._put(change.object, meta)
        self._since = meta.resource_version

    def _take_other(self, line: bytes) -> None:
        """Take in a bookmark, an error, or an object that is not as expected.

        Raises:
            ApiError: the server ended the watch, and said why.
            GarbledError: the line is no event of a watch.
        """
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                raise error_from_status(msgspec.json.decode(event.object))
            version = _BOOKMARK.decode(event.object).metadata.resource_version
        except UNREADABLE as error:
            raise GarbledError(f"expected a watch event, saw {line[:80]!r}") from error
        self._backoff.reset()
        if event.type != "BOOKMARK":
            self._decode_into([], event.object)  # says what is wrong with it
        self._since = version

    def _delete(self, meta: Meta) -> None:
        """Drop an object, unless what is shown is another of its name."""
        known = self._objects.get(meta.key)
        if known is not None and self._codec.meta(known).uid == meta.uid:
            self._remove(meta.key)

    def _put(self, new: T, meta: Meta) -> None:
        """Show `new`, unless what is shown is as new."""
        key = meta.key
        old = self._objects.get(key)
        if old is not None:
            shown = self._codec.meta(old)
            if shown.resource_version == meta.resource_version or is_older(meta, shown):
                return
            if shown.uid != meta.uid:
                self._remove(key)
                old = None
        self._objects[key] = new
        self._tell(old, new)

    def _remove(self, key: tuple[str, str]) -> None:
        old = self._objects.pop(key)
        self._tell(old, None)

    def _tell(self, old: T | None, new: T | None) -> None:
        for handler in self._handlers:
            handler(old, new)

    async def _resync(self, every_s: float) -> None:
        """Tell every object again, now and then: a safety net for handlers that missed something."""
        while True:
            await self._clock.sleep(every_s * self._rng.uniform(0.9, 1.1))
            for number, obj in enumerate(self, 1):
                if self._objects.get(self._codec.meta(obj).key) is obj:  # else it was told meanwhile
                    self._tell(obj, obj)
                await _let_others_run(number)

    def _watch_query(self) -> dict[str, str]:
        assert self._since is not None, "a watch starts where a list ended"
        life_s = self._rng.randint(*WATCH_LIFE_S)
        return self._selector | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._since,
            "timeoutSeconds": str(life_s),
        }

    def _path(self, query: dict[str, str]) -> str:
        return self.resource.path(self._namespace, query=query or None)


async def _let_others_run(number: int) -> None:
    """Give the loop a turn after every `TURN_OBJECTS` objects."""
    if number % TURN_OBJECTS == 0:
        await asyncio.sleep(0)
