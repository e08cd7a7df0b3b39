"""What every modelled container is: an exit code that is decided once, on a machine that may be deaf."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.model_link import PodLink
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun
from inplace.simulator.cluster.timings import Timings


@dataclass(kw_only=True)
class ModelMachine:
    """What all containers of a run share."""

    clock: Clock
    rng: Random
    timings: Timings
    links: dict[str, PodLink] = field(default_factory=dict)  # by Pod's uid

    def link(self, uid: str) -> PodLink:
        """Return a Pod's socket, which lies in its volume."""
        return self.links.setdefault(uid, PodLink())

    def is_deaf(self, uid: str) -> bool:  # noqa: ARG002
        """Say whether a Pod's containers ignore SIGTERM."""
        return False

    def worker_dying(self, pod: KubeObject) -> None:
        """Hear that a worker ended, and that its guard will tell its agent when the leftovers have ended."""

    def outside(self) -> Context | None:
        """Return the context of tasks that a program starts but does not own; None for the present one."""


class ModelContainer:
    """The base of all models."""

    def __init__(self, machine: ModelMachine, run: ContainerRun) -> None:
        self._machine = machine
        self.pod = run.pod
        self.uid: str = run.pod["metadata"]["uid"]
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code, unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(code)

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
        raise LookupError("expected a guard or a supervisor with a worker below it, saw neither")

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
