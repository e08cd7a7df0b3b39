"""
Send Kubernetes Events about JobSets without blocking; repeats become one Event with a series.

Guarantees: emitting never blocks and never fails. At most `QUEUE_MAX` Events wait, and `OF_NAMESPACE_MAX` of one
namespace, so that one namespace cannot keep out the Events of another. The rest are dropped and counted in the log.
Source of the form: events.k8s.io/v1, client-go/tools/events.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from random import Random

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import EVENTS, KubeObject
from inplace.common.kube.timestamps import micro_time
from inplace.controller.spec.note import Note
from inplace.controller.tracking.accepted_status import AcceptedStatus

REPORTER = "inplace-controller"
ACTION = "Reconciling"
QUEUE_MAX = 1000  # a controller that cannot reach the server must not collect Events for ever
OF_NAMESPACE_MAX = 250  # of those; a namespace of 5,000 Pods says a dozen things when its group restarts
SERIES_MAX = 4096  # series remembered, the least recently used go first; client-go's cache size
SERIES_LIFE_S = 360.0  # a repeat after six minutes is news again; client-go's
SERIES_FLUSH_S = 5.0  # a series is written at most this often
REPORT_DROPPED_S = 10.0
NOTE_BYTES_MAX = 1024  # the API's limit: Go's len() counts bytes, and a longer note is refused whole

_Key = tuple[str, Note]  # UID of the JobSet, and what is said


@dataclass(slots=True)
class _Series:
    """One Event that was written, and how often it happened since."""

    namespace: str
    name: str
    count: int
    last_s: float
    stored: bool = False
    flush_due_s: float = 0.0
    queued: bool = True


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
        self._queue: asyncio.Queue[tuple[_Key, KubeObject]] = asyncio.Queue(QUEUE_MAX)
        self._waiting: Counter[str] = Counter()  # by namespace
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
        if series is None or now_s - series.last_s > SERIES_LIFE_S:
            name = f"{metadata['name'][:200]}.{self._rng.getrandbits(64):016x}"
            series = self._series[key] = _Series(metadata["namespace"], name, 1, now_s)
        else:
            series.count += 1
            series.last_s = now_s
            if series.queued:
                return
            series.queued = True
        self._series.move_to_end(key)
        if len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)
        series.queued = self._put(key, regarding)
        self._dropped += not series.queued

    def emit_notes(self, accepted: AcceptedStatus) -> None:
        """Say what an accepted status means to a person."""
        for note in accepted.planned.notes:
            self.emit(accepted.before.raw, note)

    async def run(self) -> None:
        """Write Events until cancelled, one at a time."""
        while True:
            key, regarding = await self._queue.get()
            self._waiting.subtract((regarding["metadata"]["namespace"],))
            series = self._series.get(key)
            if series is None:
                continue
            wait_s = series.flush_due_s - self._clock.monotonic_s()
            self._report_dropped()
            if wait_s > 0:
                await self._later(key, regarding, series, wait_s)
                continue
            series.queued = False
            self._put_back = 0
            try:
                await self._write(key[1], regarding, series)
            except (ApiError, TransportError) as error:
                self._log.warning("event_not_written", reason=key[1].reason, message=str(error))

    def _report_dropped(self) -> None:
        """Say now and then how many Events found no place: a thousand JobSets make thousands of them."""
        if self._dropped and self._clock.monotonic_s() >= self._report_due_s:
            self._log.warning("events_dropped", count=self._dropped, waiting=self._queue.qsize())
            self._dropped, self._report_due_s = 0, self._clock.monotonic_s() + REPORT_DROPPED_S

    async def _later(self, key: _Key, regarding: KubeObject, series: _Series, wait_s: float) -> None:
        """Put a series back until it may be written again; do not spin when all that is queued waits."""
        self._put_back += 1
        if self._put_back > self._queue.qsize():
            self._put_back = 0
            await self._clock.sleep(min(wait_s, 1.0))
        series.queued = self._put(key, regarding)

    def _put(self, key: _Key, regarding: KubeObject) -> bool:
        """Let an Event wait for its turn; say whether there is a place for it."""
        namespace = regarding["metadata"]["namespace"]
        if self._queue.full() or self._waiting[namespace] >= OF_NAMESPACE_MAX:
            return False
        self._queue.put_nowait((key, regarding))
        self._waiting[namespace] += 1
        return True

    async def _write(self, note: Note, regarding: KubeObject, series: _Series) -> None:
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
        await self._client.create(EVENTS, series.namespace, self._event(note, regarding, series, now))
        series.stored = True

    def _event(self, note: Note, regarding: KubeObject, series: _Series, now: str) -> KubeObject:
        metadata = regarding["metadata"]
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
