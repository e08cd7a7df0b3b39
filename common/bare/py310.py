"""
The parts of asyncio that Python 3.10 lacks and the agent uses: TaskGroup and timeout. No other module knows of 3.10.

Only the one-file agent runs there, in a worker image whose Python we cannot choose; its entry point calls `install`.
Both are the parts of 3.11's classes that the agent needs, with two differences, because 3.10 has neither ExceptionGroup
nor Task.uncancel: a group raises its first child's error bare, and if a cancellation from outside arrives together with
an error or a deadline, the error or deadline wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


def install() -> None:
    """Give asyncio the two names, unless it has them."""
    for replacement, name in ((TaskGroup, "TaskGroup"), (Timeout, "timeout")):
        if not hasattr(asyncio, name):
            setattr(asyncio, name, replacement)


class TaskGroup:
    """Wait for every child at the end of the block; the first error cancels the block and the other children."""

    def __init__(self) -> None:
        self._children: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None
        self._parent: asyncio.Task[Any] | None = None
        self._cancels_parent = False
        self._leaving = False

    async def __aenter__(self) -> TaskGroup:
        self._parent = asyncio.current_task()
        return self

    def create_task(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Start a child."""
        child = asyncio.get_running_loop().create_task(work, name=name)
        self._children.add(child)
        child.add_done_callback(self._ended)
        return child

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leaving = True
        if self._cancels_parent and isinstance(error, asyncio.CancelledError):
            error = None  # ours: the child's error says why
        if error is not None:
            self._cancel_children()
        while self._children:
            try:
                await asyncio.wait(self._children)
            except asyncio.CancelledError as cancelled:  # noqa: PERF203 - what is interrupted goes on
                error = error or cancelled
                self._cancel_children()
        if self._error is not None:
            raise self._error
        if error is not None:
            raise error

    def _ended(self, child: asyncio.Task[Any]) -> None:
        self._children.discard(child)
        if child.cancelled() or child.exception() is None or self._error is not None:
            return
        self._error = child.exception()
        self._cancel_children()
        if not self._leaving and self._parent is not None:
            self._cancels_parent = True
            self._parent.cancel()

    def _cancel_children(self) -> None:
        for child in self._children:
            child.cancel()


class Timeout:
    """Cancel the block after `delay_s` seconds and raise TimeoutError in its place; None never does."""

    def __init__(self, delay_s: float | None) -> None:
        self._delay_s = delay_s
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    async def __aenter__(self) -> Timeout:
        task = asyncio.current_task()
        assert task is not None
        if self._delay_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._expire, task)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _expire(self, task: asyncio.Task[Any]) -> None:
        self._expired = True
        task.cancel()
