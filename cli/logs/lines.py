"""
Cut a container's log, as it arrives, into lines with time and epoch. Pure.

Kubelet writes the time of each line before it, by the clock of its node. A guard writes a mark BEFORE it starts a
worker (`worker_starting`, docs/logs.md): what follows is of that epoch. A worker can print such a line, too. So a mark
counts only where the agent lifted its barrier for that epoch then, as the agent's own log says. A log without marks has
the epoch that its reader assumes. A line keeps its first 16 KiB, whatever its length.

An agent's log also has tails: what a worker wrote last, where kubelet has lost its log. A tail is told in pieces
(`agent/progress/kept_tails.py`). Its lines have no times of their own; they get that of the run's last line.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire.run_tail import TAIL, TAIL_BYTES

LINE_BYTES_MAX: Final = 16_384  # a longer line is shown up to here
LINE_COST: Final = 256  # bytes that a line takes in memory beside its text
NS: Final = 1_000_000_000
LATE_NS: Final = 10 * NS  # an agent loads its log after the lift: on a busy node its line came 2 s late and more
_MOMENT: Final = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)"
_STAMP: Final = re.compile(_MOMENT + rb" ")
_STAMP_BYTES_MAX: Final = 40
_EPOCH: Final = rb'[^\n]{0,200}?(?:"epoch": |\bepoch=)(\d{1,10})\b'
_BEGINS: Final = re.compile(rb"\b(?:worker_starting|worker_started|barrier_lifted)\b" + _EPOCH)
_ENDS: Final = re.compile(rb"\bworker_exited\b" + _EPOCH)
_TAIL: Final = f'"event": "{TAIL}"'.encode()
_TAIL_WITHIN: Final = 120  # bytes: its time and level stand before it
_WRITTEN: Final = re.compile(rb'(?:\{"timestamp": ")?' + _MOMENT)
_OURS: Final = (b'{"timestamp": "', b"20")  # how a line of guard or agent begins: as JSON, or for a console


class LogLine(NamedTuple):
    """One line.

    Args:
        at_ns: Unix time, by the clock of its node.
        text: the line without its end, at most LINE_BYTES_MAX.
        left_out: bytes of the line that are not in `text`.
        epoch: None where it is not known.
    """

    at_ns: int
    text: bytes
    left_out: int = 0
    epoch: int | None = None

    @property
    def cost(self) -> int:
        """Return the bytes that it takes in memory."""
        return len(self.text) + LINE_COST

    @property
    def ended_epoch(self) -> int | None:
        """Return the epoch whose worker ended, if the line is the mark of that."""
        return _mark(_ENDS, self.text)

    @property
    def written_ns(self) -> int | None:
        """Return when guard or agent wrote the line, Unix time of milliseconds; None for what a worker wrote."""
        found = _WRITTEN.match(self.text)
        return _ns(found) if found is not None else None

    def decoded(self) -> str:
        """Return the text; what is no UTF-8 shows as U+FFFD."""
        return self.text.decode("utf-8", "replace")


class LastLines:
    """The last lines of a log, within bounds.

    Args:
        lines_max: how many.
        bytes_max: what they take in memory; one line is always kept.
    """

    def __init__(self, lines_max: int, bytes_max: int) -> None:
        self._lines: deque[LogLine] = deque()
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def append(self, line: LogLine) -> None:
        """Take a line, and drop what is too old."""
        self._lines.append(line)
        self._bytes += line.cost
        while len(self._lines) > self._lines_max or (self._bytes > self._bytes_max and len(self._lines) > 1):
            self._bytes -= self._lines.popleft().cost

    def all(self) -> list[LogLine]:
        """Return the lines, the oldest first."""
        return list(self._lines)


class LogCutter:
    """Cut the chunks of one answer into lines.

    Args:
        epoch: of the lines before the first mark; None if it is not known.
        lifts: when the agent lifted its barrier for each epoch, Unix time; empty if it is not known, then each mark
            counts.
    """

    def __init__(self, epoch: int | None = None, lifts: Mapping[int, int] | None = None) -> None:
        self.epoch = epoch
        self._lifts = lifts or {}
        self.words = b""  # of kubelet, in the place of a log
        self._rest = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        """Yield the lines that end in a chunk."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk[start:end])
            start = end + 1
            if (line := self._take()) is not None:
                yield line
        self._keep(chunk[start:])

    def end(self) -> Iterator[LogLine]:
        """Yield the line that the log ended in, if it has no end."""
        if self._rest and (line := self._take()) is not None:
            yield line

    def _keep(self, piece: bytes) -> None:
        room = LINE_BYTES_MAX + _STAMP_BYTES_MAX - len(self._rest)
        self._rest += piece[:room]
        self._left_out += max(0, len(piece) - room)

    def _take(self) -> LogLine | None:
        rest, left_out = self._rest, self._left_out
        self._rest, self._left_out = b"", 0
        if (found := _STAMP.match(rest)) is None:
            self.words = self.words or rest[:LINE_BYTES_MAX]
            return None
        text = rest[found.end() :]
        left_out += max(0, len(text) - LINE_BYTES_MAX)
        at_ns = _ns(found)
        if (epoch := _mark(_BEGINS, text)) is not None and _is_credible(epoch, at_ns, self._lifts):
            self.epoch = epoch
        return LogLine(at_ns, text[:LINE_BYTES_MAX], left_out, self.epoch)


def _is_credible(epoch: int, at_ns: int, lifts: Mapping[int, int]) -> bool:
    """Say whether a worker of this epoch can have started at a moment. Before all known lifts any older epoch can."""
    if not lifts:
        return True
    if epoch < min(lifts):
        lifted_ns, over = 0, list(lifts.values())
    elif epoch in lifts:
        lifted_ns, over = lifts[epoch], [at for later, at in lifts.items() if later > epoch]
    else:
        return False
    return lifted_ns - LATE_NS <= at_ns and all(at_ns <= at + LATE_NS for at in over)


def is_tail(text: bytes) -> bool:
    """Say whether a line is a piece of a tail, in which an agent repeats what its worker wrote."""
    return text.startswith(_OURS) and _TAIL in text[:_TAIL_WITHIN]


def _mark(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    if not text.startswith(_OURS) or is_tail(text) or (found := pattern.search(text[:512])) is None:
        return None
    return int(found[1])


def _ns(moment: re.Match[bytes]) -> int:
    """Return what `_MOMENT` found as Unix time."""
    return _seconds(moment[1], moment[3]) * NS + int((moment[2] or b"0").ljust(9, b"0"))


@lru_cache(maxsize=1024)
def _seconds(second: bytes, zone: bytes) -> int:
    """Return a second as Unix time; 0 for none that exists."""
    try:
        return int(
            datetime.fromisoformat((second + zone.replace(b"Z", b"+00:00")).decode()).astimezone(UTC).timestamp()
        )
    except (ValueError, OverflowError):
        return 0


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
