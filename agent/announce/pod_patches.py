"""
Send the PATCHes of this agent's Pod: announcements, reports of failures, notices.

What one was refused with (429, Retry-After) holds for all. Where deploy/admission is older than this agent, it refuses
the last line of a worker that failed: then the line is left out, there and from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from inplace.agent.announce.retry_causes import cause_of
from inplace.agent.report.log import Log
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Forbidden, Invalid, check_answer
from inplace.common.kube.http.request import Request, Response, Transport, TransportError
from inplace.common.kube.watch import Busy, ending_of


class PodPatches:
    """Sends one agent's PATCHes, and counts those that fail.

    Attributes:
        last_line: of the worker, once it ended by itself with a code other than 0; a text of `common.wire.last_line`.
        ended_s: when that was, Unix time; None while there is none.
    """

    def __init__(self, transport: Transport, clock: Clock, log: Log, metrics: AgentMetrics) -> None:
        self._transport = transport
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._until_s = float("-inf")
        self.last_line = ""
        self.ended_s: float | None = None
        self._is_line_refused = False

    @property
    def left_s(self) -> float:
        """Return for how many seconds no PATCH is wanted; 0 for none."""
        return max(0.0, self._until_s - self._clock.monotonic_s())

    def hold_back(self, after_s: float) -> None:
        """Begin a pause of `after_s` seconds, because the server asked for it."""
        self._until_s = max(self._until_s, self._clock.monotonic_s() + after_s)

    def note_end(self, epoch: int, ended_s: float, line: str) -> None:
        """Note when the worker of an epoch ended by itself, and its last line: the next PATCH tells both."""
        from inplace.common.wire.last_line import last_line_text

        self.ended_s, self.last_line = ended_s, last_line_text(epoch, ended_s, line)

    def forget_end(self) -> None:
        """Tell no more of the last worker: the next one starts."""
        self.ended_s, self.last_line = None, ""

    async def send(self, request: Request, timeout_s: float) -> Response:
        """Send a PATCH that the server takes.

        Raises:
            ApiError, TransportError: it does not.
        """
        try:
            response = await self._transport.request(request, timeout_s=timeout_s)
            check_answer(response)
        except (ApiError, TransportError) as error:
            ending = ending_of(error)
            self._metrics.requests["patch", cause_of(ending)] += 1
            if isinstance(ending, Busy):
                self.hold_back(ending.after_s)
            raise
        return response

    async def send_with_line(self, make: Callable[[str], Request], timeout_s: float) -> Response:
        """Send a PATCH with the last line of the worker that failed, or without it if there is none or it is refused.

        Args:
            make: makes the request with a line.
            timeout_s: for each of the two.

        Raises:
            ApiError, TransportError: the server does not take it either way.
        """
        if self.last_line and not self._is_line_refused:
            try:
                return await self.send(make(self.last_line), timeout_s)
            except (Forbidden, Invalid):
                self._is_line_refused = True
                self._log.warning("last_line_refused", then="no PATCH of this process has it")
        return await self.send(make(""), timeout_s)
