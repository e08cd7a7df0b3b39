"""
The numbers behind this process's steps, for the Pod's agent: how long its own work takes, and whether its loss is one.

They lie in `.NAME.numbers` beside the rank's file, whose line common/wire/rank_numbers.py describes. It is written once
a second at most: when a BLOCK of steps is complete, and while the loss is no finite number.

Work is measured in medians of blocks, so that a slow step now and then (a checkpoint, a pause) does not count. What the
first block takes is left out: there programs compile, and fill their caches. So is a step beside a busy phase.

This module needs nothing that `inplace.rank_file` does not, and runs under Python 3.8.
"""

from __future__ import annotations

BLOCK = 16  # steps; the median of so many equal ones is within a tenth of their own
NEWEST = 4  # blocks that must agree before a rank counts as slower: a phase of heavier data is shorter
BEFORE_MIN = 4  # blocks before these, from which on there is something to compare with
BLOCKS_MAX = 64  # of a run; then every other old one is forgotten
WRITE_S_MIN = 1.0  # from one line to the next: a file takes twenty times as long as a step's line
MICROSECONDS_MAX = 10**10 - 1  # 2.7 hours
COUNT_MAX = 10**7 - 1
LINE_BYTES_MAX = 64


class RankNumbers:
    """What is known of one process's steps."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._last: object = None  # the step before; None before the first one
        self._waits = False  # the script says how long it waited
        self._block: list[float] = []  # work of the newest steps, seconds
        self._blocks: list[float] = []  # medians, the newest last
        self._is_warm = False  # the first block is over
        self._bad = 0  # steps in a row whose loss was no finite number
        self._bad_since = b"-"
        self._is_bad_written = False
        self._is_news = False  # a block is complete that was not written yet
        self._written_s = 0.0

    def pause(self) -> None:
        """Leave out the step that is under way: the script does something else meanwhile."""
        self._last = None

    def step(self, step: bytes, now_s: float, waited_s: float | None, loss: float | None) -> bytes | None:
        """Take in a step; return the line to write, without its head, if there is news.

        Args:
            step: its number as the rank's file has it.
            now_s: seconds on a clock that never jumps.
            waited_s: of the time since the last step, how long this rank waited for others; None if unknown.
            loss: of this step; None if unknown.
        """
        if step != self._last:
            if self._last is not None:
                self._note_work(now_s - self._last_s, waited_s)
            self._last_s, self._last = now_s, step
        if loss is not None:
            self._note_loss(step, loss)
        if not (self._is_news or self._bad or self._is_bad_written) or now_s - self._written_s < WRITE_S_MIN:
            return None
        self._written_s, self._is_bad_written, self._is_news = now_s, self._bad > 0, False
        return self._line()

    def _note_work(self, took_s: float, waited_s: float | None) -> None:
        """Take in how long a step took."""
        if self._waits != (waited_s is not None):
            self._waits = waited_s is not None
            self._block, self._blocks = [], []  # the two cannot be compared
        if waited_s is not None and waited_s > 0.0:  # it may be NaN
            took_s -= min(waited_s, took_s)
        self._block.append(took_s)
        if len(self._block) < BLOCK:
            return
        block, self._block = median(self._block), []
        if not self._is_warm:
            self._is_warm = True
            return
        self._is_news = True
        self._blocks.append(block)
        if len(self._blocks) > BLOCKS_MAX:
            self._blocks = self._blocks[:-NEWEST:2] + self._blocks[-NEWEST:]

    def _note_loss(self, step: bytes, loss: float) -> None:
        if loss - loss == 0.0:  # neither infinite nor NaN
            self._bad = 0
            return
        if not self._bad:
            self._bad_since = step if step.isdigit() else b"-"
        self._bad = min(self._bad + 1, COUNT_MAX)

    def _line(self) -> bytes:
        newest, before = self._blocks[-NEWEST:], self._blocks[:-NEWEST]
        recent_s = min(newest) if newest else 0.0
        before_s = median(before) if len(before) >= BEFORE_MIN else 0.0
        since = self._bad_since if self._bad else b"-"
        numbers = (self._bad, since, _microseconds(recent_s), _microseconds(before_s), self._waits)
        return b"%d %s %d %d %d\n" % numbers


def median(values: list[float]) -> float:
    """Return the middle one, or the upper of the two."""
    return sorted(values)[len(values) // 2]


def _microseconds(seconds: float) -> int:
    return min(round(seconds * 1e6), MICROSECONDS_MAX)
