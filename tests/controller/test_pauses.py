"""Pauses of the event loop, measured by a task that sleeps and wakes late."""

import asyncio
import time
from random import Random

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import PAUSES_EVERY_S, Controller, measure_pauses
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.model_agent import QuietLog
from tests.controller.background import background


class _LateClock(LoopClock):
    """A clock that wakes each sleeper late by the next of its durations, and then never again."""

    def __init__(self, late_s: list[float]) -> None:
        super().__init__(0.0)
        self._late_s = late_s

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s + self._late_s.pop(0) if self._late_s else 3600.0)


@pytest.mark.virtual_time
async def test_a_late_wake_up_is_a_pause() -> None:
    """Each wake-up is one observation of its delay."""
    seen: list[float] = []
    async with background(measure_pauses(_LateClock([0.0, 0.3, 0.1]), seen.append)):
        await asyncio.sleep(10 * PAUSES_EVERY_S + 0.4)
    assert seen == pytest.approx([0.0, 0.3, 0.1])


@pytest.mark.asyncio
async def test_a_loop_that_is_held_up_is_seen() -> None:
    """On a real loop a call that computes for 0.33 s is measured as a pause, at most one interval shorter."""
    seen: list[float] = []
    async with background(measure_pauses(LoopClock(), seen.append)):
        await LoopClock().sleep(3 * PAUSES_EVERY_S)
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            pass
        await LoopClock().sleep(3 * PAUSES_EVERY_S)
    assert max(seen) >= 0.3 - PAUSES_EVERY_S


def test_a_controller_measures_when_told_to_and_not_by_itself() -> None:
    """Pauses are measured only with the option: its timer would slow virtual time down."""

    async def observations(config: ControllerConfig) -> float:
        clock = LoopClock(0.0)
        transport = InMemoryTransport(ApiServer(clock=clock, rng=Random(1)), user="inplace-controller")
        controller = Controller(transport, clock=clock, config=config, log=QuietLog())
        task = asyncio.create_task(controller.run())
        await clock.sleep(1.0)
        controller.stop()
        await task
        (count,) = [
            sample.value
            for metric in controller.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "inplace_loop_pause_seconds_count"
        ]
        return count

    silent = ControllerConfig(leader_elect=False)
    measuring = ControllerConfig(leader_elect=False, on_cluster=True)
    assert virtual_time.run(observations(silent)) == 0
    assert virtual_time.run(observations(measuring)) == pytest.approx(1.0 / PAUSES_EVERY_S, abs=2)
