"""What every modelled container is: an exit code that is decided once, on a machine that may be deaf."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from inplace.agent.worker.save_requests import SaveRequests
from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Transport
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import Lifted
from inplace.simulator.cluster.model_link import PodLink
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun
from inplace.simulator.cluster.timings import Timings


@dataclass(kw_only=True)
class ModelMachine:
    """What all containers of a run share.

    Args:
        transport_for: the connection of one Pod's agent.
    """

    clock: Clock
    rng: Random
    timings: Timings
    transport_for: Callable[[KubeObject], Transport]
    links: dict[str, PodLink] = field(default_factory=dict)  # by Pod's uid

    def make_worker(self, run: ContainerRun) -> WorkerRun:
        """Start a worker that has its container for itself."""
        raise NotImplementedError

    def make_child(self, run: ContainerRun, epoch: int | None, lifted: Lifted, *, leaves: bool) -> WorkerRun:
        """Start a worker below a guard, in an epoch or None; `leaves`: something outlives it."""
        raise NotImplementedError

    def link(self, uid: str) -> PodLink:
        """Return a Pod's socket, which lies in its volume."""
        return self.links.setdefault(uid, PodLink())

    def saves(self, run: ContainerRun) -> SaveRequests | None:  # noqa: ARG002
        """Return what asks a container's worker to save BEFORE it is told to end; None: nobody does."""
        return None

    def is_deaf(self, uid: str) -> bool:  # noqa: ARG002
        """Say whether a Pod's containers ignore SIGTERM."""
        return False

    def worker_dying(self, pod: KubeObject) -> None:
        """Hear that a worker ended, and that its guard will tell its agent when the leftovers have ended."""

    def outside(self) -> Context | None:
        """Return the context of tasks that a program starts but does not own; None for the present one."""


class WorkerRun:
    """One run of a worker, which ends once."""

    def __init__(self, machine: ModelMachine) -> None:
        self._machine = machine
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        raise NotImplementedError

    def signal(self, number: int) -> None:
        """Kill it, or let it end as a process that obeys a signal does."""
        raise NotImplementedError

    def take_stacks(self, request: int) -> None:
        """Answer a request for stacks in its log, if it has one."""

    async def clear(self) -> None:
        """Return when nothing that it left runs."""
        await self._machine.clock.sleep(self._machine.timings.supervised_left.draw(self._machine.rng))

    def kill(self) -> None:
        """End the worker and its leftovers at once, as the kernel ends a container's processes."""
        self.end(SIGKILL_EXIT)


class ModelContainer:
    """The base of all models."""

    def __init__(self, machine: ModelMachine, run: ContainerRun) -> None:
        self._machine = machine
        self.run = run
        self.uid: str = run.pod["metadata"]["uid"]
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(code)

    async def wait(self) -> int:
        """Run to the end; return the exit code."""
        raise NotImplementedError

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call back when it has ended."""
        self._ended.add_done_callback(lambda _: callback())

    async def stop(self, grace_s: float) -> None:
        """End as a process that obeys SIGTERM does, or by SIGKILL after the grace."""
        exit_s = self._machine.timings.process_exit.draw(self._machine.rng)
        if self._machine.is_deaf(self.uid):
            exit_s = grace_s + 1.0
        await self._machine.clock.sleep(min(exit_s, grace_s))
        self.end(128 + signal.SIGTERM if exit_s <= grace_s else SIGKILL_EXIT)

    def signal(self, number: int) -> None:
        """End by a signal."""
        self.end(128 + number)

    def signal_child(self, number: int) -> None:  # noqa: ARG002
        """Refuse: it has no worker below it."""
        raise LookupError("expected a guard with a worker below it, saw none")

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Answer with success after the time of a probe."""
        await self._machine.clock.sleep(self._machine.timings.barrier_answer.draw(self._machine.rng))
        return True


class StayingContainer(ModelContainer):
    """One whose main process ends after the worker below it, however long that takes."""

    async def stop(self, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        if not self._machine.is_deaf(self.uid) and not self._ended.done():
            self.terminate()
        await asyncio.wait([self._ended], timeout=grace_s)
        self.end(SIGKILL_EXIT)

    def terminate(self) -> None:
        """Take SIGTERM."""
        raise NotImplementedError


class WorkerContainer(ModelContainer):
    """A worker in a container of its own."""

    async def wait(self) -> int:
        """Run until `end` or the worker's own end; return the exit code."""
        if self._ended.done():
            return self._ended.result()
        worker = self._machine.make_worker(self.run)
        self._ended.add_done_callback(lambda ended: worker.end(ended.result()) if not ended.cancelled() else None)
        try:
            return await asyncio.shield(worker.ended)
        finally:
            worker.end(SIGKILL_EXIT)
