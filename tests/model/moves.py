"""What an exploration asks of a world, and what it is told."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Move(NamedTuple, Generic[S]):
    """One step of a world.

    Args:
        text: for a trace.
        state: after it.
        fault: it used one of the faults, or must not be relied on.
        rule: the rule it broke, or "".
    """

    text: str
    state: S
    fault: bool
    rule: str


class Explored(Protocol[S]):
    """Knows the first state and every move."""

    def initial(self) -> S:
        """Return the first state."""

    def moves(self, state: S) -> Iterable[Move[S]]:
        """Return every move of a state."""

    def broken(self, state: S) -> str:
        """Name the rule that a state itself breaks, or return ""."""

    def is_good(self, state: S) -> bool:
        """Say whether the group has come together, or nothing more is asked of it."""

    def canonical(self, state: S) -> S:
        """Return the one state that is explored for all that differ from this one in names alone."""
        return state

    def alike(self, state: S) -> int:
        """Return how many states a canonical one is explored for."""
        return 1
