"""An agent with a lease: what it promises, what it refuses, and what it takes for the end of its lease."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from inplace.agent.announce.announcer import _is_leaving
from inplace.agent.announce.jobset_requests import announcement_request
from inplace.agent.announce.lease_keeper import LeaseKeeper
from inplace.agent.barrier.http import Barrier
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import TransportError
from inplace.common.protocol.agent import AgentPhase, AgentState, Lease, View, step
from inplace.common.wire import names as wire
from inplace.simulator.campaign.containers import QUIET
from inplace.simulator.cluster.model_agent import ModelBarrier

ENV = {"NAMESPACE": "ns", "POD_NAME": "p", "JOBSET_NAME": "train"}
LENGTH_S = 60
RUNNING = AgentState(previous=4, phase=AgentPhase.LIFTED, epoch=5, view=View(5, 4), leased=False)
pytestmark = pytest.mark.virtual_time


def config(text: str) -> AgentConfig:
    """Return the settings of an agent with this FENCE_AFTER_S."""
    return AgentConfig.from_env(ENV | {"FENCE_AFTER_S": text})


async def test_an_announcement_carries_the_promise() -> None:
    """And without a lease it has the same bytes as ever."""
    annotations = json.loads(announcement_request(config("60"), 3).body)["metadata"]["annotations"]
    assert annotations == wire.epoch_annotations(3) | {wire.FENCED_WITHIN: "70"}
    assert b"fence" not in announcement_request(config(""), 3).body


@pytest.mark.parametrize("text", ["14", "601", "-1", "6e1", "soon"])
async def test_a_length_out_of_bounds_is_refused(text: str) -> None:
    """The agent ends with a message, and announces nothing."""
    with pytest.raises(ConfigError, match="FENCE_AFTER_S: expected an integer from 15 to 600"):
        config(text)


@pytest.mark.parametrize(
    ("answer", "leaves"),
    [
        (b'{"metadata": {"name": "p", "annotations": {"a": "deletionTimestamp"}}}', False),
        (b'{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}', True),
        (b"{}", True),
        (b"[", True),
    ],
)
async def test_an_answer_that_does_not_say_that_the_pod_stays_says_that_it_leaves(answer: bytes, leaves: bool) -> None:
    """An announcement counts only when it is certain that nobody counts the Pod as gone."""
    assert _is_leaving(answer) == leaves


@dataclass
class Driven:
    """A machine whose worker runs, and a server that answers until `is_cut`."""

    clock: LoopClock
    is_cut: bool = False
    state: AgentState = RUNNING
    events: list[tuple[float, Any]] = field(default_factory=list)
    asked: int = 0

    def take(self, event: Any) -> None:
        """Step the machine."""
        self.state, actions = step(self.state, event)
        if isinstance(event, Lease) or actions:
            self.events.append((self.clock.monotonic_s(), event))

    async def look(self, timeout_s: float) -> View:
        """Answer, or refuse."""
        self.asked += 1
        if self.is_cut:
            raise TransportError("no route", sent=False)
        return View(5, 4)


async def followed(driven: Driven, grace_s: float | None = None) -> tuple[LeaseKeeper, Any]:
    """Start a fence."""
    barrier: Barrier = ModelBarrier()
    deps = AgentDeps(transport=None, clock=driven.clock, rng=Random(1), barrier=barrier, log=QUIET)  # type: ignore[arg-type]
    fence = LeaseKeeper(
        replace(config(str(LENGTH_S)), start_slot_s=0.0),
        deps,
        take=driven.take,
        state=lambda: driven.state,
        look=driven.look,
        grace_s=lambda: grace_s,
    )
    return fence, [asyncio.create_task(work) for work in fence.work()]


async def test_a_lease_is_kept_while_the_server_answers_and_ends_soon_after_it_does_not() -> None:
    """At most its length after the last read that was answered, and a second."""
    driven = Driven(LoopClock())
    _, tasks = await followed(driven)
    await driven.clock.sleep(10 * LENGTH_S)
    assert [event for _, event in driven.events] == [Lease(held=True)]
    assert 10 * 3 <= driven.asked <= 10 * 4 + 1
    driven.is_cut, cut_s = True, driven.clock.monotonic_s()
    await driven.clock.sleep(2 * LENGTH_S)
    ended_s, ended = driven.events[1]
    assert ended == Lease(held=False)
    assert 0.6 * LENGTH_S < ended_s - cut_s <= LENGTH_S + 1.0
    assert driven.state.phase is AgentPhase.RESTARTING
    for task in tasks:
        task.cancel()


async def test_beside_a_guard_that_takes_too_long_there_is_no_lease() -> None:
    """Should the agent die, its worker would outlive the promise."""
    driven = Driven(LoopClock())
    _, tasks = await followed(driven, grace_s=30.0)
    await driven.clock.sleep(LENGTH_S)
    assert driven.events == []
    for task in tasks:
        task.cancel()
