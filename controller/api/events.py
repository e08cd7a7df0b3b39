"""
Send Kubernetes Events about JobSets without blocking; repeats become one Event with a series.

Guarantees: emitting never blocks and never fails. At most `QUEUE_MAX` Events wait. A namespace may take as many places
as are free, and namespaces are served in turn: a thousand of them that say too much keep no other out. About one object
and with one reason at most BURST Events are written at once, and then one in REFILL_S: a worker that makes texts which
cannot be read hides nothing else about its group. The rest are dropped and counted in the log.
Source of the form: events.k8s.io/v1, client-go/tools/events.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from random import Random

from inplace.common.jobset.note import Note
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.fair_queue import FairQueue
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import EVENTS, KubeObject
from inplace.common.kube.timestamps import micro_time
from inplace.controller.tracking.group import AcceptedStatus

REPORTER = "inplace-controller"
ACTION = "Reconciling"
QUEUE_MAX = 1000  # a controller that cannot reach the server must not collect Events for ever
BURST, REFILL_S = 25, 300.0  # client-go's, for an object; by reason too, so that no flood hides another reason
SERIES_MAX = 4096  # series remembered, the least recently used go first; client-go's cache size
SERIES_LIFE_S = 360.0  # a repeat after six minutes is news again; client-go's
SERIES_FLUSH_S = 5.0  # a series is written at most this often
REPORT_DROPPED_S = 10.0
NOTE_BYTES_MAX = 1024  # the API's limit: Go's len() counts bytes, and a longer note is refused whole

_Key = tuple[str, Note]  # UID of the JobSet, and what is said


@dataclass(slots=True)
class _Series:
    """One Event that was written, about an object as it was last seen, and how often it happened since."""

    regarding: KubeObject
    namespace: str
    name: str
    count: int
    last_s: float
    stored: bool = False
    flush_due_s: float = 0.0
    queued: bool = True


class _Buckets:
    """Tokens, BURST for each object and reason, one more each REFILL_S; the least recently used ones are forgotten."""

    def __init__(self) -> None:
        self._full_s: OrderedDict[tuple[str, str], float] = OrderedDict()  # when each has all its tokens again

    def take(self, key: _Key, now_s: float) -> bool:
        """Take a token; say whether there was one."""
        uid, note = key
        full_s = max(self._full_s.get((uid, note.reason), 0.0), now_s) + REFILL_S
        if full_s - now_s > BURST * REFILL_S:
            return False
        self._full_s[uid, note.reason] = full_s
        self._full_s.move_to_end((uid, note.reason))
        if len(self._full_s) > SERIES_MAX:
            self._full_s.popitem(last=False)
        return True


class EventRecorder:
    """Writes Events in the background; `run` it beside the work.

    Args:
        instance: reportingInstance, the name of this process.
    """

    def __init__(self, client: KubeClient, *, clock: Clock, rng: Random, log: Log, instance: str) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._log = log
        self._instance = instance
        self._queue: FairQueue[_Key] = FairQueue()
        self._some = asyncio.Event()  # some wait
        self._buckets = _Buckets()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._dropped = 0  # since the last report
        self._report_due_s = float("-inf")
        self._put_back = 0  # in a row; as many as are queued means that there is nothing to write yet

    def emit(self, regarding: KubeObject, note: Note) -> None:
        """Say something about an object; returns at once."""
        metadata = regarding["metadata"]
        key = (metadata["uid"], note)
        now_s = self._clock.monotonic_s()
        series = self._series.get(key)
        is_news = series is None or now_s - series.last_s > SERIES_LIFE_S
        if series is not None and not is_news:
            series.count += 1
            series.last_s = now_s
            if series.queued:
                return
        if not self._buckets.take(key, now_s):
            self._dropped += is_news  # a repeat is counted, and told with a later one
            return
        if series is None or is_news:
            name = f"{metadata['name'][:200]}.{self._rng.getrandbits(64):016x}"
            series = self._series[key] = _Series(regarding, metadata["namespace"], name, 1, now_s)
        self._series.move_to_end(key)
        if len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)
        series.regarding = regarding
        self._put(key, series)
        self._dropped += not series.queued

    def emit_notes(self, accepted: AcceptedStatus) -> None:
        """Say what an accepted status means to a person."""
        for note in accepted.planned.notes:
            self.emit(accepted.before.raw, note)

    async def run(self) -> None:
        """Write Events until cancelled, one at a time."""
        while True:
            key = await self._next()
            series = self._series.get(key)
            if series is None:
                continue
            wait_s = series.flush_due_s - self._clock.monotonic_s()
            self._report_dropped()
            if wait_s > 0:
                await self._later(key, series, wait_s)
                continue
            series.queued = False
            self._put_back = 0
            try:
                await self._write(key[1], series)
            except (ApiError, TransportError) as error:
                self._log.warning("event_not_written", reason=key[1].reason, message=str(error))

    def _put(self, key: _Key, series: _Series) -> None:
        """Let a series wait for its namespace's turn, unless the namespace has as many places as are free."""
        self._queue.discard(series.namespace, key)  # of a series that was forgotten while it waited
        series.queued = self._queue.count(series.namespace) < QUEUE_MAX - len(self._queue)
        if series.queued:
            self._queue.put(series.namespace, key)
            self._some.set()

    async def _next(self) -> _Key:
        """Return what waits longest in the namespace whose turn it is."""
        while (head := self._queue.head()) is None:
            self._some.clear()
            await self._some.wait()
        return self._queue.take(head[0])

    def _report_dropped(self) -> None:
        """Say now and then how many Events found no place: a thousand JobSets make thousands of them."""
        if self._dropped and self._clock.monotonic_s() >= self._report_due_s:
            self._log.warning("events_dropped", count=self._dropped, waiting=len(self._queue))
            self._dropped, self._report_due_s = 0, self._clock.monotonic_s() + REPORT_DROPPED_S

    async def _later(self, key: _Key, series: _Series, wait_s: float) -> None:
        """Put a series back until it may be written again; do not spin when all that is queued waits."""
        self._put_back += 1
        if self._put_back > len(self._queue):
            self._put_back = 0
            await self._clock.sleep(min(wait_s, 1.0))
        self._put(key, series)

    async def _write(self, note: Note, series: _Series) -> None:
        """Create the Event, or update the count of its series."""
        series.flush_due_s = self._clock.monotonic_s() + SERIES_FLUSH_S
        now = micro_time(self._clock)
        if series.stored:
            counted = {"count": series.count, "lastObservedTime": now}
            try:
                await self._client.patch(EVENTS, series.namespace, series.name, {"series": counted})
                return
            except NotFound:  # it expired on the server, one hour after it was written
                series.stored = False
        await self._client.create(EVENTS, series.namespace, self._event(note, series, now))
        series.stored = True

    def _event(self, note: Note, series: _Series, now: str) -> KubeObject:
        regarding, metadata = series.regarding, series.regarding["metadata"]
        event: KubeObject = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": now,
            "reportingController": REPORTER,
            "reportingInstance": self._instance,
            "action": ACTION,
            "reason": note.reason,
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "note": _shortened(note.message),
            "type": "Warning" if note.warning else "Normal",
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": now}
        return event


def _shortened(text: str) -> str:
    """Return what fits into a note, with dots where something is left out."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= NOTE_BYTES_MAX:
        return encoded.decode()
    return encoded[: NOTE_BYTES_MAX - len("...")].decode(errors="ignore") + "..."
