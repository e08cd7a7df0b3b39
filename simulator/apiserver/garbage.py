"""
Delete objects without an owner: dependents of deleted owners, contents of terminating namespaces.

Level-based: an owner's or dependent's event puts uids into a queue; the worker looks at the current state. Source:
k8s.io/kubernetes/pkg/controller/garbagecollector, .../controller/namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.deletion import FOREGROUND, ORPHAN, DeleteOptions, Deletions
from inplace.simulator.apiserver.kinds import Kind, Registry, with_metadata
from inplace.simulator.apiserver.store import CollectionKey, Event, ObjectKey, Store
from inplace.simulator.apiserver.writes import NAMESPACES_KEY, WriteOptions, Writes

_COLLECTOR = WriteOptions(
    user="system:serviceaccount:kube-system:generic-garbage-collector", manager="kube-controller-manager"
)

Place = tuple[CollectionKey, ObjectKey]


@dataclass(slots=True)
class _Work:
    """The uids that the worker must look at; dictionaries are ordered sets."""

    owners: dict[str, None]
    dependents: dict[Place, None]
    namespaces: dict[str, None]


class GarbageCollector:
    """Follows owner references through the store."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        writes: Writes,
        deletions: Deletions,
        clock: Clock,
        delay_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._registry = registry
        self._writes = writes
        self._deletions = deletions
        self._clock = clock
        self._delay_s = delay_s
        self._alive: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, None]] = {}
        self._work = _Work({}, {}, {})
        self._wake = asyncio.Event()
        store.listen(self._observe)

    async def run(self) -> None:
        """Work until cancelled, in rounds: a Job's Pods follow one pause after the Job."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep(self._delay_s())
            self._collect()

    def _collect(self) -> None:
        """Do the work that is due now; the work that follows from it is the next round's."""
        work, self._work = self._work, _Work({}, {}, {})
        for place in work.dependents:
            self._check_dependent(place)
        for uid in work.owners:
            self._check_owner(uid)
        for namespace in work.namespaces:
            self._check_namespace(namespace)

    def _observe(self, key: CollectionKey, event: Event) -> None:
        meta = event.obj["metadata"]
        owners = meta.get("ownerReferences")
        before = event.old["metadata"].get("ownerReferences") if event.old is not None else None
        place = (key, event.key)
        if owners is not before or event.type == "DELETED":
            self._index(place, owners, before, gone=event.type == "DELETED")
        if event.type == "ADDED":
            self._alive[meta["uid"]] = place
        elif event.type == "DELETED":
            self._alive.pop(meta["uid"], None)
            if meta["uid"] in self._dependents:
                self._add(owner=meta["uid"])
            if event.key[0]:
                self._touch_namespace(event.key[0])
        if meta.get("deletionTimestamp") and event.type != "DELETED":
            if key == NAMESPACES_KEY:
                self._add(namespace=event.key[1])
            held = meta.get("finalizers") or ()
            if ORPHAN in held or FOREGROUND in held:
                self._add(owner=meta["uid"])

    def _touch_namespace(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES_KEY, "", name)
        if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
            self._add(namespace=name)

    def _index(
        self, place: Place, owners: list[KubeObject] | None, before: list[KubeObject] | None, *, gone: bool
    ) -> None:
        for owner in before or ():
            places = self._dependents.get(owner["uid"])
            if places is not None:
                places.pop(place, None)
                self._add(owner=owner["uid"])
                if not places:
                    del self._dependents[owner["uid"]]
        if gone:
            return
        for owner in owners or ():
            self._dependents.setdefault(owner["uid"], {})[place] = None
            if owner["uid"] not in self._alive:
                self._add(dependent=place)

    def _add(self, *, owner: str = "", dependent: Place | None = None, namespace: str = "") -> None:
        if owner:
            self._work.owners[owner] = None
        if dependent is not None:
            self._work.dependents[dependent] = None
        if namespace:
            self._work.namespaces[namespace] = None
        self._wake.set()

    def _kind(self, obj: KubeObject) -> Kind | None:
        return self._registry.by_object(obj["apiVersion"], obj["kind"])

    def _find(self, place: Place) -> KubeObject | None:
        return self._store.get(place[0], *place[1])

    def _check_owner(self, uid: str) -> None:
        dependents = list(self._dependents.get(uid, ()))
        home = self._alive.get(uid)
        owner = self._find(home) if home is not None else None
        if owner is None:
            for place in dependents:
                self._check_dependent(place)
            return
        held = owner["metadata"].get("finalizers") or ()
        if not owner["metadata"].get("deletionTimestamp"):
            return
        if ORPHAN in held:
            for dependent in dependents:
                self._disown(dependent, {uid})
            self._release(owner, ORPHAN)
        elif FOREGROUND in held:
            self._foreground(owner, dependents)

    def _foreground(self, owner: KubeObject, dependents: list[Place]) -> None:
        uid = owner["metadata"]["uid"]
        blocking = 0
        for place in dependents:
            dependent = self._find(place)
            if dependent is None:
                continue
            references = dependent["metadata"].get("ownerReferences") or ()
            blocks = any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in references)
            blocking += blocks
            if dependent["metadata"].get("deletionTimestamp"):
                continue
            if all(ref["uid"] == uid or ref["uid"] not in self._alive for ref in references):
                self._delete(dependent, "Foreground" if blocks and place[0][1] != "pods" else "Background")
        left = [place for place in self._dependents.get(uid, ()) if self._find(place) is not None]
        if not blocking or not left:
            self._release(owner, FOREGROUND)

    def _check_dependent(self, place: Place) -> None:
        obj = self._find(place)
        if obj is None:
            return
        references = obj["metadata"].get("ownerReferences") or ()
        gone = {ref["uid"] for ref in references if ref["uid"] not in self._alive}
        if not gone:
            return
        if len(gone) < len(references):
            self._disown(place, gone)
        elif not obj["metadata"].get("deletionTimestamp"):
            self._delete(obj, None)

    def _delete(self, obj: KubeObject, propagation: str | None) -> None:
        kind = self._kind(obj)
        if kind is not None:
            # The collector passes a background policy on, unless the object itself asks for another one.
            self._deletions.delete(kind, obj, DeleteOptions(propagation or "Background"))

    def _disown(self, place: Place, uids: set[str]) -> None:
        obj = self._find(place)
        kind = self._kind(obj) if obj is not None else None
        if obj is None or kind is None:
            return
        rest = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] not in uids]
        self._writes.replace(kind, obj, with_metadata(obj, ownerReferences=rest or None), _COLLECTOR)

    def _release(self, obj: KubeObject, finalizer: str) -> None:
        place = self._alive.get(obj["metadata"]["uid"])
        current = self._find(place) if place is not None else None
        kind = self._kind(obj)
        if current is None or kind is None:
            return
        rest = [held for held in current["metadata"].get("finalizers") or () if held != finalizer]
        self._writes.replace(kind, current, with_metadata(current, finalizers=rest or None), _COLLECTOR)

    def _check_namespace(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES_KEY, "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        left = 0
        for collection in self._store.collections():
            for (within, _), obj in list(collection.objects.items()):
                if within != name:
                    continue
                kind = self._kind(obj)
                if kind is not None and not obj["metadata"].get("deletionTimestamp"):
                    self._deletions.delete(kind, obj, DeleteOptions("Background"))
                left += (within, obj["metadata"]["name"]) in collection.objects
        if not left and namespace["spec"].get("finalizers"):
            kind = self._kind(namespace)
            assert kind is not None
            emptied = namespace | {"spec": namespace["spec"] | {"finalizers": []}}
            if not namespace["metadata"].get("finalizers"):
                self._store.remove(NAMESPACES_KEY, emptied)
            else:
                self._store.put(NAMESPACES_KEY, emptied)
