"""A spoiled or contradictory status is mended by the next write, or the JobSet fails with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.scopes import WHOLE
from inplace.common.protocol.agent import AgentState, Announce, Verdict, View, judge, step
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire import names as wire
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

PODS = 2
SLOTS = tuple(Slot("workers", 0, index) for index in range(PODS))


def spoiled(status: dict[str, Any], *epochs: int | None) -> PlannerWorld:
    """Return a JobSet with this status, and its ledger's decision for Pods at these epochs."""
    world = settled(jobset(jobs=[replicated_job(pods=PODS)]))
    world.status.update(status)
    decide(world, *epochs)
    return world


def decide(world: PlannerWorld, *epochs: int | None) -> None:
    """Let a new ledger look at Pods."""
    scope = world.jobset.scopes[WHOLE]
    ledger = Ledger(Shape({"workers": (1, PODS)}), scope.synced, scope.deprecated)
    for slot, epoch in zip(SLOTS, epochs, strict=True):
        ledger.observe(PodView(str(slot), slot, epoch))
    world.decision = ledger.decide(restarts_max=100, uncounted=scope.exempt)


@pytest.mark.parametrize(("synced", "deprecated"), [(0, 1), (1, 4), (3, 90)])
def test_a_deprecated_epoch_beyond_the_synced_one_says_that_the_group_had_got_there(
    synced: int, deprecated: int
) -> None:
    """With D beyond S, S is read and written as D, and the group meets in the epoch after it."""
    world = spoiled({wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}, synced or None, synced or None)
    assert wire.epochs_of_status(world.status) == (deprecated, deprecated)

    world.carry_out(world.plan())
    assert world.status.items() >= wire.status_of_epochs(deprecated, deprecated).items()

    decide(world, deprecated + 1, deprecated + 1)
    world.carry_out(world.plan())
    assert world.status.items() >= wire.status_of_epochs(deprecated + 1, deprecated).items()


def test_what_contradicts_itself_is_mended_while_nobody_wants_another_epoch() -> None:
    """A suspended JobSet's contradictory status is mended too: the CRD refuses every other write before that."""
    world = spoiled({wire.SYNCED_EPOCH: 1, wire.DEPRECATED_EPOCH: 2}, None, None)
    world.manifest["spec"]["suspend"] = True

    world.carry_out(world.plan())

    assert world.status.items() >= wire.status_of_epochs(2, 2).items()


@pytest.mark.parametrize("synced", [0, 7, INT32_MAX])
def test_without_an_epoch_left_the_jobset_fails_and_says_so(synced: int) -> None:
    """When the last int32 epoch is deprecated, the JobSet fails with the numbers and the cure."""
    world = spoiled({wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: INT32_MAX}, None, None)

    world.carry_out(world.plan())

    (failed,) = [each for each in world.status["conditions"] if each["type"] == "Failed"]
    assert failed["status"] == "True"
    assert "2147483647" in failed["message"]
    assert "recreate the JobSet" in failed["message"]


async def test_a_running_group_without_an_epoch_left_fails(rig: Rig) -> None:
    """A running group whose status is set to the last epoch fails."""
    crew = await rig.started(jobset())
    status = wire.status_of_epochs(INT32_MAX, INT32_MAX)
    await rig.edit({"status": status}, subresource="status")
    assert (await crew.condition("Failed"))["reason"] == "NoEpochLeft"


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_agents_and_controller_read_the_same_of_any_status(synced: int, deprecated: int, epoch: int) -> None:
    """An epoch that an agent chose from a status is never deprecated by the same status."""
    view = View(*wire.epochs_of_status(wire.status_of_epochs(synced, deprecated)), consistent=True)
    _, actions = step(AgentState(), view)

    assert actions == (Announce(max(synced, deprecated) + 1),)
    assert judge(max(synced, deprecated) + 1, view) is Verdict.PENDING
    assert (judge(epoch, view) is Verdict.DEPRECATED) == (epoch <= deprecated)
