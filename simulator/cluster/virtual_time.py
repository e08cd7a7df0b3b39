"""
Run asyncio code under virtual time: the clock jumps to the next timer whenever nothing is ready to run.

Guarantees: no real waiting and no real I/O; callbacks run in the order in which they became ready, and tasks
hash by their creation number, so that sets of tasks (anyio, asyncio.wait) iterate alike in every process.
One program and one seed give one run. A program that can never continue raises `DeadlockError`, which names each
waiting task and its place.
Deliberately does not isolate wall-clock reads, threads or `random`: code under it asks the loop for time and
an injected `Random` for numbers.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, NoReturn, TypeVar

from anyio._backends._asyncio import CancelScope

T = TypeVar("T")
Drive = Callable[[Coroutine[Any, Any, Any], Context | None], Coroutine[Any, Any, Any]]

INSTANT_ROUNDS_MAX = 100
"""Rounds of callbacks that take no time; each later round takes TICK_S. Code that waits for "the rest of a delay" may
compute a rest too small to add to the time, and would spin for ever on a clock that stands still."""
TICK_S = 1e-9
RESOLUTION_S = 1e-9  # timers this close to now are due
TIMERS_FEW = 100  # below this number cancelled timers are not cleared

GC_THRESHOLDS = (50_000, 20, 100)
"""A sixth of the CPU time went to the interpreter's defaults (700, 10, 10); these take 4 % and some 10 MB more."""

_WAITERS_SHOWN_MAX = 20  # a deadlock of 5,000 Pods prints each place once, and at most this many places
_ASYNCIO_FOLDER = str(Path(asyncio.__file__).parent)
_AWAITS_MAX = 200  # depth of one task's chain of awaits


class DeadlockError(RuntimeError):
    """No callback is ready and no timer is set, but the program has not finished."""


