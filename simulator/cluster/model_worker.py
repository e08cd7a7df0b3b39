"""A modelled worker, and one whose parent may start one run after the other."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from inplace.simulator.cluster.model_container import ModelMachine, WorkerRun
from inplace.simulator.cluster.runtime import SIGKILL_EXIT


class TimedRun(WorkerRun):
    """A run that takes its first step after a while, and goes on until a signal or its last step.

    Args:
        on_first_step: called then.
        life_s: from the first step to the last one, at which it exits 0; None for ever.
        on_stacks: called with a request for stacks.
    """

    def __init__(
        self,
        machine: ModelMachine,
        on_first_step: Callable[[], None],
        life_s: float | None,
        on_stacks: Callable[[int], None],
    ) -> None:
        super().__init__(machine)
        self._on_stacks = on_stacks
        self._on_first_step = on_first_step
        self._life_s = life_s
        self._training = asyncio.ensure_future(self._train(machine.timings.worker_first_step.draw(machine.rng)))
        self._exit: asyncio.TimerHandle | None = None

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self.ended.done():
            self.ended.set_result(code)
            self._training.cancel()
            if self._exit is not None:
                self._exit.cancel()

    def signal(self, number: int) -> None:
        """Kill it, or let it end as a process that obeys a signal does."""
        if number == signal.SIGKILL:
            self.end(SIGKILL_EXIT)
        elif not self.ended.done() and self._exit is None:
            exit_s = self._machine.timings.process_exit.draw(self._machine.rng)
            self._exit = asyncio.get_running_loop().call_later(exit_s, self.end, 128 + number)

    def take_stacks(self, request: int) -> None:
        """Answer a request for stacks in its log."""
        self._on_stacks(request)

    async def _train(self, first_step_s: float) -> None:
        await self._machine.clock.sleep(first_step_s)
        self._on_first_step()
        if self._life_s is not None:
            await self._machine.clock.sleep(self._life_s)
            self.end(0)


class ChildWorker:
    """The worker of a guard.

    Args:
        make_run: starts a run in an epoch; None: in-place restart is off.
    """

    def __init__(self, make_run: Callable[[int | None], WorkerRun]) -> None:
        self._make_run = make_run
        self._run: WorkerRun | None = None

    def start_in(self, epoch: int | None) -> asyncio.Future[int]:
        """Start a run in an epoch, and return its end."""
        assert not self.runs(), "expected no worker, saw one"
        self._run = self._make_run(epoch)
        return self._run.ended

    async def gone(self) -> None:
        """Return when nothing that the run left is there."""
        assert self._run is not None
        await self._run.clear()

    def signal(self, number: int) -> None:
        """Send the worker a signal, if it runs."""
        if self._run is not None:
            self._run.signal(number)

    def strike(self, number: int) -> None:
        """Let the worker end by a signal that it cannot obey.

        Raises:
            LookupError: none runs.
        """
        if not self.runs():
            raise LookupError("expected a worker below a guard, saw none")
        assert self._run is not None
        self._run.end(128 + number)

    def take_stacks(self, request: int) -> None:
        """Let the run answer."""
        if self._run is not None and not self._run.ended.done():
            self._run.take_stacks(request)

    def runs(self) -> bool:
        """Say whether it runs."""
        return self._run is not None and not self._run.ended.done()

    def kill(self) -> None:
        """Kill the worker and what it left, as the kernel does with a container's processes."""
        if self._run is not None:
            self._run.kill()
