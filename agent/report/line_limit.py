"""
Bound the log lines that somebody else can cause: so many a minute of each kind, and a count of what was left out.

Any process of the Pod may connect to the link, write progress files or ask the barrier, as often as it likes.
"""

from __future__ import annotations

from inplace.agent.report.log_line import LevelLog
from inplace.common.bare.typed import TYPE_CHECKING, Any, Callable, Final

if TYPE_CHECKING:
    from inplace.agent.report.log import Log

LINES_A_MINUTE: Final = 10  # of one kind: enough to see what is wrong; 14,400 a day at most
PERIOD_S: Final = 60.0


class LineLimit:
    """Count the lines of one kind.

    Args:
        now_s: seconds on a clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._began_s = now_s()
        self._lines = 0

    def take(self) -> int | None:
        """Return how many lines were left out before this one; None: leave this one out, too."""
        left_out = 0
        if self._now_s() - self._began_s >= PERIOD_S:
            left_out = self.rest()
            self._began_s, self._lines = self._now_s(), 0
        self._lines += 1
        return left_out if self._lines <= LINES_A_MINUTE else None

    def rest(self) -> int:
        """Return how many lines have been left out, once."""
        left_out, self._lines = max(0, self._lines - LINES_A_MINUTE), min(self._lines, LINES_A_MINUTE)
        return left_out


class LimitedLog(LevelLog):
    """A log for what others cause, with a limit on each event.

    Args:
        log: where lines go.
        now_s: as `LineLimit` has it.
    """

    def __init__(self, log: Log, now_s: Callable[[], float]) -> None:
        self._inner_log = log
        self._now_s = now_s
        self._limits: dict[str, LineLimit] = {}  # by event, of which a program has a fixed number

    def close(self) -> None:
        """Say what has been left out so far."""
        for event, limit in self._limits.items():
            if left_out := limit.rest():
                self._inner_log.warning("log_lines_left_out", of=event, lines=left_out)

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        limit = self._limits.get(event)
        if limit is None:
            limit = self._limits[event] = LineLimit(self._now_s)
        left_out = limit.take()
        if left_out is None:
            return
        if left_out:
            self._inner_log.warning("log_lines_left_out", of=event, lines=left_out)
        getattr(self._inner_log, level)(event, **fields)
