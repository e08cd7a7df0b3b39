"""
Probe one container instance at the ticks of its Pod and report changes.

A kubelet has a probe worker for each kind of probe, which starts with the Pod, not with the container, so container
starts do not move its ticks: a barrier that lifts just after a tick is noticed a whole period later. Readiness and
liveness begin once the startup probe has succeeded. Source: pkg/kubelet/prober/worker.go.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from inplace.common.kube.clock import Clock
from inplace.simulator.cluster import pod_lifecycle as life
from inplace.simulator.cluster.pod_spec import ContainerSpec, Probe
from inplace.simulator.cluster.runtime import RunningContainer


class Prober:
    """The probes of one instance.

    Args:
        born_s: when the Pod came to this node; ticks are whole periods after it.
        report: takes the lifecycle events.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        instance: int,
        running: RunningContainer,
        *,
        clock: Clock,
        born_s: float,
        report: Callable[[life.Event], None],
    ) -> None:
        self._spec = spec
        self._instance = instance
        self._running = running
        self._clock = clock
        self._born_s = born_s
        self._report = report
        self._ran_s = 0.0

    @staticmethod
    def concerns(spec: ContainerSpec) -> bool:
        """Return whether the container has a probe."""
        return spec.startup is not None or spec.readiness is not None or spec.liveness is not None

    async def run(self) -> None:
        """Probe until cancelled; a probe that only matters once ends by itself."""
        self._ran_s = self._clock.monotonic_s()
        name, instance = self._spec.name, self._instance
        if self._spec.startup is not None:
            if not await self._succeeds(self._spec.startup):
                self._report(life.ProbeFailed(name, instance))
                return
            self._report(life.StartupPassed(name, instance))
        async with asyncio.TaskGroup() as group:
            if self._spec.readiness is not None:
                group.create_task(self._tell_readiness(self._spec.readiness))
            if self._spec.liveness is not None:
                group.create_task(self._tell_death(self._spec.liveness))

    async def _succeeds(self, probe: Probe) -> bool:
        """Probe until the startup probe's first result that counts."""
        return await self._changes(probe, was=None)

    async def _tell_readiness(self, probe: Probe) -> None:
        ready = False
        while True:
            ready = await self._changes(probe, was=ready)
            self._report(life.Readiness(self._spec.name, self._instance, ready))

    async def _tell_death(self, probe: Probe) -> None:
        await self._changes(probe, was=True)
        self._report(life.ProbeFailed(self._spec.name, self._instance))

    async def _changes(self, probe: Probe, *, was: bool | None) -> bool:
        """Probe until as many results in a row as its threshold say something new: success (True) or failure."""
        last, run = None, 0
        while True:
            await self._next_tick(probe.period_s)
            if self._clock.monotonic_s() - self._ran_s < probe.initial_delay_s:
                continue
            result = await self._running.probe(probe)
            last, run = result, run + 1 if result is last else 1
            if result is not was and run >= (probe.success_threshold if result else probe.failure_threshold):
                return result

    async def _next_tick(self, period_s: float) -> None:
        await self._clock.sleep(until_tick_s(self._clock.monotonic_s(), self._born_s, period_s))


def until_tick_s(now_s: float, phase_s: float, period_s: float) -> float:
    """Return the seconds until the next whole period after `phase_s`; 0 when there is no period."""
    if period_s <= 0:
        return 0.0
    ticks = math.floor((now_s - phase_s) / period_s) + 1
    return max(0.0, phase_s + ticks * period_s - now_s)
