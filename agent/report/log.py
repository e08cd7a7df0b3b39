"""
Logging that costs nothing before the announcement: lines wait in a list.

`load` is called in the shadow of the network wait; lines written before come out then, in order, with the time at which
they were written. Only the console's format loads structlog, which takes about as long as the agent's whole start.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from inplace.agent.report.log_line import LevelLog, log_line, rfc3339
from inplace.common.bare.typed import Any, Final, Protocol, TextIO

BUFFERED_LINES_MAX: Final = 1000  # far more than any start writes; beyond it the oldest lines are counted, not kept
LEVELS: Final = ("debug", "info", "warning", "error")


class Log(Protocol):
    """What the agent needs of a logger; structlog's bound loggers fit."""

    def debug(self, event: str, **fields: Any) -> Any:
        """Log what only a developer wants."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log a step of the protocol."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log a problem that goes away by itself."""

    def error(self, event: str, **fields: Any) -> Any:
        """Log a problem that a person must cure."""


class LazyLog(LevelLog):
    """Buffer lines until `load`, then write them.

    Args:
        style: "json" or "console".
        level: the least level that is written, one of LEVELS.
        stream: where lines go; None is standard error, by a writer that never waits for the log's reader.
        wall_s: seconds since the Unix epoch, for the time stamps.
    """

    def __init__(
        self,
        style: str = "json",
        level: str = "info",
        stream: TextIO | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._style = style
        self._least = LEVELS.index(level)
        self._stream = stream
        self._wall_s = wall_s
        self._waiting: list[tuple[float, str, str, dict[str, Any]]] = []
        self._dropped = 0
        self._write: Callable[[float, str, str, dict[str, Any]], None] = self._keep

    @property
    def loaded(self) -> bool:
        """Say whether lines are written: the start is over, and what is heavy may be imported."""
        return self._write != self._keep

    def load(self) -> None:
        """Write every line that waited, in order, and from now on at once; idempotent."""
        if self.loaded:
            return
        render = _console() if self._style == "console" else log_line
        print_line = self._printer()

        def write(wall_s: float, level: str, event: str, fields: dict[str, Any]) -> None:
            print_line(render(wall_s, level, event, fields))

        self._write = write
        waiting, self._waiting = self._waiting, []
        if self._dropped:
            write(self._wall_s(), "warning", "log_lines_dropped", {"lines": self._dropped})
        for line in waiting:
            write(*line)

    def _printer(self) -> Callable[[str], object]:
        """Return what writes one line."""
        stream = self._stream
        if stream is None and sys.stderr is sys.__stderr__:
            from inplace.agent.report.line_writer import STDERR

            return STDERR.write
        return lambda line: print(line, file=stream or sys.stderr, flush=True)

    def flush(self) -> None:
        """Wait for the log's reader, for a short while at most; the process ends."""
        if self.loaded:
            from inplace.agent.report.line_writer import STDERR

            STDERR.flush()

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS.index(level) >= self._least:
            self._write(self._wall_s(), level, event, fields)

    def _keep(self, wall_s: float, level: str, event: str, fields: dict[str, Any]) -> None:
        if len(self._waiting) >= BUFFERED_LINES_MAX:
            self._waiting.pop(0)
            self._dropped += 1
        self._waiting.append((wall_s, level, event, fields))


def _console() -> Callable[[float, str, str, dict[str, Any]], str]:
    """Return structlog's way to write a line for a reader."""
    # structlog.dev imports rich where it is installed: 5 MB for tracebacks that this log never renders.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from structlog.dev import ConsoleRenderer

    renderer = ConsoleRenderer(colors=False)

    def render(wall_s: float, level: str, event: str, fields: dict[str, Any]) -> str:
        return str(renderer(None, level, {"timestamp": rfc3339(wall_s), "level": level, "event": event, **fields}))

    return render
