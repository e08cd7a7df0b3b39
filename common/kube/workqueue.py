"""
A queue of keys to reconcile.

* Two lanes: keys that are urgent, or become urgent while they wait, come before all others. After `URGENT_RUN_MAX` of
  them in a row one other key comes, so that no key waits for ever.
* Fair: in each lane namespaces have turns, and keys of one namespace come out in the order in which they were added.
* A key needs a worker until its pass only waits for writes: who has many long passes keeps no worker from others. As
  many keys of one namespace are in work at once as there are workers.
* Once: a key is never processed twice at the same time. A key that is added several times before it is processed is
  processed once. A key that is added while it is processed is processed again.
* Delays and per-key exponential backoff use the same entry.
* A key that failed is not processed again before its pause is over, whatever asks for it. In client-go an event cuts
  the backoff short, so each event of a large group is a retry against a server that is in trouble.

Source of the semantics: k8s.io/client-go/util/workqueue; the metrics hooks carry its metrics' names.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from anyio import create_task_group
from anyio.abc import TaskGroup

from inplace.common.kube.clock import Clock
from inplace.common.kube.fair_queue import FairQueue

K = TypeVar("K", bound=Hashable)

BACKOFF_BASE_S = 0.005  # client-go's; the first retry is for conflicts and comes at once
BACKOFF_CAP_S = 60.0  # client-go says 1000 s; no user expects to wait a quarter of an hour
_DOUBLINGS_MAX = 30
PAUSE_S_MAX = 0.1  # what no event cuts short; an event may be a worker's death, so it does not wait for a long backoff
URGENT_RUN_MAX = 16  # urgent keys before an ordinary one: an ordinary key waits at most 16 times as long as alone


class QueueMetrics(Protocol):
    """What the queue reports; the method names are client-go's metrics."""

    def depth(self, keys: int) -> None:
        """Note how many keys wait."""

    def adds(self) -> None:
        """Count a key that entered the queue."""

    def queue_duration(self, seconds: float) -> None:
        """Note how long a key waited."""

    def work_duration(self, seconds: float) -> None:
        """Note how long a key was processed."""

    def retries(self) -> None:
        """Count a key that came back by backoff."""


class ShutDownError(Exception):
    """The queue takes and gives no more."""


