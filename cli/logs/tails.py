"""
Find the tails of runs in an agent's log: what a worker wrote last, where kubelet has lost its log. Pure.

A tail is told in pieces (`agent/progress/kept_tails.py`). Its lines have no times of their own; they get the time at
which the run wrote its last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from inplace.cli.logs.lines import LINE_BYTES_MAX, LogLine, is_tail
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire.run_tail import TAIL_BYTES

TAILS_MAX: Final = 1024  # of one Pod
FIELDS: Final = ("epoch", "began_ms", "ended_ms", "left_out", "file", "part", "text")
_MS: Final = 1_000_000
_MS_MAX: Final = 10**15


@dataclass(slots=True)
class Tail:
    """What a run wrote last.

    Args:
        epoch: of the run.
        began_ns, ended_ns: Unix time by the node's clock; it ended with its last output.
        left_out: bytes that it wrote before.
    """

    epoch: int
    began_ns: int
    ended_ns: int
    left_out: int
    text: str = ""
    parts: int = field(default=0)

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines; the first one says what is left out before it."""
        left_out = self.left_out
        for line in self.text.removesuffix("\n").split("\n"):
            text = line.encode("utf-8", "replace")
            cut = max(0, len(text) - LINE_BYTES_MAX)
            yield LogLine(self.ended_ns, text[:LINE_BYTES_MAX], left_out + cut, self.epoch)
            left_out = 0


class Tails:
    """The tails in one log."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Tail] = {}

    def take(self, text: bytes) -> bool:
        """Take in a line of the log; say whether it was a piece of a tail."""
        if not is_tail(text):
            return False
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return True
        *numbers, text = map(fields.get, FIELDS)
        if all(_is_number(number) for number in numbers) and isinstance(text, str):
            self._add(*numbers, text)
        return True

    def all(self) -> list[Tail]:
        """Return those whose pieces are all there so far, in the order of time."""
        return sorted(self._found.values(), key=lambda tail: tail.ended_ns)

    def _add(self, epoch: int, began_ms: int, ended_ms: int, left_out: int, file: int, part: int, text: str) -> None:
        if not 1 <= epoch <= INT32_MAX or len(self._found) >= TAILS_MAX:
            return
        key = epoch, file
        tail = self._found.get(key)
        if part == 1:
            tail = self._found[key] = Tail(epoch, began_ms * _MS, max(began_ms, ended_ms) * _MS, left_out)
        if tail is not None and part == tail.parts + 1 and len(tail.text) <= TAIL_BYTES:
            tail.parts, tail.text = part, tail.text + text


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MS_MAX
