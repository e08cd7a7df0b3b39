"""A modelled guard takes from its link what a guard's process would."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from inplace.common.protocol.guard import AgentSignal, BarrierLifted, Event, LinkEnded, Signalled, StayOn
from inplace.simulator.cluster.model_link import ModelGuard, PodLink


class NotedWorker:
    """A guard's worker and process, which note what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start_worker(self, epoch: int) -> None:
        """Note a start."""
        self.told.append(f"start {epoch}")

    def stop_worker(self) -> None:
        """Note a stop."""
        self.told.append("stop")

    def signal_worker(self, number: int) -> None:
        """Note a signal."""
        self.told.append(f"signal {number}")

    def take_stacks(self, request: int) -> None:
        """Have none."""

    def leave(self, code: int) -> None:
        """Note the guard's end."""
        self.told.append(f"leave {code}")


@pytest.mark.parametrize("event", [AgentSignal(SIGTERM), BarrierLifted(2), StayOn(), LinkEnded()])
def test_a_guard_that_leaves_hears_nothing(event: Event) -> None:
    """What the agent says between the guard's end and the end of its process reaches nobody."""
    worker = NotedWorker()
    guard = ModelGuard(PodLink(), worker)
    guard.begin()
    guard.hear(StayOn())
    guard.take(Signalled(SIGTERM))
    guard.hear(event)
    assert worker.told == [f"leave {128 + SIGTERM}"]


def test_a_guard_that_waits_outlives_its_agent() -> None:
    """In depth `containers` it waits for the next agent."""
    worker = NotedWorker()
    guard = ModelGuard(PodLink(), worker)
    guard.begin()
    guard.hear(LinkEnded())
    guard.hear(BarrierLifted(1))
    assert worker.told == ["start 1"]
