"""
Run the controller, and note the longest turn of its event loop in a file.

A turn lasts from the moment at which the loop's selector returns until the loop asks it again: for so long nothing else
of the controller runs. It is timed twice, by the clock on the wall and by the thread's CPU time: other programs on the
machine lengthen the first and not the second.

    python -m benchmarks.timed_controller TURNS_FILE CONTROLLER-FLAGS...
"""

from __future__ import annotations

import asyncio
import mmap
import selectors
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inplace.controller.main import main

_TURN: Final = struct.Struct("dd")


@dataclass(frozen=True, slots=True)
class LongestTurn:
    """The longest turns since the last `reset`; not always of one and the same turn.

    Args:
        wall_s: by the clock on the wall.
        cpu_s: of the thread's CPU time.
    """

    wall_s: float
    cpu_s: float


class TurnsFile:
    """Two numbers that the controller's process writes and the benchmark reads and resets."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_TURN.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _TURN.size)

    def note(self, wall_s: float, cpu_s: float) -> None:
        """Keep a turn that is longer than all before."""
        longest = self.read()
        if wall_s > longest.wall_s or cpu_s > longest.cpu_s:
            _TURN.pack_into(self._shared, 0, max(wall_s, longest.wall_s), max(cpu_s, longest.cpu_s))

    def read(self) -> LongestTurn:
        """Return the longest turns."""
        return LongestTurn(*_TURN.unpack_from(self._shared))

    def reset(self) -> None:
        """Begin anew."""
        _TURN.pack_into(self._shared, 0, 0.0, 0.0)


class TimedSelector(selectors.DefaultSelector):
    """A selector that times the loop's turn between two calls of `select`."""

    def __init__(self, turns: TurnsFile) -> None:
        super().__init__()
        self._turns = turns
        self._began: tuple[float, float] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events as every selector does."""
        if self._began is not None:
            wall_s, cpu_s = self._began
            self._turns.note(time.monotonic() - wall_s, time.thread_time() - cpu_s)
        ready = super().select(timeout)
        self._began = time.monotonic(), time.thread_time()
        return ready


class TimedPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes event loops with a timed selector."""

    def __init__(self, turns: TurnsFile) -> None:
        super().__init__()
        self._turns = turns

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop with a selector of its own."""
        return asyncio.SelectorEventLoop(TimedSelector(self._turns))


def command(turns: Path) -> tuple[str, ...]:
    """Return the first words of the command that runs the controller with its turns timed."""
    return sys.executable, "-m", "benchmarks.timed_controller", str(turns)


if __name__ == "__main__":
    asyncio.set_event_loop_policy(TimedPolicy(TurnsFile(Path(sys.argv[1]))))
    main(sys.argv[2:])
