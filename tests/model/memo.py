"""What a world computes again and again is computed once, and stands in its states as a number."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class memo(Generic[P, R]):  # noqa: N801 - a decorator
    """A pure method, of which each result is kept for as long as its object lives.

    It is `functools.cache` for each object: a planted bug must not meet what another world has computed without it. A
    subclass may replace such a method, but not call it through `super()`.
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, world: Any, owner: type) -> Callable[P, R]:
        """Return the method of one object; the next time its dictionary has it, and nobody asks here."""
        kept: Any = cache(self._method.__get__(world, owner))
        assert world.__dict__.setdefault(self._name, kept) is kept, f"{self._name} is called through super()"
        return kept  # type: ignore[no-any-return]


class Interned(list[T]):
    """Different values, each with its number: its index."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """Return the number of a value; a new one is appended."""
        found = self._numbers.setdefault(value, len(self))
        if found == len(self):
            self.append(value)
        return found


class One(Generic[T]):
    """The one object for a value and all that are equal to it, so that it compares and hashes as fast as a number."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


@cache
def one(value: T) -> One[T]:
    """Return the one object for a value."""
    return One(value)
