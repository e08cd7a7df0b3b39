"""
Share a port's connections among its clients, so that no client can lock others out.

A new connection always gets a seat. If its source has as many seats as one source may have, the source's own oldest
connection is closed. If all seats are taken, the oldest connection of the source with the most seats is closed. So a
Pod that floods the port pushes out only its own connections, and a probe, which takes a millisecond, is always
answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Guest = TypeVar("Guest", bound=Hashable)


class ConnectionLimiter(Generic[Guest]):
    """So many seats, of which one source may have so many.

    Args:
        seats: in all; looking for who leaves takes time in proportion.
        per_source: of these at most, for one source.
    """

    def __init__(self, seats: int, per_source: int) -> None:
        self._seats: Final = seats
        self._per_source: Final = per_source
        self._sources: dict[Guest, str] = {}  # of who is seated, the oldest first

    def take(self, newcomer: Guest, source: str) -> Guest | None:
        """Seat a newcomer; return who has lost its seat to it, None when there was room."""
        taken = Counter(self._sources.values())
        leaver = None
        if taken[source] >= self._per_source:
            leaver = self._oldest_of(source)
        elif len(self._sources) >= self._seats:
            leaver = self._oldest_of(taken.most_common(1)[0][0])
        if leaver is not None:
            del self._sources[leaver]
        self._sources[newcomer] = source
        return leaver

    def leave(self, guest: Guest) -> None:
        """Free a seat, unless it was lost already."""
        self._sources.pop(guest, None)

    def _oldest_of(self, source: str) -> Guest:
        return next(guest for guest, its_source in self._sources.items() if its_source == source)
