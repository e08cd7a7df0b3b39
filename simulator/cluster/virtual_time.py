"""
Run asyncio code under virtual time: the clock jumps to the next timer whenever nothing is ready to run.

Guarantees: no real waiting and no real I/O; callbacks run in the order in which they became ready, and tasks
hash by their creation number, so that sets of tasks (TaskGroup, asyncio.wait) iterate alike in every process.
One program and one seed give one run. A program that can never continue raises `DeadlockError`, which says
who waits where.
Deliberately does not isolate wall-clock reads, threads or `random`: code under it asks the loop for time and
an injected `Random` for numbers.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
Drive = Callable[[Coroutine[Any, Any, Any], Context | None], Coroutine[Any, Any, Any]]

INSTANT_ROUNDS_MAX = 100
"""Rounds of callbacks that take no time. After that each takes TICK_S, because code that waits for "the rest of a
delay" may compute a rest too small to add to the time, and would spin for ever on a clock that stands still."""
TICK_S = 1e-9

GC_THRESHOLDS = (50_000, 20, 100)
"""A sixth of the CPU time went to the interpreter's defaults (700, 10, 10); these take 4 % and some 10 MB more."""

_WAITERS_SHOWN_MAX = 20  # a deadlock of 5,000 Pods prints each place once, and no more places than this
_ASYNCIO_FOLDER = str(Path(asyncio.__file__).parent)
_AWAITS_MAX = 200  # depth of one task's chain of awaits


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set, yet the program has not finished."""


class OrderedTask(asyncio.Task[T]):
    """A task that hashes by its creation number instead of its address."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, number: int, loop: asyncio.AbstractEventLoop, **kwargs: Any
    ) -> None:
        self.number = number  # BEFORE the base class puts the task into the set of all tasks
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self.number


class _VirtualSelector:
    """Stands where the event loop would wait for I/O, and waits for nothing."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.idle(timeout)
        return []

    def close(self) -> None:
        return None


class VirtualTimeLoop(BaseEventLoop):
    """An event loop whose time is a number.

    Args:
        shuffle: permutes the ready callbacks of each round with this source of randomness, to try other
            schedules; None keeps the order in which they became ready.

    Attributes:
        drive: sees the coroutine of each new task and its context, and returns what runs in its place.
    """

    _clock_resolution: float  # of BaseEventLoop: timers this close to now are due
    _ready: Any
    _scheduled: Any

    def __init__(self, *, shuffle: Random | None = None) -> None:
        super().__init__()
        self._clock_resolution = 1e-9
        self._now_s = 0.0
        self._rounds = 0
        self._shuffle = shuffle
        self._numbers = itertools.count(1)
        self.drive: Drive | None = None
        self._selector = _VirtualSelector(self)
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now_s

    def idle(self, timeout_s: float | None) -> None:
        """Advance to the next timer; called once per round, before the ready callbacks run.

        Raises:
            DeadlockError: nothing is ready and no timer is set.
        """
        if timeout_s is None:
            found = describe_tasks(asyncio.all_tasks(self), self._now_s)
            raise DeadlockError(f"deadlock: no timer is set and nothing is ready; {found}")
        if timeout_s > TICK_S:
            self._now_s = max(self._now_s, self._scheduled[0].when())
            self._rounds = 0
            return
        self._rounds += 1
        if timeout_s > 0 or self._rounds > INSTANT_ROUNDS_MAX:
            self._now_s += TICK_S
        if self._shuffle is not None and len(self._ready) > 1:
            callbacks = list(self._ready)
            self._shuffle.shuffle(callbacks)
            self._ready.clear()
            self._ready.extend(callbacks)

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,  # noqa: ARG002
        func: Callable[..., Any],
        *args: Any,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: a thread would bring real time back in."""
        raise RuntimeError(f"virtual time runs no threads; {func!r} was given to run_in_executor")

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        context: Context | None = None,
    ) -> asyncio.Future[T]:
        if self.drive is not None:
            coro = self.drive(coro, context)  # type: ignore[arg-type]  # a task is made of a coroutine
        return OrderedTask(coro, number=next(self._numbers), loop=loop, context=context)  # type: ignore[arg-type]

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no I/O."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread to be woken from."""


def run(main: Coroutine[Any, Any, T], *, shuffle_seed: int | None = None) -> T:
    """Run a coroutine to its end under virtual time and return its result.

    Args:
        main: the program.
        shuffle_seed: tries another, reproducible order of ready callbacks; None keeps the natural order.

    Raises:
        DeadlockError: the program waits for something that cannot happen.
    """
    shuffle = None if shuffle_seed is None else Random(shuffle_seed)
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(shuffle=shuffle)) as runner, _rare_collections():
        return runner.run(main)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect cycles seldom: nearly all that a simulation makes is freed by counting, and its heap is large."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def describe_tasks(tasks: set[asyncio.Task[Any]], now_s: float) -> str:
    """Say which tasks wait, grouped by place, oldest first."""
    places: dict[str, list[str]] = {}
    for task in sorted(tasks, key=hash):
        places.setdefault(_place(task), []).append(task.get_name())
    lines = [f"{len(tasks)} tasks wait at {now_s:g} s"]
    for place, names in itertools.islice(places.items(), _WAITERS_SHOWN_MAX):
        others = f" and {len(names) - 1} others" if len(names) > 1 else ""
        lines.append(f"  {names[0]}{others}: {place}")
    if len(places) > _WAITERS_SHOWN_MAX:
        lines.append(f"  and {len(places) - _WAITERS_SHOWN_MAX} other places")
    return "\n".join(lines)


def _place(task: asyncio.Task[Any]) -> str:
    """Return the chain of functions from the task's own to the innermost await, and the last line of ours."""
    chain = []
    where = ""
    awaited: Any = task.get_coro()
    for _ in range(_AWAITS_MAX):
        code: CodeType | None = getattr(awaited, "cr_code", None) or getattr(awaited, "ag_code", None)
        if code is None:
            break
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        chain.append(code.co_qualname)
        if not code.co_filename.startswith(_ASYNCIO_FOLDER):
            where = f"{code.co_filename}:{frame.f_lineno if frame is not None else code.co_firstlineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return f"{' > '.join(chain)} at {where}"