class WorkQueue(Generic[K]):
    """Keys to process; the one consumer-side call is `work`, or `get` and `done` in pairs.

    Args:
        namespace_of: whose a key is.
        is_urgent: asked each time a key is added, also one that waits already; O(1).
    """

    def __init__(
        self,
        clock: Clock,
        *,
        metrics: QueueMetrics,
        namespace_of: Callable[[K], Hashable],
        is_urgent: Callable[[K], bool],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._namespace_of = namespace_of
        self._is_urgent = is_urgent
        self._ordinary: FairQueue[K] = FairQueue()
        self._urgent: FairQueue[K] = FairQueue()
        self._urgent_run = 0  # urgent keys since the last ordinary one
        self._added_s: dict[K, float] = {}  # waiting (also while being processed), and since when
        self._started_s: dict[K, float] = {}  # the keys that are being processed
        self._in_work: Counter[Hashable] = Counter()  # how many of them, by namespace
        self._busy: set[K] = set()  # those of them that need a worker
        self._workers, self._reserved = math.inf, 0  # set by `work`; a caller of `get` bounds himself
        self._later: list[tuple[float, int, K]] = []
        self._due_s: dict[K, float] = {}  # the earliest time at which a delayed key is due
        self._sequence = 0
        self._failures: dict[K, int] = {}
        self._paused_until_s: dict[K, float] = {}  # the keys that failed, and those whose pause is over as well
        self._shut_down = False
        self._ready = asyncio.Event()  # something changed for those who wait in `get`
        self._rescheduled = asyncio.Event()  # something changed for the one who waits in `run_delays`

    def __len__(self) -> int:
        return len(self._ordinary) + len(self._urgent)

    def processing(self) -> dict[K, float]:
        """Return the keys in work and for how many seconds."""
        now_s = self._clock.monotonic_s()
        return {key: now_s - started_s for key, started_s in self._started_s.items()}

    def add(self, key: K) -> None:
        """Ask for `key` to be processed; O(1). One that already waits moves at most to the urgent lane."""
        if self._shut_down:
            return
        if key in self._added_s:
            if self._is_urgent(key) and self._ordinary.discard(self._namespace_of(key), key):
                self._enqueue(key)
            return
        if key not in self._started_s and (pause_s := self._pause_s(key)) > 0:
            self.add_after(key, pause_s)
            return
        self._added_s[key] = self._clock.monotonic_s()
        self._metrics.adds()
        if key not in self._started_s:
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add `key` in `delay_s` seconds; an earlier time already set stands."""
        if delay_s <= 0:
            self.add(key)
            return
        due_s = self._clock.monotonic_s() + delay_s
        if self._shut_down or self._due_s.get(key, due_s + 1) <= due_s:
            return
        self._due_s[key] = due_s
        self._sequence += 1
        heapq.heappush(self._later, (due_s, self._sequence, key))
        self._rescheduled.set()

    def add_rate_limited(self, key: K, floor_s: float = 0.0) -> None:
        """Add `key` after `floor_s` plus its backoff, which doubles with each call until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._metrics.retries()
        backoff_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(failures, _DOUBLINGS_MAX))
        self._paused_until_s[key] = self._clock.monotonic_s() + min(PAUSE_S_MAX, backoff_s)
        self.add_after(key, floor_s + backoff_s)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`, after a success."""
        self._failures.pop(key, None)
        self._paused_until_s.pop(key, None)

    def _pause_s(self, key: K) -> float:
        """Return for how long nothing brings a key back that failed; 0 or less for no time."""
        return self._paused_until_s.get(key, 0.0) - self._clock.monotonic_s()

    def shut_down(self) -> None:
        """Take no more keys and give out no more; what is being processed may finish."""
        self._shut_down = True
        self._ready.set()
        self._rescheduled.set()

    async def get(self) -> K:
        """Wait for the next key; call `done` with it after. One caller at a time.

        Raises:
            ShutDownError: `shut_down` was called.
        """
        while True:
            if self._shut_down:
                raise ShutDownError
            if (key := self._take_next()) is not None:
                break
            self._ready.clear()
            await self._ready.wait()
        now_s = self._clock.monotonic_s()
        self._metrics.queue_duration(now_s - self._added_s.pop(key))
        self._metrics.depth(len(self))
        self._started_s[key] = now_s
        self._in_work[self._namespace_of(key)] += 1
        self._busy.add(key)
        return key

    def _take_next(self) -> K | None:
        """Take the key whose turn it is; None when nothing waits that a worker is free for."""
        urgent = self._head(self._urgent, self._workers + self._reserved)
        ordinary = self._head(self._ordinary, self._workers)
        if urgent is not None and (self._urgent_run < URGENT_RUN_MAX or ordinary is None):
            self._urgent_run += 1
            return self._urgent.take(urgent[0])
        if ordinary is not None:
            self._urgent_run = 0
            return self._ordinary.take(ordinary[0])
        return None

    def _head(self, lane: FairQueue[K], workers: float) -> tuple[Hashable, K] | None:
        """Return the next key of a lane, of the namespaces that have fewer in work than there are workers."""
        return lane.head(lambda namespace: self._in_work[namespace] < workers) if len(self._busy) < workers else None

    def free_worker(self, key: K) -> bool:
        """Give the worker of a key in work to another key; say False when that was done before."""
        if key not in self._busy:
            return False
        self._busy.remove(key)
        self._ready.set()
        return True

    def done(self, key: K) -> None:
        """Say that processing `key` is over; if it was added meanwhile it is queued again."""
        self._metrics.work_duration(self._clock.monotonic_s() - self._started_s.pop(key))
        namespace = self._namespace_of(key)
        self._in_work[namespace] -= 1
        if not self._in_work[namespace]:
            del self._in_work[namespace]
        self._busy.discard(key)
        self._ready.set()
        if key not in self._added_s:
            return
        if (pause_s := self._pause_s(key)) > 0:
            del self._added_s[key]
            self.add_after(key, pause_s)
        else:
            self._enqueue(key)

    async def work(self, process: Callable[[K], Awaitable[None]], *, workers: int, reserved: int = 0) -> None:
        """Process keys with so many workers, until shut down; return when those in work are done.

        So many `reserved` workers come on top and take urgent keys only: all others may be busy with something long.
        `process` must not raise: what an error means for a key (retry, drop) is its decision.
        """
        assert workers >= 1, f"expected at least one worker, saw {workers}"
        self._workers, self._reserved = workers, reserved
        async with create_task_group() as group:
            group.start_soon(self._run_delays, name="delays")
            async with create_task_group() as crew:
                crew.start_soon(self._work_once, process, crew, name="work")
            group.cancel_scope.cancel()

    async def _work_once(self, process: Callable[[K], Awaitable[None]], crew: TaskGroup) -> None:
        """Wait for a key, let a task of its own wait for the next one, and process it."""
        try:
            key = await self.get()
        except ShutDownError:
            return
        crew.start_soon(self._work_once, process, crew, name="work")
        try:
            await process(key)
        finally:
            self.done(key)

    async def _run_delays(self) -> None:
        """Move keys over when they are due."""
        while not self._shut_down:
            self._rescheduled.clear()
            now_s = self._clock.monotonic_s()
            while self._later and self._later[0][0] <= now_s:
                due_s, _, key = heapq.heappop(self._later)
                if self._due_s.get(key) == due_s:
                    del self._due_s[key]
                    self.add(key)
            wait_s = self._later[0][0] - now_s if self._later else None
            try:
                async with self._clock.timeout(wait_s):
                    await self._rescheduled.wait()
            except TimeoutError:
                continue

    def _enqueue(self, key: K) -> None:
        lane = self._urgent if self._is_urgent(key) else self._ordinary
        lane.put(self._namespace_of(key), key)
        self._metrics.depth(len(self))
        self._ready.set()
