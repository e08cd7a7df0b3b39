"""
A mistake in one function of the code, planted and taken back in the running process.

The mistake takes the function's place for every caller, also where a module, a table or a bound method holds it by
another name: the function stays the same object, only its code changes. It gets the original as its first argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar

R = TypeVar("R")
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class StaleMistakeError(Exception):
    """A mistake does not fit the code any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Mistake:
    """Wrong code for one function.

    Args:
        function: of production.
        bug: what is called instead: with the original, then with its arguments.
    """

    function: FunctionType
    bug: Callable[..., Any]

    def __str__(self) -> str:
        """Name the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


def instead_of(function: Callable[..., R], bug: Callable[..., R]) -> Mistake:
    """Return a mistake in a function, a method or a property.

    Args:
        function: production's; it has no closure.
        bug: takes the original, then the function's parameters under the same names, or `*` and `**` for those that it
            does not read.

    Raises:
        StaleMistakeError: the function has other parameters, or is none.
    """
    found: Any = function
    found = found.func if isinstance(found, cached_property) else found
    found = found.fget if isinstance(found, property) else inspect.unwrap(found)
    if not isinstance(found, FunctionType) or found.__closure__:
        raise StaleMistakeError(f"expected a function without a closure, saw {found!r}")
    mistake = Mistake(found, bug)
    _, *own = inspect.signature(bug).parameters.values()
    named = [(one.name, one.kind, one.default) for one in own if one.kind not in _ANY]
    wanted = [(one.name, one.kind, one.default) for one in inspect.signature(found).parameters.values()]
    rest = wanted[len(named) :]
    takes_rest = any(one.kind in _ANY for one in own)
    if named != wanted[: len(named)] or (rest and not takes_rest):
        raise StaleMistakeError(
            f"{mistake}: expected the parameters {inspect.signature(found)} after the original, "
            f"saw {inspect.signature(bug)}; the code changed: plant the same mistake in what it is now"
        )
    return mistake


def within(function: Callable[..., Any], *mistakes: Mistake) -> Mistake:
    """Return a mistake that holds only while `function` runs, which is no coroutine and no generator."""

    def bug(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with planted(*mistakes):
            return original(*args, **kwargs)

    return instead_of(function, bug)


@contextmanager
def planted(*mistakes: Mistake) -> Iterator[set[Mistake]]:
    """Plant mistakes; yield those that were called, one by one as they are."""
    called: set[Mistake] = set()
    with ExitStack() as stack:
        for mistake in mistakes:
            stack.enter_context(_planted(mistake, called))
        yield called


@contextmanager
def _planted(mistake: Mistake, called: set[Mistake]) -> Iterator[None]:
    function, bug = mistake.function, mistake.bug
    code, defaults, keywords = function.__code__, function.__defaults__, function.__kwdefaults__
    original = FunctionType(code, function.__globals__, function.__name__, defaults)
    original.__kwdefaults__ = keywords

    def mistaken(*args: Any, **kwargs: Any) -> Any:
        called.add(mistake)
        return bug(original, *args, **kwargs)

    caller = _await if inspect.iscoroutinefunction(function) else _call  # some callers ask what it is
    function.__code__, function.__defaults__ = caller.__code__, None
    function.__kwdefaults__ = {"_mistaken": mistaken}
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords


def _call(*args: Any, _mistaken: Callable[..., Any], **kwargs: Any) -> Any:
    """Give its code to a function with a mistake: code that calls what the function's own defaults hold."""
    return _mistaken(*args, **kwargs)


async def _await(*args: Any, _mistaken: Callable[..., Any], **kwargs: Any) -> Any:
    """Do the same for a coroutine."""
    return await _mistaken(*args, **kwargs)
