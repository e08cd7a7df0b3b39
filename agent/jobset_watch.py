"""
Keep one watch of the JobSet open, for ever, and hand over each view of it.

Every way in which a watch can end is a value (`common.kube.watch.WatchEnding`); `agent.endings` says what
follows it. Two ways to begin: cheap (from the watch cache, possibly stale) and consistent (one quorum read
first). Once a read was consistent, so is everything that resumes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Final, NoReturn

from agent.config import AgentConfig
from agent.endings import Patience, cause_of, cure_of, words_of
from agent.jobset_events import Bookmark, ColumnsMissingError, Deleted, JobSetEvent, JobSetEvents, Seen
from agent.jobset_requests import list_request, watch_request
from agent.log import Log
from agent.metrics import AgentMetrics
from common.epoch.agent import View
from common.epoch.errors import RemoteProtocolError
from common.kube.clock import Clock
from common.kube.errors import ApiError, BadRequest, Invalid, Throttled, error_from_response
from common.kube.http import Transport, TransportError
from common.kube.watch import HEADERS_TIMEOUT_S, Busy, Closed, Gone, WatchEnding, ending_of, watch_lines
from common.wire import epochs_of_status

_NOT_ACCEPTABLE: Final = 406


class _Reopen:
    """End this stream and open the next at once: it would begin differently now."""


class JobSetWatch:
    """Watch one JobSet.

    Args:
        on_view: called with each view, in order.
        on_problem: called with the words of what is wrong, None when it works again.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        transport: Transport,
        clock: Clock,
        rng: Random,
        log: Log,
        metrics: AgentMetrics,
        on_view: Callable[[View], None],
        on_problem: Callable[[str | None], None],
    ) -> None:
        self._config = config
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._log = log
        self._metrics = metrics
        self._on_view = on_view
        self._on_problem = on_problem
        self._patience = Patience(rng)
        self._uid = config.jobset_uid
        self._version = ""  # resume from here; "" begins anew
        self._consistent = config.previous_epoch is None  # the stream begins, or began, with a consistent read
        self._as_table = config.prefer_table
        self._sends_initial_events = True  # the server knows sendInitialEvents
        self._answered = False  # the current stream delivered a line
        self._stale = False  # a view was not good enough: begin anew with a consistent read

    def take_consistent_view(self) -> None:
        """Begin anew with a consistent read as soon as the current view is dealt with."""
        self._stale = True

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        if self._config.start_jitter_s > 0:
            await self._clock.sleep(self._rng.uniform(0.0, self._config.start_jitter_s))
        while True:
            opened_s = self._clock.monotonic_s()
            ending = await self._once()
            if not isinstance(ending, _Reopen):
                await self._after(ending, self._clock.monotonic_s() - opened_s)

    async def _once(self) -> WatchEnding | _Reopen:
        """Hold one stream until it ends."""
        events = JobSetEvents()
        self._answered = False
        try:
            if self._consistent and not self._version and not self._sends_initial_events:
                await self._read_list(events)
            request = watch_request(
                self._config,
                as_table=self._as_table,
                resource_version=self._version,
                consistent=self._consistent,
                jitter=self._rng.random(),
            )
            lines = watch_lines(self._transport, request, clock=self._clock)
            async with aclosing(lines):
                async for line in lines:
                    self._count_answered()
                    self._take(events.read_line(line))
                    if self._stale:
                        self._stale, self._consistent, self._version = False, True, ""
                        return _Reopen()
        except ColumnsMissingError as error:
            self._log.info("table_columns_missing", message=str(error), then="watching whole objects")
            self._as_table = False
            return _Reopen()
        except (ApiError, TransportError) as error:
            return self._reopen_without(error) or ending_of(error)
        return Closed()

    def _reopen_without(self, error: ApiError | TransportError) -> _Reopen | None:
        """Drop what an older server does not know, once each."""
        if isinstance(error, ApiError) and error.code == _NOT_ACCEPTABLE and self._as_table:
            self._as_table = False
            return _Reopen()
        began_consistent = self._consistent and not self._version
        if isinstance(error, BadRequest | Invalid) and began_consistent and self._sends_initial_events:
            self._log.info("send_initial_events_refused", message=str(error), then="listing before each watch")
            self._sends_initial_events = False
            return _Reopen()
        return None

    async def _read_list(self, events: JobSetEvents) -> None:
        """Read the collection of one consistently, and note from where to watch."""
        request = list_request(self._config, as_table=self._as_table)
        response = await self._transport.request(request, timeout_s=HEADERS_TIMEOUT_S)
        if response.status >= 400:
            raise error_from_response(response)
        self._metrics.requests["list", "ok"] += 1
        jobsets, self._version = events.read_list(response.body)
        for seen in jobsets:
            self._show(seen)

    def _count_answered(self) -> None:
        if not self._answered:
            self._answered = True
            self._metrics.requests["watch", "ok"] += 1

    def _take(self, event: JobSetEvent) -> None:
        """Note how far the stream is, and hand over what it shows."""
        self._version = event.resource_version or self._version
        self._metrics.heard_s = self._clock.monotonic_s()
        self._on_problem(None)
        match event:
            case Bookmark(initial_end=True):
                self._log.debug("initial_events_end", resource_version=event.resource_version)
            case Bookmark():
                pass
            case Deleted():
                if self._is_ours(event.name, event.uid):
                    self._log.warning("jobset_deleted", uid=event.uid, then="waiting; this Pod should be deleted too")
            case Seen():
                self._show(event)

    def _show(self, seen: Seen) -> None:
        """Hand over a view, unless it is another JobSet's or malformed."""
        if not self._is_ours(seen.name, seen.uid):
            return
        self._uid = self._uid or seen.uid
        try:
            synced, deprecated = epochs_of_status(seen.status)
        except RemoteProtocolError as error:
            self._log.error("jobset_status_malformed", message=str(error), then="ignored this view")
            return
        self._on_view(View(synced, deprecated, in_place=seen.in_place, consistent=self._consistent))

    def _is_ours(self, name: str, uid: str) -> bool:
        """Say whether this is the JobSet this Pod belongs to; a recreated one of the same name is not."""
        if name == self._config.jobset_name and (not self._uid or uid == self._uid):
            return True
        self._log.warning(
            "jobset_ignored",
            expected=self._config.jobset_name,
            expected_uid=self._uid,
            seen=name,
            seen_uid=uid,
        )
        return False

    async def _after(self, ending: WatchEnding, lived_s: float) -> None:
        """Report an ending, prepare the next beginning, and wait as long as it takes."""
        cause = cause_of(ending)
        self._metrics.watch_endings[cause] += 1
        if not self._answered:
            self._metrics.requests["watch", cause] += 1
        if isinstance(ending, Gone):
            self._version, self._consistent = "", True
        wait_s = self._patience.wait_s(ending, lived_s)
        cure = cure_of(ending, "watch", "jobsets", self._config.namespace)
        fields = {"cause": cause, "message": words_of(ending), "retry_in_s": round(wait_s, 3)}
        match ending:
            case Closed() | Gone():
                self._log.debug("watch_ended", **fields)
            case _:
                self._on_problem(f"watch jobsets: {cause}: {words_of(ending)}")
                self._log.warning("watch_failed", **fields, **({"cure": cure} if cure else {}))
        if wait_s > 0:
            throttled = isinstance(ending, Busy) and isinstance(ending.error, Throttled)
            self._metrics.wait("watch", cause, wait_s, throttled=throttled)
            await self._clock.sleep(wait_s)
