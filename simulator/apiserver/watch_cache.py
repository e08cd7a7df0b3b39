"""
Serve watches of one resource from a cache that may trail the store, as the real server does.

Guarantees: a watcher sees the events of its selection in resourceVersion order, none twice, none missing; if that
becomes impossible (it asks for forgotten history, it is too slow) its stream ends. Watchers of a single object or
namespace are indexed, so other objects' events cost them nothing.
Deliberately encodes nothing: events go out through a `Watcher`, whose reader encodes once per format.
Source: k8s.io/apiserver/pkg/storage/cacher.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.selectors import Predicate
from inplace.simulator.apiserver.status import expired, too_large_resource_version
from inplace.simulator.apiserver.store import Collection, Event, EventType, ObjectKey

CATCH_UP_S = 3.0
"""How long a consistent read waits for the cache. Source: watch_cache.go blockTimeout."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a watcher or list: a namespace ("" is all), one name or all, and a predicate on the object."""

    namespace: str = ""
    name: str | None = None
    predicate: Predicate | None = None

    def accepts(self, obj: KubeObject) -> bool:
        """Return whether the predicate holds; namespace and name are matched by key."""
        return self.predicate is None or self.predicate(obj)

    def covers(self, key: ObjectKey) -> bool:
        """Return whether namespace and name match."""
        return (not self.namespace or key[0] == self.namespace) and (self.name is None or key[1] == self.name)


@dataclass(eq=False, slots=True)
class Watcher:
    """One open watch: a bounded buffer between the cache and the stream's reader."""

    selection: Selection
    buffer_max: int
    after: int
    buffer: deque[tuple[EventType, Event]] = field(default_factory=deque)
    closed: bool = False
    _wake: asyncio.Future[None] | None = None

    def offer(self, event: Event) -> None:
        """Buffer the event if it concerns this watcher; close a watcher that is too far behind."""
        if self.closed or event.revision <= self.after:
            return
        seen_as = self.seen_as(event)
        if seen_as is None:
            return
        if len(self.buffer) >= self.buffer_max:
            self.closed = True
        else:
            self.buffer.append((seen_as, event))
        self.wake()

    def seen_as(self, event: Event) -> EventType | None:
        """Return the event's type for this selection: an object may enter or leave it by changing."""
        if self.selection.predicate is None:
            return event.type
        accepts = self.selection.predicate
        before = event.old is not None and accepts(event.old)
        after = event.type != "DELETED" and accepts(event.obj)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None

    def wake(self) -> None:
        """Let the reader look at the buffer."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """End the watch after the buffered events."""
        self.closed = True
        self.wake()

    async def wait(self) -> None:
        """Return when something is buffered or the watch is closed."""
        if self.buffer or self.closed:
            return
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None


class WatchCache:
    """The cache of one collection and its watchers."""

    def __init__(self, collection: Collection, clock: Clock, lag_s: Callable[[], float] | None) -> None:
        self._collection = collection
        self._clock = clock
        self._lag_s = lag_s
        self._late_objects: dict[ObjectKey, KubeObject] | None = None if lag_s is None else dict(collection.objects)
        self._late_events: deque[tuple[float, Event]] = deque()
        self._late_work: asyncio.Event = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._watchers: dict[tuple[str, str | None], dict[Watcher, None]] = {}  # by their namespace and name
        collection.listeners.append(self._receive)

    def objects(self) -> dict[ObjectKey, KubeObject]:
        """Return the cached objects; do not modify."""
        return self._collection.objects if self._late_objects is None else self._late_objects

    def revision(self, store_revision: int) -> int:
        """Return the resourceVersion up to which the cache is complete."""
        return self._late_events[0][1].revision - 1 if self._late_events else store_revision

    def watcher_count(self) -> int:
        """Return the number of open watches."""
        return sum(map(len, self._watchers.values()))

    async def wait_for(self, revision: int, store_revision: int) -> None:
        """Wait until the cache has reached `revision`; raise 504 after CATCH_UP_S."""
        if self.revision(store_revision) >= revision:
            return
        try:
            async with self._clock.timeout(CATCH_UP_S):
                while self.revision(store_revision) < min(revision, store_revision):
                    moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(moved)
                    await moved
                if revision > store_revision:
                    await self._clock.sleep(CATCH_UP_S)
        except TimeoutError:
            raise too_large_resource_version(revision, self.revision(store_revision)) from None

    def open(self, selection: Selection, *, after: int, buffer_max: int) -> Watcher:
        """Register a watcher whose buffer starts with the events since `after`.

        Raises:
            StatusError: 410, `after` is older than the history.
        """
        if after < self._collection.floor:
            raise expired(f"too old resource version: {after} ({self._collection.floor})")
        watcher = Watcher(selection, buffer_max, after)
        reached = self._late_events[0][1].revision - 1 if self._late_events else None
        for event in self._collection.events_after(after):
            if reached is not None and event.revision > reached:
                break  # the cache has not applied this event yet and will offer it later
            seen_as = watcher.seen_as(event) if selection.covers(event.key) else None
            if seen_as is not None:
                watcher.buffer.append((seen_as, event))
        self._watchers.setdefault((selection.namespace, selection.name), {})[watcher] = None
        return watcher

    def discard(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        place = (watcher.selection.namespace, watcher.selection.name)
        bucket = self._watchers.get(place, {})
        bucket.pop(watcher, None)
        if not bucket:
            self._watchers.pop(place, None)

    def close_all(self) -> None:
        """End every watch, as a restarting server does."""
        for watcher in [one for bucket in self._watchers.values() for one in bucket]:
            watcher.close()

    async def run(self) -> None:
        """Apply late events when they are due; only a cache with lag has any."""
        while True:
            while self._late_events:
                due, event = self._late_events[0]
                wait_s = due - self._clock.monotonic_s()
                if wait_s > 0:
                    await self._clock.sleep(wait_s)
                self._late_events.popleft()
                self._apply(event)
            self._late_work.clear()
            await self._late_work.wait()

    def _receive(self, event: Event) -> None:
        lag_s = 0.0 if self._lag_s is None else self._lag_s()
        if lag_s <= 0 and not self._late_events:
            self._apply(event)
            return
        # Order is kept: an event is never due before the one in front of it.
        due = self._clock.monotonic_s() + lag_s
        if self._late_events:
            due = max(due, self._late_events[-1][0])
        self._late_events.append((due, event))
        self._late_work.set()

    def _apply(self, event: Event) -> None:
        if self._late_objects is not None:
            if event.type == "DELETED":
                self._late_objects.pop(event.key, None)
            else:
                self._late_objects[event.key] = event.obj
        namespace = event.key[0]
        for place in (event.key, (namespace, None), *((("", None),) if namespace else ())):
            for watcher in self._watchers.get(place, ()):
                watcher.offer(event)
        waiting, self._waiting = self._waiting, []
        for moved in waiting:
            if not moved.done():
                moved.set_result(None)
