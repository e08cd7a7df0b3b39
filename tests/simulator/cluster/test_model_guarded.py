"""A modelled guard takes from its link what a guard's process would."""

from __future__ import annotations

import asyncio
from random import Random
from signal import SIGTERM

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.guard import AgentSignal, BarrierLifted, Event, LinkEnded, StayOn
from inplace.common.protocol.link import Lifted
from inplace.simulator.cluster.model_container import ModelMachine
from inplace.simulator.cluster.model_guarded import GuardedContainer
from inplace.simulator.cluster.model_worker import TimedRun
from inplace.simulator.cluster.pod_spec import parse_pod
from inplace.simulator.cluster.runtime import ContainerRun, Sandbox
from inplace.simulator.cluster.timings import Timings

pytestmark = pytest.mark.virtual_time
POD = {"metadata": {"uid": "uid"}, "spec": {"containers": [{"name": "worker", "image": "i"}]}}
RUN = ContainerRun(POD, Sandbox("uid", "10.0.0.1", {}), parse_pod(POD).containers[0], ("guard",), {}, 0)


class NotedMachine(ModelMachine):
    """A machine that notes the epochs in which workers start."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock(), rng=Random(1), timings=Timings(), transport_for=lambda _: None)  # type: ignore[arg-type,return-value]
        self.started: list[int | None] = []

    def make_child(self, run: ContainerRun, epoch: int | None, lifted: Lifted, *, leaves: bool) -> TimedRun:
        """Note a start."""
        self.started.append(epoch)
        return TimedRun(self, lambda: None, None, lambda _: None)


@pytest.mark.parametrize("event", [AgentSignal(SIGTERM), BarrierLifted(2), StayOn(), LinkEnded()])
async def test_a_guard_that_leaves_hears_nothing(event: Event) -> None:
    """What the agent says between the guard's end and the end of its process reaches nobody."""
    machine = NotedMachine()
    guard = GuardedContainer(machine, RUN)
    running = asyncio.create_task(guard.wait())
    await asyncio.sleep(0)
    guard.hear(StayOn())
    guard.terminate()
    guard.hear(event)
    assert await running == 128 + SIGTERM
    assert machine.started == []


async def test_a_guard_that_waits_outlives_its_agent() -> None:
    """In depth `containers` it waits for the next agent."""
    machine = NotedMachine()
    guard = GuardedContainer(machine, RUN)
    running = asyncio.create_task(guard.wait())
    await asyncio.sleep(0)
    guard.hear(LinkEnded())
    guard.hear(BarrierLifted(1))
    assert machine.started == [1]
    running.cancel()
    await asyncio.wait([running])
