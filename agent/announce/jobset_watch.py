"""
Read the JobSet, keep one watch of what follows open, for ever, and hand over each view.

Every way in which a watch can end is a value (`common.kube.watch.WatchEnding`); `agent.announce.retry_causes` says what
follows it. Two ways to begin: a cheap list (from the watch cache, possibly stale) and a consistent one (a quorum
read). Once a list was consistent, so is everything that resumes from it.

Between the list and the watch comes the announcement: the watch, which never ends, would keep their connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NoReturn

from inplace.agent.announce.jobset_events import (
    Bookmark,
    ColumnsMissingError,
    Deleted,
    JobSetEvent,
    JobSetEvents,
    OtherScopeError,
    Seen,
    is_of,
    saving_epoch_of,
    view_of,
)
from inplace.agent.announce.jobset_requests import begins_consistent, list_request, watch_request
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.announce.retry_causes import cause_of, cure_of, words_of
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.errors import ApiError, BadRequest, Invalid, Throttled, check_answer
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.watch import HEADERS_TIMEOUT_S, Busy, Closed, Gone, WatchEnding, ending_of, watch_lines
from inplace.common.protocol.agent import View
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.names import STACKS_REQUESTED
from inplace.common.wire.stacks import parse_request

_NOT_ACCEPTABLE: Final = 406


class _Reopen:
    """Begin again at once: it would begin differently now."""


class JobSetWatch:
    """Watch one JobSet.

    Args:
        budget: shared with the announcement.
        on_view: called with each view, in order.
        on_limits: called BEFORE each view with what the JobSet says of the watchdog's limits.
        on_saving: called AFTER a view with the epoch whose workers are asked to save, if it says one.
        on_completed: called AFTER a view of a JobSet whose work is done.
        on_stacks: called with the id of a request for stacks that came after the first view.
        on_notices: called AFTER a view with what other Pods tell of their workers, where that is news.
        on_problem: called with the words of what is wrong, None when it works again.
        before_watch: awaited before each watch; returns when no other request needs the connection.
    """

    def __init__(
        self,
        config: AgentConfig,
        deps: AgentDeps,
        *,
        budget: RetryBudget,
        on_view: Callable[[View], None],
        on_limits: Callable[[str | None], None],
        on_saving: Callable[[int], object],
        on_completed: Callable[[], object],
        on_stacks: Callable[[int], object],
        on_notices: Callable[[Sequence[object]], object],
        on_problem: Callable[[str | None], None],
        before_watch: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._transport = deps.transport
        self._clock = deps.clock
        self._rng = deps.rng
        self._log = deps.log
        self._metrics = deps.metrics
        self._on_view = on_view
        self._on_limits = on_limits
        self._on_saving = on_saving
        self._on_completed = on_completed
        self._on_stacks = on_stacks
        self._on_notices = on_notices
        self._on_problem = on_problem
        self._before_watch = before_watch
        self._budget = budget
        self._uid = config.jobset_uid
        self._stacks: str | None = None  # the last request's text
        self._notices: list[object] = []  # the last view's
        self._has_seen = False  # one view; its request for stacks is older than this process
        self._version = ""  # resume from here; "" begins anew
        self._consistent = begins_consistent(config)  # the next list is, or the last one was, a consistent read
        self._as_table = config.prefer_table
        self._sends_state = True  # the server knows sendInitialEvents (Kubernetes 1.32, and 1.34 on)
        self._verb = "list"  # of the request that is out, or was last
        self._answered = False  # it was taken
        self._stale = False  # a view was not good enough: begin anew with a consistent read

    def take_consistent_view(self) -> None:
        """Begin anew with a consistent read as soon as the current view is dealt with."""
        self._stale = True

    async def look(self, timeout_s: float) -> View:
        """Read the JobSet consistently, beside the watch and whatever that does.

        Raises:
            ApiError, TransportError: the server did not answer.
            RemoteProtocolError: it has no such JobSet, or none that can be read.
        """
        request = list_request(self._config, as_table=self._as_table, consistent=True)
        response = await self._transport.request(request, timeout_s=timeout_s)
        check_answer(response)
        try:
            jobsets, _ = JobSetEvents().read_list(response.body)
        except ColumnsMissingError as error:
            raise RemoteProtocolError(str(error)) from error
        seen = next((seen for seen in jobsets if is_of(seen, self._config.jobset_name, self._uid)), None)
        if seen is None:
            raise RemoteProtocolError(f"expected JobSet {self._config.jobset_name}, saw none of its uid")
        # Consistent as of now, and not as of the machine's beginning: nothing may be chosen from it alone.
        return view_of(seen, self._config, consistent=False)

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        if self._config.start_slot_s > 0:
            await self._clock.sleep(self._config.start_slot_s)
        while True:
            ending = await self._once()
            if not isinstance(ending, _Reopen):
                await self._after(ending)

    async def _once(self) -> WatchEnding | _Reopen:
        """Read the list unless there is a version to resume from, and hold one watch until it ends."""
        events = JobSetEvents()
        try:
            if not self._version:
                await self._list(events)
            if not self._stale:
                await self._before_watch()
                await self._watch(events)
        except ColumnsMissingError as error:
            self._log.info("table_columns_missing", message=str(error), then="reading whole objects")
            self._as_table, self._version = False, ""
            return _Reopen()
        except (ApiError, TransportError) as error:
            return self._reopen_without(error) or ending_of(error)
        if self._stale:
            self._stale, self._consistent, self._version = False, True, ""
            return _Reopen()
        return Closed()

    def _reopen_without(self, error: ApiError | TransportError) -> _Reopen | None:
        """Drop what this server does not know, once each."""
        if isinstance(error, ApiError) and error.code == _NOT_ACCEPTABLE and self._as_table:
            self._as_table = False
            return _Reopen()
        if isinstance(error, BadRequest | Invalid) and self._verb == "watch" and self._as_table and self._sends_state:
            self._log.info("send_initial_events_refused", message=str(error), then="watching from the last version")
            self._sends_state = False
            return _Reopen()
        return None

    async def _list(self, events: JobSetEvents) -> None:
        """Read the collection of one, show it, and note from where to watch."""
        self._verb, self._answered = "list", False
        request = list_request(self._config, as_table=self._as_table, consistent=self._consistent)
        response = await self._transport.request(request, timeout_s=HEADERS_TIMEOUT_S)
        check_answer(response)
        jobsets, self._version = events.read_list(response.body)
        self._note_answered()
        for seen in jobsets:
            self._show(seen)

    async def _watch(self, events: JobSetEvents) -> None:
        """Follow what comes after the last version, until the stream ends or a view was not good enough."""
        self._verb, self._answered = "watch", False
        request = watch_request(
            self._config,
            as_table=self._as_table,
            resource_version=self._version,
            from_state=self._as_table and self._sends_state,
            jitter=self._rng.random(),
        )
        lines = watch_lines(self._transport, request, clock=self._clock, on_open=self._note_answered)
        async with aclosing(lines):
            async for line in lines:
                self._take(events.read_line(line))
                if self._stale:
                    return

    def _note_answered(self) -> None:
        """Count a request that the server took; what was wrong is over."""
        self._answered = True
        self._metrics.requests[self._verb, "ok"] += 1
        self._metrics.heard_s = self._clock.monotonic_s()
        self._budget.note_success(self._metrics.heard_s)
        self._on_problem(None)

    def _take(self, event: JobSetEvent) -> None:
        """Note how far the stream is, and hand over what it shows."""
        self._version = event.resource_version or self._version
        self._metrics.heard_s = self._clock.monotonic_s()
        match event:
            case Bookmark():
                pass
            case Deleted():
                if self._is_ours(event):
                    self._log.warning("jobset_deleted", uid=event.uid, then="waiting; this Pod should be deleted too")
            case Seen():
                self._show(event)

    def _show(self, seen: Seen) -> None:
        """Hand over a view, unless it is another JobSet's or malformed."""
        if not self._is_ours(seen):
            return
        self._uid = self._uid or seen.uid
        self._on_limits(seen.stall)
        try:
            view = view_of(seen, self._config, consistent=self._consistent)
        except OtherScopeError as error:
            self._log.error("restart_scope_unknown", message=str(error), then="nothing is announced, no worker starts")
            self._on_problem(f"restart scope: {error}")
            return
        except RemoteProtocolError as error:
            self._log.error("jobset_status_malformed", message=str(error), then="ignored this view")
            return
        self._on_view(view)
        if (epoch := saving_epoch_of(seen, self._config.restart_scope)) is not None:
            self._on_saving(epoch)
        if seen.completed:
            self._on_completed()
        self._note_stacks(seen.stacks)
        notices = seen.notices if isinstance(seen.notices, list) else []
        if notices != self._notices:
            self._notices = notices
            self._on_notices(notices)

    def _note_stacks(self, text: str | None) -> None:
        """Take a request for stacks, once; one that is older than this process asked the worker before."""
        is_news = self._has_seen and text not in (None, self._stacks)
        self._stacks, self._has_seen = text, True
        if text is None or not is_news:
            return
        try:
            self._on_stacks(parse_request(text))
        except RemoteProtocolError as error:
            self._log.warning(
                "stacks_request_refused", message=f"{STACKS_REQUESTED}: {error}", then="no worker is asked"
            )

    def _is_ours(self, seen: Seen | Deleted) -> bool:
        """Say whether this is the JobSet this Pod belongs to."""
        if is_of(seen, self._config.jobset_name, self._uid):
            return True
        self._log.warning(
            "jobset_ignored",
            expected=self._config.jobset_name,
            expected_uid=self._uid,
            seen=seen.name,
            seen_uid=seen.uid,
        )
        return False

    async def _after(self, ending: WatchEnding) -> None:
        """Report an ending, prepare the next beginning, and wait as long as it takes."""
        cause = cause_of(ending)
        self._metrics.watch_endings[cause] += 1
        if not self._answered:
            self._metrics.requests[self._verb, cause] += 1
        if isinstance(ending, Gone):
            self._version, self._consistent = "", True
        wait_s = self._budget.wait_s(ending, self._clock.monotonic_s())
        cure = cure_of(ending, self._verb, "jobsets", self._config.namespace)
        fields = {"cause": cause, "message": words_of(ending), "retry_in_s": round(wait_s, 3)}
        match ending:
            case Closed() | Gone():
                self._log.debug("watch_ended", **fields)
            case _:
                self._on_problem(f"{self._verb} jobsets: {cause}: {words_of(ending)}")
                self._log.warning("watch_failed", **fields, **({"cure": cure} if cure else {}))
        if wait_s > 0:
            throttled = isinstance(ending, Busy) and isinstance(ending.error, Throttled)
            self._metrics.wait(self._verb, cause, wait_s, throttled=throttled)
            await self._clock.sleep(wait_s)
