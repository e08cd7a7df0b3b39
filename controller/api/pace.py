"""
Pace our writes: as fast as the server accepts them, and slower when it reports overload.

One window for all JobSets bounds the writes in flight. A large write takes several places of it, because what a write
costs the server grows with its size: a Job of 1 MB takes a second of CPU time, so it goes alone. The window halves when
the server is overloaded and grows by one for each windowful of successes (additive increase, multiplicative decrease,
as in TCP). After a 429 or 503 every write waits for Retry-After and a random time more. No write is dropped: a refused
write fails at its caller, which tries again with its own backoff, and writes that wait here have not been sent.

Where writes wait, namespaces have turns: `common.kube.fair_queue`. Who takes a place BEFORE he makes a large object
keeps none in memory while he waits.

Status writes of JobSets, for which whole groups of agents wait, need no place in the window: they wait for a pause
only. Reads, watches and the Lease (which has a client of its own) are not paced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from random import Random
from typing import Final

from inplace.common.kube.backoff import Backoff
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ServerError, Throttled, error_from_response
from inplace.common.kube.fair_queue import FairQueue
from inplace.common.kube.http.request import Request, Response, Stream, Transport, TransportError
from inplace.common.kube.resources import JOBSETS

BYTES_PER_PLACE: Final = 20_000  # most Jobs take one place, those of 1 MB the whole window
WRITES_MAX: Final = 48  # a connection each; the Lease, reads and status writes wait for none of them
PAUSE_BASE_S: Final = 0.1
PAUSE_CAP_S: Final = 5.0  # beyond Retry-After; a server that is down for long is asked about every 2.5 s
_HAS_PLACE: Final[ContextVar[bool]] = ContextVar("has place", default=False)  # the current task
_PAUSING: Final = frozenset({429, 503, 504})  # overload; another 5xx may be about one object (a webhook of its)


class PacedTransport:
    """A transport that lets writes through as the server can take them.

    Wrap it around the fence: what waits here must be fenced when it leaves.
    """

    def __init__(self, inner: Transport, *, clock: Clock, rng: Random) -> None:
        self._inner = inner
        self._clock = clock
        self._window = float(WRITES_MAX)
        self._in_flight = 0
        self._waiting: FairQueue[tuple[asyncio.Future[None], int]] = FairQueue()  # with the places that each needs
        self._cut_s = float("-inf")  # when the window was last halved; what was sent before knew nothing of it
        self._pause_until_s = float("-inf")
        self._pauses = Backoff(PAUSE_BASE_S, PAUSE_CAP_S, rng)

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request when its turn has come; `timeout_s` bounds the sending, not the waiting."""
        if request.method == "GET":
            return await self._inner.request(request, timeout_s=timeout_s)
        if is_status_write(request) or _HAS_PLACE.get():
            return await self._send(request, timeout_s)
        async with self.place(_namespace_of(request), len(request.body)):
            return await self._send(request, timeout_s)

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Open a stream at once."""
        return self._inner.stream(request, timeout_s=timeout_s)

    @property
    def window(self) -> int:
        """Return how many writes may be in flight."""
        return int(self._window)

    async def _send(self, request: Request, timeout_s: float) -> Response:
        """Send when no pause is on, and learn from the answer."""
        while (wait_s := self._pause_until_s - self._clock.monotonic_s()) > 0:
            await self._clock.sleep(wait_s)
        sent_s = self._clock.monotonic_s()
        try:
            response = await self._inner.request(request, timeout_s=timeout_s)
        except TransportError as error:
            if error.sent:
                self._slow_down(sent_s)
            raise
        if response.status == 429 or response.status >= 500:
            self._refused(response, sent_s)
        else:
            self._pauses.reset()
            self._window = min(float(WRITES_MAX), self._window + 1.0 / self._window)
        return response

    def _refused(self, response: Response, sent_s: float) -> None:
        """Slow down, once for all writes that were in flight together."""
        if not self._slow_down(sent_s):
            return
        error = error_from_response(response)
        after_s = error.after_s if isinstance(error, Throttled | ServerError) else 0.0
        if response.status in _PAUSING or after_s > 0:
            self._pause_until_s = self._clock.monotonic_s() + self._pauses.next_s(after_s)

    def _slow_down(self, sent_s: float) -> bool:
        """Halve the window; say False when it was halved after the write was sent."""
        if sent_s <= self._cut_s:
            return False
        self._cut_s = self._clock.monotonic_s()
        self._window = max(1.0, self._window / 2.0)
        return True

    @asynccontextmanager
    async def place(self, namespace: str, size: int) -> AsyncIterator[None]:
        """Wait for the turn of a namespace, and hold a place for writes of about so many bytes.

        The writes of the current task go in it, one after the other.
        """
        count = 1 + size // BYTES_PER_PLACE
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(namespace, (turn, count))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(count)
            raise
        before = _HAS_PLACE.set(True)
        try:
            yield
        finally:
            _HAS_PLACE.reset(before)
            self._leave(count)

    def _has_room(self, count: int) -> bool:
        """Say whether so many places are free; who needs more than the window has goes alone."""
        return self._in_flight == 0 or self._in_flight + count <= self.window

    def _leave(self, count: int) -> None:
        """Give places back."""
        self._in_flight -= count
        self._let_in()

    def _let_in(self) -> None:
        """Give free places to writes that wait. One that needs many stops those behind it: else it waits for ever."""
        while (head := self._waiting.head()) is not None:
            namespace, (turn, count) = head
            if turn.done():  # cancelled
                self._waiting.take(namespace, 0)
            elif self._has_room(count):
                self._waiting.take(namespace, count)
                self._in_flight += count
                turn.set_result(None)
            else:
                return


def _namespace_of(request: Request) -> str:
    """Return the namespace that a write goes to; "" for none."""
    _, _, namespaced = request.path.partition("/namespaces/")
    return namespaced.partition("/")[0]


def is_status_write(request: Request) -> bool:
    """Say whether a request writes the status of a JobSet."""
    *_, kind, _, subresource = request.path.partition("?")[0].split("/")
    return (kind, subresource) == (JOBSETS.plural, "status")
