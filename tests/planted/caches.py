"""Bugs between the API server and the programs: in watches, informers, the workqueue and backoff."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from inplace.agent.announce.retry_budget import RetryBudget
from inplace.common.kube import watch
from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import KubeObject
from inplace.common.kube.watch import Broken, Gone, WatchEnding
from inplace.common.kube.workqueue import WorkQueue
from tests.planted.bug import Area, hunted
from tests.planted.mistake import instead_of

Watching = Callable[..., Coroutine[Any, Any, WatchEnding]]


async def _is_patient(
    original: Callable[..., Coroutine[Any, Any, bytes | None]],
    chunks: AsyncIterator[bytes],
    clock: Clock,
    inactivity_s: float,
) -> bytes | None:
    return await original(chunks, clock, 1e9)


async def _resumes_what_is_gone(original: Watching, self: Informer[Any]) -> WatchEnding:
    ending = await original(self)
    return Broken(TransportError("410")) if isinstance(ending, Gone) else ending


async def _ends_when_broken(original: Watching, self: Informer[Any]) -> WatchEnding:
    ending = await original(self)
    if isinstance(ending, Broken):
        await asyncio.Event().wait()
    return ending


async def _keeps_what_vanished(
    original: Callable[..., Coroutine[Any, Any, None]], self: Informer[Any], items: list[Any], resource_version: str
) -> None:
    keys = {self._codec.meta(item).key for item in items}
    vanished = [obj for key, obj in self._objects.items() if key not in keys]
    await original(self, [*items, *vanished], resource_version)


def _absorbs_anything(original: Callable[..., None], self: Informer[Any], obj: KubeObject) -> None:
    new = self._codec.convert(obj)
    self._put(new, self._codec.meta(new))


def _does_not_wake(original: Callable[..., None], self: WorkQueue[Any], key: Any, delay_s: float) -> None:
    rescheduled, self._rescheduled = self._rescheduled, asyncio.Event()
    original(self, key, delay_s)
    self._rescheduled = rescheduled


def _moves_what_is_due(original: Callable[..., None], self: WorkQueue[Any], key: Any, delay_s: float) -> None:
    if delay_s > 0 and key in self._due_s and not self._shut_down:
        self._due_s[key] = self._clock.monotonic_s() + delay_s
        return
    original(self, key, delay_s)


INFORMER = (
    hunted(
        "a watch that went silent is never given up",
        Area.INFORMER,
        (instead_of(watch._next, _is_patient),),
        "kopf #957, #1120, #1276: the operator goes blind until it is restarted",
    ),
    hunted(
        "an informer resumes from the version that is gone",
        Area.INFORMER,
        (instead_of(Informer._watch_once, _resumes_what_is_gone),),
        "kubernetes_asyncio #327: 410 is retried with the same resourceVersion",
        faults=("api-compaction",),
    ),
    hunted(
        "an informer that lists again does not tell what vanished",
        Area.INFORMER,
        (instead_of(Informer._replace_all, _keeps_what_vanished),),
        "Sieve (OSDI'22): unobserved states",
        faults=("api-compaction", "api-410-storm", "pod-deleted"),
    ),
    hunted(
        "an informer ends with its first broken connection",
        Area.INFORMER,
        (instead_of(Informer._watch_once, _ends_when_broken),),
        "kubernetes_asyncio #235: the watch dies with an ordinary disconnect",
        faults=("watch-reset", "connection-refused"),
    ),
    hunted(
        "the answer to a write brings back what was deleted meanwhile",
        Area.INFORMER,
        (instead_of(Informer.absorb, _absorbs_anything),),
        faults=("api-slow-answer", "jobset-recreated", "job-deleted"),
    ),
)

QUEUE = (
    hunted(
        "a key that is added while it is processed is lost",
        Area.QUEUE,
        (
            instead_of(
                WorkQueue.add, lambda original, self, key: None if key in self._started_s else original(self, key)
            ),
        ),
        faults=("worker-exit", "event-delayed"),
    ),
    hunted(
        "a delayed key waits for the next one",
        Area.QUEUE,
        (instead_of(WorkQueue.add_after, _does_not_wake),),
        faults=("api-500", "conflict"),
    ),
    hunted(
        "a second delay of a key replaces an earlier one, and is dropped itself",
        Area.QUEUE,
        (instead_of(WorkQueue.add_after, _moves_what_is_due),),
        faults=("api-500", "conflict"),
    ),
)

BACKOFF = (
    hunted(
        "an agent does not listen to Retry-After",
        Area.BACKOFF,
        (
            instead_of(
                RetryBudget._in_line_s,
                lambda original, self, now_s, after_s, width_s: original(self, now_s, 0.0, width_s),
            ),
        ),
        faults=("api-429", "api-503"),
    ),
)
