"""What a guard says in its container's log: never so that it waits for the log's reader, nor as often as peers like."""

from __future__ import annotations

import time

from inplace.agent.line_limit import LineLimit
from inplace.agent.line_writer import STDERR
from inplace.common.typed import Final

PATIENCE_S: Final = 10.0  # says why it waits this often


def say(text: str) -> None:
    """Print one line to the container's log; it never waits for the log's reader."""
    STDERR.write(f"inplace-agent guard: {text}")


class Patience:
    """Says why there is no lift yet.

    Args:
        path: the link's.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = ""
        self._refusals = LineLimit(time.monotonic)
        self.begin()

    def begin(self) -> None:
        """Wait from now on."""
        self._began_s = self._said_s = time.monotonic()

    def note(self, seen: str) -> None:
        """Take note of why there is no lift."""
        self._seen = seen

    def refuse(self, why: str) -> None:
        """Say why a connection is closed, within limits: each may end like this, 50 times a second."""
        if why != self._seen and (left_out := self._refusals.take()) is not None:
            more = f" ({left_out} such lines were left out)" if left_out else ""
            say(f"{self._path}: {why}; the connection is closed{more}")
        self._seen = why

    def go_on(self) -> None:
        """Say it, if that was long ago."""
        now_s = time.monotonic()
        if now_s - self._said_s >= PATIENCE_S:
            self._said_s = now_s
            say(f"waiting for the agent at {self._path} since {now_s - self._began_s:.0f} s: {self._seen}")
