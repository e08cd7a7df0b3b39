"""The watch cache alone: bounds, lag, the past. Its selections are in tests/conformance/test_watch.py."""

from __future__ import annotations

import asyncio

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.status import StatusError
from inplace.simulator.apiserver.store import Store
from inplace.simulator.apiserver.watch_cache import Selection, WatchCache, Watcher

KEY = ("", "things")


def _thing(name: str, namespace: str = "ns", **labels: str) -> KubeObject:
    return {"kind": "Thing", "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels}}


def _store(history: int = 100) -> tuple[Store, WatchCache]:
    store = Store(history_events_max=history)
    return store, WatchCache(store.collection(KEY), LoopClock(), None)


def _seen(watcher: Watcher) -> list[tuple[str, str]]:
    return [(seen_as, event.key[1]) for seen_as, event in watcher.buffer]


def test_forgotten_history_is_expired() -> None:
    """A resourceVersion older than the window raises 410, the oldest one in it does not."""
    store, cache = _store(history=2)
    start = store.revision
    for name in "abc":
        store.put(KEY, _thing(name))
    with pytest.raises(StatusError) as refused:
        cache.open(Selection(), after=start, buffer_max=10)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert _seen(cache.open(Selection(), after=start + 1, buffer_max=10)) == [("ADDED", "b"), ("ADDED", "c")]


def test_slow_watcher_is_closed_and_nobody_else() -> None:
    """A watcher whose buffer is full is closed with what it has; the others go on."""
    store, cache = _store()
    slow = cache.open(Selection(), after=store.revision, buffer_max=1)
    fast = cache.open(Selection(), after=store.revision, buffer_max=10)
    for name in "abc":
        store.put(KEY, _thing(name))
    assert slow.closed
    assert _seen(slow) == [("ADDED", "a")]
    assert not fast.closed
    assert len(fast.buffer) == 3


def test_the_past_can_be_reconstructed() -> None:
    """state_at undoes newer creations, changes and deletions."""
    store = Store(history_events_max=100)
    first = store.put(KEY, _thing("a"))
    store.put(KEY, _thing("gone"))
    then = store.revision
    store.put(KEY, _thing("a", changed="yes"))
    store.remove(KEY, _thing("gone"))
    store.put(KEY, _thing("new"))
    state = store.collection(KEY).state_at(then)
    assert sorted(name for _, name in state) == ["a", "gone"]
    assert state["ns", "a"] is first


def test_discarded_watchers_leave_nothing_behind() -> None:
    """Opening and discarding watchers does not grow the cache."""
    store, cache = _store()
    for name in "abc":
        cache.discard(cache.open(Selection("ns", name), after=store.revision, buffer_max=10))
    assert cache.watcher_count() == 0


def test_listeners_hear_every_write_until_they_leave() -> None:
    """Store.listen reports key, type, new and old in order, and stops when told."""
    store = Store(history_events_max=100)
    heard: list[tuple[str, str, bool]] = []
    leave = store.listen(lambda key, event: heard.append((key[1], event.type, event.old is None)))
    store.put(KEY, _thing("a"))
    store.put(KEY, _thing("a", x="y"))
    store.remove(KEY, _thing("a"))
    leave()
    store.put(KEY, _thing("b"))
    assert heard == [("things", "ADDED", True), ("things", "MODIFIED", False), ("things", "DELETED", False)]


@pytest.mark.asyncio
async def test_lagging_cache_delivers_late_and_in_order() -> None:
    """With a lag the cache keeps the old state until it has passed; a consistent read waits for it."""
    store = Store(history_events_max=100)
    lags = iter([0.03, 0.0, 0.0])
    cache = WatchCache(store.collection(KEY), LoopClock(), lambda: next(lags))
    watcher = cache.open(Selection(), after=store.revision, buffer_max=10)
    running = asyncio.create_task(cache.run())
    before = store.revision
    store.put(KEY, _thing("a"))
    store.put(KEY, _thing("b"))
    assert cache.objects() == {}
    assert cache.revision(store.revision) == before
    assert _seen(watcher) == []
    await cache.wait_for(store.revision, store.revision)
    assert _seen(watcher) == [("ADDED", "a"), ("ADDED", "b")]
    assert cache.revision(store.revision) == store.revision
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
