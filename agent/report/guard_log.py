"""A guard's lines in its container's log: never so that it waits for the log's reader, nor as often as peers like."""

from __future__ import annotations

import time

from inplace.agent.report.line_limit import LimitedLog
from inplace.agent.report.line_writer import STDERR
from inplace.agent.report.log_line import LevelLog, log_line
from inplace.common.bare.typed import Any, Final

PATIENCE_S: Final = 10.0  # says why it waits this often


class GuardLog(LevelLog):
    """A log that writes each line at once, and never waits for its reader; it leaves level debug out."""

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if level != "debug":
            STDERR.write(log_line(time.time(), level, event, fields))


GUARD_LOG: Final = GuardLog()


class Patience:
    """Says why there is no lift yet.

    Args:
        path: the link's.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = ""
        self._peers_log = LimitedLog(GUARD_LOG, time.monotonic)  # each connection may end like this, 50 times a second
        self.begin()

    def begin(self) -> None:
        """Wait from now on."""
        self._began_s = self._said_s = time.monotonic()

    def note(self, seen: str) -> None:
        """Take note of why there is no lift."""
        self._seen = seen

    def refuse(self, why: str) -> None:
        """Say why a connection is closed, within limits."""
        if why != self._seen:
            self._peers_log.warning("link_refused", path=self._path, message=why, then="the connection is closed")
        self._seen = why

    def go_on(self) -> None:
        """Say it, if that was long ago."""
        now_s = time.monotonic()
        if now_s - self._said_s >= PATIENCE_S:
            self._said_s = now_s
            GUARD_LOG.info("agent_awaited", path=self._path, since_s=round(now_s - self._began_s), message=self._seen)
