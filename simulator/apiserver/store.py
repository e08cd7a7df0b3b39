"""
Keep every object, the one resourceVersion counter, and each resource's recent history.

Guarantees: every committed write gets its own resourceVersion, and all observers are called in order, before the
write returns. Stored objects are never modified: a write replaces the outer dictionaries and shares the rest.
Deliberately knows nothing of kinds, validation or HTTP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from inplace.common.kube.resources import KubeObject

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
ObjectKey = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""
CollectionKey = tuple[str, str]
"""Group and plural."""

HISTORY_EVENTS_MAX = 20_000
"""Events kept per resource; older resourceVersions get 410. The real window is at least 75 seconds or 100 events."""
WARM_EVENTS_MAX = 256
"""Events per resource that keep their encoded forms. A late watcher encodes older events again; this saves memory."""


class Event:
    """One committed write.

    Attributes:
        obj: the object after the write; for DELETED its last state, with the deletion's resourceVersion.
        old: the object before the write.
        encoded: the event's bytes by (type, format), so that 5,000 watchers cost one encoding.
    """

    __slots__ = ("encoded", "key", "obj", "old", "revision", "type")

    def __init__(
        self, revision: int, event_type: EventType, key: ObjectKey, obj: KubeObject, old: KubeObject | None
    ) -> None:
        self.revision = revision
        self.type: EventType = event_type
        self.key = key
        self.obj = obj
        self.old = old
        self.encoded: dict[object, bytes] = {}


class Collection:
    """All objects of one resource and its recent events."""

    def __init__(self, key: CollectionKey, revision: int, history_events_max: int) -> None:
        self.key = key
        self.objects: dict[ObjectKey, KubeObject] = {}
        self.history: deque[Event] = deque()
        self.floor = revision  # watches may start here or later
        self.listeners: list[Callable[[Event], None]] = []
        self._history_events_max = history_events_max
        self._warm: deque[Event] = deque()

    def record(self, event: Event) -> None:
        """Append an event to the history and tell the listeners."""
        self.history.append(event)
        if len(self.history) > self._history_events_max:
            self.floor = self.history.popleft().revision
        self._warm.append(event)
        if len(self._warm) > WARM_EVENTS_MAX:
            self._warm.popleft().encoded.clear()
        for listener in self.listeners:
            listener(event)

    def events_after(self, revision: int) -> list[Event]:
        """Return the events newer than `revision`, which must not be below the floor."""
        newer: list[Event] = []
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            newer.append(event)
        newer.reverse()
        return newer

    def state_at(self, revision: int) -> dict[ObjectKey, KubeObject]:
        """Return the objects as they were at `revision`, by undoing newer events."""
        state = dict(self.objects)
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            if event.old is None:
                del state[event.key]
            else:
                state[event.key] = event.old
        return state

    def forget_before(self, revision: int) -> None:
        """Drop the history up to `revision`, as a compaction does."""
        while self.history and self.history[0].revision <= revision:
            self.history.popleft()
        self.floor = max(self.floor, revision)


class Store:
    """The collections, by group and plural."""

    def __init__(self, *, history_events_max: int = HISTORY_EVENTS_MAX) -> None:
        self.revision = 1
        self._history_events_max = history_events_max
        self._collections: dict[CollectionKey, Collection] = {}
        self._listeners: list[Callable[[CollectionKey, Event], None]] = []

    def collection(self, key: CollectionKey) -> Collection:
        """Return a resource's collection; an unknown one is empty and starts now."""
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = Collection(key, self.revision, self._history_events_max)
        return found

    def drop(self, key: CollectionKey) -> None:
        """Forget a collection whose kind is gone."""
        self._collections.pop(key, None)

    def collections(self) -> Iterator[Collection]:
        """Yield every collection."""
        yield from list(self._collections.values())

    def get(self, key: CollectionKey, namespace: str, name: str) -> KubeObject | None:
        """Return one object."""
        return self.collection(key).objects.get((namespace, name))

    def put(self, key: CollectionKey, obj: KubeObject) -> KubeObject:
        """Commit a new or changed object and return it with its resourceVersion."""
        collection = self.collection(key)
        meta = obj["metadata"]
        object_key = (meta.get("namespace") or "", meta["name"])
        old = collection.objects.get(object_key)
        self.revision += 1
        stored = {**obj, "metadata": {**meta, "resourceVersion": str(self.revision)}}
        collection.objects[object_key] = stored
        self._commit(collection, Event(self.revision, "ADDED" if old is None else "MODIFIED", object_key, stored, old))
        return stored

    def remove(self, key: CollectionKey, obj: KubeObject) -> KubeObject:
        """Commit a deletion and return the last state with the deletion's resourceVersion.

        `obj` is what watchers see; it may differ from the stored state (e.g. carry a deletionTimestamp).
        """
        collection = self.collection(key)
        meta = obj["metadata"]
        object_key = (meta.get("namespace") or "", meta["name"])
        old = collection.objects.pop(object_key)
        self.revision += 1
        gone = {**obj, "metadata": {**meta, "resourceVersion": str(self.revision)}}
        self._commit(collection, Event(self.revision, "DELETED", object_key, gone, old))
        return gone

    def listen(self, listener: Callable[[CollectionKey, Event], None]) -> Callable[[], None]:
        """Call `listener(collection key, event)` on every committed write; return a function that ends this.

        The listener runs inside the write and must not modify the objects.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _commit(self, collection: Collection, event: Event) -> None:
        collection.record(event)
        for listener in tuple(self._listeners):
            listener(collection.key, event)
