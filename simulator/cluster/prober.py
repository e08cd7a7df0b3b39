"""
Probe one container instance at the ticks of its Pod and report changes.

A kubelet's probe worker starts with the Pod, not with the container, so container starts do not move its ticks: a
barrier that lifts just after a tick is noticed a whole period later.
Source: pkg/kubelet/prober/worker.go.
"""

from __future__ import annotations

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

    @staticmethod
    def concerns(spec: ContainerSpec) -> bool:
        """Return whether the container has a probe."""
        return spec.startup is not None or spec.readiness is not None or spec.liveness is not None

    async def run(self) -> None:
        """Probe until a failure or cancellation ends it; without readiness and liveness, until started."""
        name, instance = self._spec.name, self._instance
        if self._spec.startup is not None:
            if not await self._succeeds(self._spec.startup):
                self._report(life.ProbeFailed(name, instance))
                return
            self._report(life.StartupPassed(name, instance))
        # Both probes run on one schedule: the shorter period. A Pod of this project has at most one of them.
        readiness, liveness = self._spec.readiness, self._spec.liveness
        failures, ready = 0, readiness is None
        while readiness is not None or liveness is not None:
            await self._next_tick(min(p.period_s for p in (readiness, liveness) if p is not None))
            if readiness is not None and await self._running.probe(readiness) != ready:
                ready = not ready
                self._report(life.Readiness(name, instance, ready))
            if liveness is not None:
                failures = 0 if await self._running.probe(liveness) else failures + 1
                if failures >= liveness.failure_threshold:
                    self._report(life.ProbeFailed(name, instance))
                    return

    async def _succeeds(self, probe: Probe) -> bool:
        """Probe until success_threshold successes (True) or failure_threshold failures (False) in a row."""
        successes = failures = 0
        await self._clock.sleep(probe.initial_delay_s)
        while True:
            await self._next_tick(probe.period_s)
            if await self._running.probe(probe):
                successes, failures = successes + 1, 0
                if successes >= probe.success_threshold:
                    return True
            else:
                successes, failures = 0, failures + 1
                if failures >= probe.failure_threshold:
                    return False

    async def _next_tick(self, period_s: float) -> None:
        await self._clock.sleep(until_tick_s(self._clock.monotonic_s(), self._born_s, period_s))


def until_tick_s(now_s: float, phase_s: float, period_s: float) -> float:
    """Return the seconds until the next whole period after `phase_s`; 0 when there is no period."""
    if period_s <= 0:
        return 0.0
    ticks = math.floor((now_s - phase_s) / period_s) + 1
    return max(0.0, phase_s + ticks * period_s - now_s)
