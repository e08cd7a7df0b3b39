"""
Print lines of logs: for people time, rank and Pod before each; for programs one JSON object for each line.

Control characters are made visible by the streams themselves (cli/terminal/visible.py). Progress and notes go to
standard error, progress only where that is a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from inplace.cli.logs.container_log import Instance
from inplace.cli.logs.lines import NS, LogLine
from inplace.cli.terminal.moments import count_text
from inplace.cli.terminal.visible import raw_of

if TYPE_CHECKING:
    from inplace.cli.documents import LogLineFields

Lines = Iterable[tuple[Instance, LogLine]]
_CLEAR: Final = "\r\x1b[K"


class Printer:
    """Prints lines.

    Args:
        as_json: for programs.
        ranks: how many there are, for the width of their column.
    """

    def __init__(self, *, as_json: bool, ranks: int = 0) -> None:
        self.as_json = as_json
        self._width = len(str(max(0, ranks - 1)))
        self._progress = ""
        self.printed = 0

    def lines(self, lines: Lines) -> None:
        """Print lines."""
        write = self._data if self.as_json else self._text
        texts = [write(instance, line) for instance, line in lines]
        if texts:
            self._clear()
            self.printed += len(texts)
            print("\n".join(texts), flush=True)

    def head(self, text: str) -> None:
        """Print a line about the lines that follow; programs do not get it."""
        if not self.as_json:
            self._clear()
            print(text, flush=True)

    def progress(self, done: int, of: int) -> None:
        """Show how many logs have been read."""
        if sys.stderr.isatty():
            self._progress = f"read {done:,} of {count_text(of, 'log')}" if done < of else ""
            raw_of(sys.stderr).write(f"{_CLEAR}{self._progress}")
            raw_of(sys.stderr).flush()

    def notes(self, notes: Sequence[str]) -> None:
        """Print notes."""
        self._clear()
        for note in notes:
            print(f"inplace logs: {note}", file=sys.stderr)

    def _clear(self) -> None:
        if self._progress:
            raw_of(sys.stderr).write(_CLEAR)
            raw_of(sys.stderr).flush()
            self._progress = ""

    def _text(self, instance: Instance, line: LogLine) -> str:
        rank = "-" if instance.rank is None else str(instance.rank)
        cut = f" [{line.left_out:,} bytes left out]" if line.left_out else ""
        clock = datetime.fromtimestamp(line.at_ns // NS, UTC).strftime("%m-%d %H:%M:%S")
        millis = line.at_ns // 1_000_000 % 1_000
        return f"{clock}.{millis:03d} rank {rank:>{self._width}} {instance.name}  {line.decoded()}{cut}"

    @staticmethod
    def _data(instance: Instance, line: LogLine) -> str:
        seconds, nanoseconds = divmod(line.at_ns, NS)
        data: LogLineFields = {
            "time": f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z",
            "rank": instance.rank,
            "pod": instance.pod,
            "container": instance.container,
            "epoch": line.epoch,
            "line": line.decoded(),
        }
        if line.left_out:
            data["bytesLeftOut"] = line.left_out
        return json.dumps(data)
