"""A modelled worker below a parent in its container, which may start one run after the other."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from random import Random

from inplace.common.kube.clock import Clock
from inplace.common.protocol.stall import Stalled
from inplace.simulator.cluster.runtime import SIGKILL_EXIT
from inplace.simulator.cluster.timings import Timings


class WorkerRun:
    """One run of a worker: it takes its first step after a while, and runs until a signal or its last step.

    Args:
        on_first_step: called then.
        life_s: from the first step to the last one, at which it exits 0; None for ever.
    """

    def __init__(
        self, on_first_step: Callable[[], None], life_s: float | None, clock: Clock, rng: Random, timings: Timings
    ) -> None:
        self._on_first_step = on_first_step
        self._life_s = life_s
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._training = asyncio.ensure_future(self._train(timings.worker_first_step.draw(rng)))
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
            exit_s = self._timings.process_exit.draw(self._rng)
            self._exit = asyncio.get_running_loop().call_later(exit_s, self.end, 128 + number)

    async def clear(self) -> None:
        """Return when nothing that it left runs."""
        await self._clock.sleep(self._timings.supervised_left.draw(self._rng))

    async def _train(self, first_step_s: float) -> None:
        await self._clock.sleep(first_step_s)
        self._on_first_step()
        if self._life_s is not None:
            await self._clock.sleep(self._life_s)
            self.end(0)


class ModelSupervisedWorker:
    """The worker of a supervisor; implements `agent.worker.process.Worker`.

    Args:
        make_run: starts a run.
        on_start: called with each.
    """

    def __init__(self, make_run: Callable[[], WorkerRun], on_start: Callable[[], None]) -> None:
        self._make_run = make_run
        self._on_start = on_start
        self._run: WorkerRun | None = None

    async def prepare(self) -> None:
        """Do nothing: there are no process signals to handle."""

    async def until_fit(self, epoch: int) -> None:
        """Check nothing."""

    def start(self, env: Mapping[str, str]) -> None:  # noqa: ARG002
        """Start a run."""
        self._run = self._make_run()
        self._on_start()

    async def exited(self) -> int:
        """Return the exit code."""
        assert self._run is not None
        return await asyncio.shield(self._run.ended)

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
        if self._run is None or self._run.ended.done():
            raise LookupError("expected a worker below the supervisor, saw none")
        self._run.end(128 + number)

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Have no command."""

    def runs(self) -> bool:
        """Say whether it runs."""
        return self._run is not None and not self._run.ended.done()

    def grace_s(self) -> float | None:
        """Leave it to the supervisor's options."""
        return None

    async def close(self) -> None:
        """Kill the worker."""
        self.signal(signal.SIGKILL)