class OrderedTask(asyncio.Task[T]):
    """A task that hashes by its creation number instead of its address."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, number: int, loop: asyncio.AbstractEventLoop, **kwargs: Any
    ) -> None:
        self.number = number  # BEFORE the base class puts the task into the set of all tasks
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self.number


class _Callback:
    """A call that is due: asyncio's Handle without its parts for debugging and threads."""

    __slots__ = ("args", "context", "function", "is_cancelled")

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.function = function
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class _Timer(_Callback):
    """A call that is due later."""

    __slots__ = ("_loop", "_when_s", "is_waiting")

    def __init__(
        self,
        when_s: float,
        loop: VirtualTimeLoop,
        function: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        super().__init__(function, args, context)
        self._when_s = when_s
        self._loop = loop
        self.is_waiting = True

    def when(self) -> float:
        return self._when_s

    def __lt__(self, other: object) -> bool:
        return False  # only timers of the same instant are compared here: neither is earlier

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            if self.is_waiting:
                self._loop.note_cancelled_timer()


class VirtualTimeLoop(BaseEventLoop):
    """An event loop whose time is a number.

    Args:
        shuffle: permutes the ready callbacks of each round with this source of randomness, to try other
            schedules; None keeps the order in which they became ready.

    Attributes:
        drive: gets the coroutine of each new task and its context, and returns the coroutine that runs in its place.
    """

    _stopping: bool  # of BaseEventLoop

    def __init__(self, *, shuffle: Random | None = None) -> None:
        super().__init__()
        self._now_s = 0.0
        self._rounds = 0
        self._shuffle = shuffle
        self._numbers = itertools.count(1)
        self._ready: deque[_Callback] = deque()
        self._scheduled: list[tuple[float, _Timer]] = []
        self._cancelled_timers = 0
        self.drive: Drive | None = None
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now_s

    def call_soon(  # type: ignore[override]  # nobody looks into what is returned but to cancel it
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        """Call in the next round."""
        due = _Callback(callback, args, context)
        self._ready.append(due)
        return due

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is no other thread but a signal's

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Call in `delay` seconds."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Call at a virtual time."""
        timer = _Timer(when, self, callback, args, context)
        heappush(self._scheduled, (when, timer))
        return timer

    def note_cancelled_timer(self) -> None:
        """Count a cancelled timer; `_run_once` drops them."""
        self._cancelled_timers += 1

    def _run_once(self) -> None:
        """Do one round: move time on if nothing is due, then run the callbacks that are due; new ones wait."""
        self._drop_cancelled_timers()
        due, timers = self._ready, self._scheduled
        self._advance()
        soon_s = self._now_s + RESOLUTION_S
        while timers and timers[0][0] < soon_s:
            timer = heappop(timers)[1]
            timer.is_waiting = False
            due.append(timer)
        for _ in range(len(due)):
            call = due.popleft()
            if not call.is_cancelled:
                try:
                    call.context.run(call.function, *call.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does: a callback's failure is told, no more
                    self.call_exception_handler({"message": f"{call.function} failed", "exception": error})

    def _advance(self) -> None:
        """Move time on to the next timer when nothing is due.

        Raises:
            DeadlockError: no callback is ready and no timer is set.
        """
        if not self._ready and not self._stopping:
            if not self._scheduled:
                found = describe_tasks(asyncio.all_tasks(self), self._now_s)
                raise DeadlockError(f"deadlock: no timer is set and nothing is ready; {found}")
            wait_s = self._scheduled[0][0] - self._now_s
            if wait_s > TICK_S:
                self._now_s = self._scheduled[0][0]
                self._rounds = 0
                return
        else:
            wait_s = 0.0
        self._rounds += 1
        if wait_s > 0 or self._rounds > INSTANT_ROUNDS_MAX:
            self._now_s += TICK_S
        if self._shuffle is not None and len(self._ready) > 1:
            callbacks = list(self._ready)
            self._shuffle.shuffle(callbacks)
            self._ready.clear()
            self._ready.extend(callbacks)

    def _drop_cancelled_timers(self) -> None:
        """Forget cancelled timers: those in front, and all of them when they are the majority."""
        timers = self._scheduled
        if len(timers) > TIMERS_FEW and self._cancelled_timers > len(timers) / 2:
            kept = [entry for entry in timers if not entry[1].is_cancelled]
            heapify(kept)
            self._scheduled, self._cancelled_timers = kept, 0
            return
        while timers and timers[0][1].is_cancelled:
            heappop(timers)
            self._cancelled_timers -= 1

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


class _InOrder(dict[object, None]):
    """A set that iterates in the order in which its members were added."""

    def add(self, member: object) -> None:
        self[member] = None

    def remove(self, member: object) -> None:
        del self[member]


def _init_scope(scope: CancelScope, deadline: float = math.inf, shield: bool = False) -> None:
    """Make anyio cancel a scope's children in order, through its private attributes."""
    _anyios_init(scope, deadline, shield)
    if hasattr(scope, "_child_scopes"):
        scope._child_scopes = _InOrder()  # type: ignore[assignment]  # noqa: SLF001


_anyios_init = CancelScope.__init__
CancelScope.__init__ = _init_scope  # type: ignore[assignment,method-assign]


def run(main: Coroutine[Any, Any, T], *, shuffle_seed: int | None = None) -> T:
    """Run a coroutine to its end under virtual time and return its result.

    Args:
        main: the program.
        shuffle_seed: tries another, reproducible order of ready callbacks; None keeps the natural order.

    Raises:
        DeadlockError: the program can never continue.
    """
    shuffle = None if shuffle_seed is None else Random(shuffle_seed)
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(shuffle=shuffle)) as runner, _rare_collections():
        return runner.run(main)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect cycles seldom: reference counts free nearly all of a simulation's objects, and its heap is large."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def describe_tasks(tasks: set[asyncio.Task[Any]], now_s: float) -> str:
    """Describe the waiting tasks, grouped by place, oldest first."""
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
    """Return the functions from the task's own to its innermost await, and the last line in this project's code."""
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
