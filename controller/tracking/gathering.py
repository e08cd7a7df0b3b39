"""
Say how long nothing is read from a watch, so that a herd's events are taken in together.

Each wake-up for one event costs twice the event's own work. So a reader rests after a read, and takes what came
meanwhile in one go. It rests for less the fewer Pods a barrier still waits for: the last one's announcement, on which
the whole group waits, is read at once. docs/adr/0025
"""

from __future__ import annotations

from typing import Final

REST_S_MAX: Final = 0.01  # what a lone event behind another one may wait; seven Pods of a herd of 700 a second
REST_S_PER_SLOT: Final = 0.00005  # 200 missing Pods or more: the longest rest; one: nothing that could be measured
GULP_BYTES: Final = 48 * 1024  # a new connection's receive window holds 64 KiB; one that is full holds the sender up


class Gathering:
    """The rest after the next read of one kind."""

    def __init__(self) -> None:
        self._rest_s = REST_S_MAX

    def note_missing(self, slots: int) -> None:
        """Take in that the barrier of a group whose Pod came with the last read waits for so many slots."""
        self._rest_s = min(self._rest_s, REST_S_PER_SLOT * slots)

    def rest_s(self, size: int) -> float:
        """Return for how many seconds nothing is read after so many bytes were taken in; begin anew."""
        rest_s, self._rest_s = self._rest_s, REST_S_MAX
        return rest_s if size < GULP_BYTES else 0.0
