"""
Read objects: single, lists with their resourceVersion rules, and watches.

Source: "Resource versions" and "Watch bookmarks" in Kubernetes' API concepts; k8s.io/apiserver/pkg/storage/cacher.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.negotiation import Format, bookmark, encode_event, encode_line
from inplace.simulator.apiserver.options import ApiServerOptions
from inplace.simulator.apiserver.route import Route, is_true
from inplace.simulator.apiserver.selectors import Predicate, all_of, field_selector, label_predicate
from inplace.simulator.apiserver.status import StatusCause
from inplace.simulator.apiserver.store import CollectionKey, ObjectKey, Store
from inplace.simulator.apiserver.watch_cache import Selection, WatchCache, Watcher

LAST_BOOKMARK_BEFORE_END_S = 2.0
"""How long before a watch's end its last bookmark comes. Source: cache_watcher.go."""

WATCH_BUFFER_MAX = 1_000
"""Events that a watcher may be behind before it is cut off; the real server does so after some tens and 100 ms."""
WATCH_TIMEOUT_S = (1800.0, 3600.0)
"""The range from which a watch without timeoutSeconds draws its life."""
CHUNK_EVENTS_MAX = 500
"""Events joined into one chunk, so that a long backlog leaves in bounded pieces."""


@dataclass(slots=True)
class StreamingResponse:
    """An answer whose body is still being produced; the same shape as `common.kube.http.request.Stream`.

    Args:
        source: makes the body's iterator; called once.
        on_close: frees what the stream holds, also when it is not read to its end.
    """

    status: int
    headers: Mapping[str, str]
    source: Callable[[], AsyncIterator[bytes]]
    on_close: Callable[[], None] = field(default=lambda: None)

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it is produced."""
        return self.source()

    def close(self) -> None:
        """Free the stream; idempotent."""
        self.on_close()


class Reads:
    """Answers get, list and watch from the store and its caches."""

    def __init__(self, store: Store, clock: Clock, rng: Random, options: ApiServerOptions) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._options = options
        self._caches: dict[CollectionKey, WatchCache] = {}
        self.on_cache: Callable[[WatchCache], None] = lambda _: None

    def cache(self, key: CollectionKey) -> WatchCache:
        """Return the watch cache of a resource."""
        found = self._caches.get(key)
        if found is None:
            lag = self._options.watch_cache_lag_s
            lag_s = None if lag is None else lambda: lag(key[1])
            found = self._caches[key] = WatchCache(self._store.collection(key), self._clock, lag_s)
            self.on_cache(found)
        return found

    def forget(self, key: CollectionKey) -> None:
        """Close the watches of a resource whose kind is gone."""
        cache = self._caches.pop(key, None)
        if cache is not None:
            cache.close_all()

    async def get(self, kind: Kind, route: Route) -> KubeObject:
        """Return one object; a resourceVersion in the query reads the cache, which may be older."""
        version = route.query.get("resourceVersion", "")
        object_key = (route.namespace, route.name)
        if version:
            cache = self.cache(kind.storage_key)
            await cache.wait_for(parse_version(version), self._store.revision)
            found = cache.objects().get(object_key)
        else:
            found = self._store.get(kind.storage_key, *object_key)
        if found is None:
            raise status.not_found(kind.plural, kind.group, route.name)
        return found

    def selection(self, kind: Kind, route: Route) -> Selection:
        """Return the selection that a request's namespace and selectors make."""
        predicates: list[Predicate] = []
        labels = label_predicate(route.query.get("labelSelector", ""))
        if labels is not None:
            predicates.append(labels)
        fields = field_selector(route.query.get("fieldSelector", ""), kind.storage.field_labels)
        name, namespace = fields.name, route.namespace
        if fields.predicate is not None:
            only_name = route.query.get("fieldSelector", "").count(",") == 0 and name is not None
            indexed = only_name and (bool(namespace) or not kind.resource.namespaced)
            if not indexed:
                predicates.append(fields.predicate)
                name = None
        return Selection(namespace, name, all_of(predicates))

    async def list(self, kind: Kind, route: Route) -> tuple[list[KubeObject], dict[str, Any]]:
        """Return the objects of a list in key order, and the list's metadata."""
        selection = self.selection(kind, route)
        query = route.query
        start = ""
        if query.get("continue"):
            if query.get("resourceVersion") not in (None, "", "0"):
                raise status.bad_request("specifying resource version is not allowed when using continue")
            revision, start = _parse_continue(query["continue"])
            state = self._state_at(kind, revision)
        else:
            state, revision = await self._list_state(kind, query)
        keys = sorted((key for key in state if selection.covers(key)), key=_etcd_key)
        keys = [key for key in keys if _etcd_key(key) >= start and selection.accepts(state[key])]
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        limit = int(query["limit"]) if query.get("limit", "").isdigit() else 0
        if limit and len(keys) > limit and query.get("resourceVersion") != "0":
            meta["continue"] = _continue_token(revision, _etcd_key(keys[limit - 1]) + "\0")
            if selection.predicate is None:
                meta["remainingItemCount"] = len(keys) - limit
            keys = keys[:limit]
        return [state[key] for key in keys], meta

    async def _list_state(self, kind: Kind, query: Mapping[str, str]) -> tuple[Mapping[ObjectKey, KubeObject], int]:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        if match and not version:
            raise _forbidden_option("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if match not in ("", "Exact", "NotOlderThan"):
            cause = status.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
            raise status.invalid("ListOptions", "meta.k8s.io", "", [cause])
        if not version:
            return self._store.collection(kind.storage_key).objects, self._store.revision
        wanted = parse_version(version)
        if match == "Exact":
            if wanted == 0:
                raise _forbidden_option('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
            return self._state_at(kind, wanted), wanted
        cache = self.cache(kind.storage_key)
        await cache.wait_for(wanted, self._store.revision)
        return cache.objects(), cache.revision(self._store.revision)

    def _state_at(self, kind: Kind, revision: int) -> Mapping[ObjectKey, KubeObject]:
        collection = self._store.collection(kind.storage_key)
        if revision > self._store.revision:
            raise status.too_large_resource_version(revision, self._store.revision)
        if revision < collection.floor:
            raise status.expired("The provided continue parameter or resourceVersion is too old to display a result.")
        return collection.state_at(revision)

    async def watch(self, kind: Kind, route: Route, answer: Format) -> StreamingResponse:
        """Open a watch; events from now on are already being buffered when this returns."""
        if answer.yaml:
            raise status.not_acceptable(["application/json;stream=watch"])
        selection = self.selection(kind, route)
        initial = _wants_initial_events(route.query)
        version = route.query.get("resourceVersion", "")
        if version and not version.isdigit():
            # The real server's watch storage returns a bare error here, which is a 500 without a reason.
            raise status.StatusError(500, "", _malformed_version(version))
        wanted = int(version or "0")
        cache = self.cache(kind.storage_key)
        if initial and route.query.get("sendInitialEvents") is not None:
            await cache.wait_for(wanted if version else self._store.revision, self._store.revision)
        reached = cache.revision(self._store.revision)
        after = reached if initial or wanted == 0 else wanted
        backlog: list[KubeObject] = []
        if initial:
            state = cache.objects()
            keys = [key for key in state if selection.covers(key) and selection.accepts(state[key])]
            backlog = [state[key] for key in sorted(keys, key=_etcd_key)]
        try:
            watcher = cache.open(selection, after=after, buffer_max=WATCH_BUFFER_MAX)
        except status.StatusError as error:
            return _error_stream(error)
        bookmarks = is_true(route.query.get("allowWatchBookmarks"))
        stream = _WatchStream(
            self._store,
            self._clock,
            cache,
            watcher,
            kind,
            answer,
            backlog,
            reached,
            self._life_s(route.query.get("timeoutSeconds", "")),
            self._options.bookmark_interval_s if bookmarks else None,
            # Also after initial events that the client did not ask for by name (resourceVersion unset or 0).
            end_bookmark=initial and bookmarks,
            with_columns=answer.view == "table",
        )
        headers = {"content-type": "application/json", "cache-control": "no-cache, private"}
        return StreamingResponse(200, headers, stream.chunks, lambda: cache.discard(watcher))

    def _life_s(self, timeout: str) -> float:
        if timeout.isdigit() and int(timeout) > 0:
            return float(timeout)
        return self._rng.uniform(*WATCH_TIMEOUT_S)


@dataclass(slots=True)
class _WatchStream:
    """Turn one watcher's buffer into lines of JSON.

    Args:
        backlog: the objects that it begins with, as they were at the revision `reached`.
        bookmark_interval_s: None where the client takes no bookmarks.
        with_columns: of a Table; the first event alone has them.
    """

    store: Store
    clock: Clock
    cache: WatchCache
    watcher: Watcher
    kind: Kind
    answer: Format
    backlog: list[KubeObject]
    reached: int
    life_s: float
    bookmark_interval_s: float | None
    end_bookmark: bool
    with_columns: bool

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield initial events, then events as they come, and bookmarks; end at the deadline or when too slow."""
        clock, watcher = self.clock, self.watcher
        deadline = clock.monotonic_s() + self.life_s
        next_bookmark = self._next_bookmark(deadline)
        try:
            for lines in self._initial_lines():
                yield lines
            while True:
                if watcher.buffer:
                    yield self._buffered_lines()
                    continue
                if watcher.closed or clock.monotonic_s() >= deadline:
                    return
                if clock.monotonic_s() >= next_bookmark:
                    next_bookmark = self._next_bookmark(deadline)
                    yield self._bookmark_line(self.cache.revision(self.store.revision), end=False)
                    continue
                try:
                    async with clock.timeout(min(deadline, next_bookmark) - clock.monotonic_s()):
                        await watcher.wait()
                except TimeoutError:
                    continue
        finally:
            self.cache.discard(watcher)

    def _next_bookmark(self, deadline: float) -> float:
        if self.bookmark_interval_s is None:
            return deadline
        now = self.clock.monotonic_s()
        last = deadline - LAST_BOOKMARK_BEFORE_END_S
        return min(now + self.bookmark_interval_s, last if last > now else deadline)

    def _initial_lines(self) -> Iterator[bytes]:
        """Yield the current objects as ADDED events, in bounded pieces, then the bookmark that ends them."""
        now_s = self.clock.wall_s()
        lines: list[bytes] = []
        for obj in self.backlog:
            lines.append(encode_line(self.kind, "ADDED", obj, self.answer, with_columns=self.with_columns, now_s=now_s))
            self.with_columns = False
            if len(lines) >= CHUNK_EVENTS_MAX:
                yield b"".join(lines)
                lines = []
        self.backlog = []
        if self.end_bookmark:
            lines.append(self._bookmark_line(self.reached, end=True))
        if lines:
            yield b"".join(lines)

    def _buffered_lines(self) -> bytes:
        now_s = self.clock.wall_s()
        buffer = self.watcher.buffer
        lines = []
        for _ in range(min(len(buffer), CHUNK_EVENTS_MAX)):
            seen_as, event = buffer.popleft()
            lines.append(
                encode_event(self.kind, event, seen_as, self.answer, with_columns=self.with_columns, now_s=now_s)
            )
            self.with_columns = False
        return lines[0] if len(lines) == 1 else b"".join(lines)

    def _bookmark_line(self, revision: int, *, end: bool) -> bytes:
        obj = bookmark(self.kind, revision, initial_events_end=end)
        line = encode_line(
            self.kind, "BOOKMARK", obj, self.answer, with_columns=self.with_columns, now_s=self.clock.wall_s()
        )
        self.with_columns = False
        return line


def parse_version(text: str) -> int:
    """Return a resourceVersion as a number; raises 400 for anything else."""
    if not text.isdigit():
        raise status.bad_request(f"invalid resource version: {_malformed_version(text)}")
    return int(text)


def _malformed_version(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _wants_initial_events(query: Mapping[str, str]) -> bool:
    """Return whether a watch starts with the current objects."""
    wants, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    if wants is None:
        if match:
            raise _forbidden_option("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return query.get("resourceVersion", "") in ("", "0")
    if match != "NotOlderThan":
        raise _forbidden_option("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    return is_true(wants)


def _forbidden_option(message: str) -> status.StatusError:
    cause = StatusCause("resourceVersionMatch", f"Forbidden: {message}", "FieldValueForbidden")
    return status.invalid("ListOptions", "meta.k8s.io", "", [cause])


def _error_stream(error: status.StatusError) -> StreamingResponse:
    """Return a watch whose only event carries the error, as the real server answers 410."""

    async def chunks() -> AsyncIterator[bytes]:
        yield json.dumps({"type": "ERROR", "object": error.status()}).encode() + b"\n"

    return StreamingResponse(200, {"content-type": "application/json"}, chunks)


def _etcd_key(key: ObjectKey) -> str:
    return f"{key[0]}/{key[1]}" if key[0] else key[1]


def _continue_token(revision: int, start: str) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _parse_continue(token: str) -> tuple[int, str]:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(decoded["rv"]), str(decoded["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
