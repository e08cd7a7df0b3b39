"""
Processes that can be killed, paused and counted at every await, inside one event loop.

A coroutine that is started with `Process.start` runs in a context of its own, and every task that it makes inherits the
context. The loop asks `drive` for the coroutine that it runs in a task's place. So a process is all tasks of one agent
or one controller, with their code unchanged. It can die or pause at each point where one of its tasks waits.

A killed process takes no further step. Python unwinds its tasks and runs their `finally` clauses, but their requests do
not reach the network: `alive` is False BEFORE the first of them.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from inspect import iscoroutine
from random import Random
from types import coroutine
from typing import Any

from inplace.common.kube.clock import LoopClock
from inplace.simulator.cluster.virtual_time import VirtualTimeLoop

_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """Return the process whose code is running; None outside of all."""
    return _PROCESS.get()


def outside() -> Context:
    """Return a context that belongs to no process, for tasks that a process starts but does not own."""
    context = copy_context()
    context.run(_PROCESS.set, None)
    return context


class ProcessClock(LoopClock):
    """The clock of one machine: its wall time may be wrong, its monotonic time may run fast or slow."""

    def __init__(self, wall_offset_s: float) -> None:
        super().__init__(wall_offset_s)
        self.skew_s = 0.0
        self.rate = 1.0
        self._base_s = (0.0, 0.0)  # the loop's time and ours at the last change of the rate

    def drift(self, rate: float) -> None:
        """Run faster or slower from now on; time never jumps."""
        self._base_s = (super().monotonic_s(), self.monotonic_s())
        self.rate = rate

    def monotonic_s(self) -> float:
        """Return the loop's time, at this machine's rate."""
        now_s = asyncio.get_running_loop().time()
        theirs_s, ours_s = self._base_s
        return ours_s + (now_s - theirs_s) * self.rate

    def wall_s(self) -> float:
        """Return this machine's wall time, which may be wrong."""
        return super().wall_s() + self.skew_s


class Process:
    """One program on one machine.

    Args:
        name: unique among all processes of a run.
        crash_at: the process dies when its tasks have waited this often in all; None is never.
        on_exit: called once when the process is killed.

    Attributes:
        awaits: how often its tasks have waited.
    """

    def __init__(self, name: str, *, crash_at: int | None = None, on_exit: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.alive = True
        self.awaits = 0
        self.crash_at = crash_at
        self._on_exit = on_exit
        self._context = copy_context()
        self._root: asyncio.Task[Any] | None = None
        self._resumed: asyncio.Future[None] | None = None  # set while the process is paused

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start the program."""
        self._context.run(_PROCESS.set, self)
        self._root = asyncio.get_running_loop().create_task(main, name=self.name, context=self._context)
        return self._root

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function of the program in its context, as a signal handler is called."""
        if self.alive:
            self._context.run(function, *args)

    def kill(self) -> None:
        """Kill the process between two of its steps, as SIGKILL does."""
        if not self.alive:
            return
        self.alive = False
        self.resume()
        if self._root is not None:
            self._root.cancel()
        self._on_exit()

    def pause(self) -> None:
        """Stop the process's steps until `resume`, as SIGSTOP, a slow disk or a full CPU does."""
        if self.alive and self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        """Continue a paused process."""
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None

    @coroutine
    def run(self, program: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run one task's coroutine step by step."""
        error: BaseException | None = None
        try:
            yield  # `drive` runs up to here: a task that is cancelled BEFORE its first step ends the program too
        except BaseException as thrown:  # noqa: BLE001 - it is the program's, not ours
            error = thrown
        if not self.alive and error is None:
            error = asyncio.CancelledError()
        if error is not None:
            _close_inside(program)
        while True:
            try:
                waits_for = program.send(None) if error is None else program.throw(error)
            except StopIteration as end:
                return end.value
            self.awaits += 1
            if self.awaits == self.crash_at:
                self.kill()
            error = None
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - it is the program's, not ours
                error = thrown
            while self._resumed is not None:
                try:
                    yield from asyncio.shield(self._resumed).__await__()
                except asyncio.CancelledError as thrown:
                    error = thrown
            if not self.alive and error is None:
                error = asyncio.CancelledError()


def _close_inside(program: Coroutine[Any, Any, Any]) -> None:
    """Close the coroutine inside anyio's wrapper when the wrapper never starts."""
    frame = program.cr_frame if iscoroutine(program) else None
    inside = getattr(frame.f_locals.get("self"), "_coro", None) if frame is not None else None
    if inside is not None:
        inside.close()


def drive(program: Coroutine[Any, Any, Any], context: Context | None) -> Coroutine[Any, Any, Any]:
    """Return the coroutine that a new task runs: its own, or one that runs it in steps of its process."""
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is None:
        return program
    stepped = _stepwise(process, program)
    stepped.send(None)
    return stepped


async def _stepwise(process: Process, program: Coroutine[Any, Any, Any]) -> Any:
    """Run the program in its process; this is a native coroutine because anyio asks whether it has started."""
    return await process.run(program)


@contextmanager
def campaign_runner(shuffle: Random | None = None) -> Iterator[asyncio.Runner]:
    """Give what runs a campaign's program: on virtual time, with processes, and without garbage collections.

    Args:
        shuffle: as of `VirtualTimeLoop`.
    """

    def make_loop() -> VirtualTimeLoop:
        loop = VirtualTimeLoop(shuffle=shuffle)
        loop.drive = drive
        return loop

    gc.disable()  # a run is short: a garbage collection costs more time than its memory is worth
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            yield runner
    finally:
        gc.enable()
