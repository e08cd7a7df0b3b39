"""A Pod that is deleted by force while it waits at the barrier: its epoch is skipped, and costs no restart."""

from __future__ import annotations

import pytest

from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

THREE = jobset(jobs=[replicated_job(pods=3)], restarts_max=1)


async def at_the_barrier(rig: Rig) -> tuple[Crew, str]:
    """Let a group of three restart: two wait at the barrier of epoch 2; return one of them, which has a node."""
    crew = await rig.with_pods(THREE)
    waits, also, _ = crew.pods.values()
    await crew.bind(waits, "node-0")
    await rig.meet(crew, 1, 0.1)
    await crew.announce(waits, 2)
    await rig.announce(crew, also, 2, 0.1)
    assert await crew.epochs() == (1, 1)
    return crew, waits


async def test_the_epoch_of_a_pod_that_vanished_is_skipped_and_not_counted(rig: Rig) -> None:
    """A vanished Pod's epoch is skipped by one write of S = D; the group meets in the next; one restart counts."""
    crew, waits = await at_the_barrier(rig)
    before = rig.writes("/jobsets/train/status")
    await crew.remove(waits)
    await rig.settle(0.1)
    assert await crew.epochs() == (2, 2)
    assert rig.writes("/jobsets/train/status") == before + 1
    status = await crew.status()
    assert (status["exemptEpochs"], status["lastExemptEpoch"]) == (1, 3)
    assert status["lastGroupRestart"]["epoch"] == 3
    assert "syncedAt" not in status["lastGroupRestart"]
    await crew.make_pods()
    await rig.meet(crew, 3, 0.1)
    assert await crew.epochs() == (3, 2)
    assert "terminalState" not in await crew.status()  # maxRestarts is 1
    assert len(await rig.events("GroupRestartFinished")) == 1


async def test_a_new_leader_finds_the_skip_in_the_status(rig: Rig) -> None:
    """After the write a new leader finds the skipped epoch in the status."""
    crew, waits = await at_the_barrier(rig)
    await crew.remove(waits)
    await rig.settle(0.1)
    await rig.change_controller()
    await crew.make_pods()
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 2)
    await rig.meet(crew, 3, 0.1)
    assert await crew.epochs() == (3, 2)


@pytest.mark.parametrize("how", ["ended", "never ran"])
async def test_a_pod_that_cannot_come_back_skips_nothing(rig: Rig, how: str) -> None:
    """For a Pod that ended, or never had a node, no epoch is skipped: its replacement announces the same epoch."""
    crew, waits = await at_the_barrier(rig)
    if how == "ended":
        await crew.set_phase(waits, "Failed")
    gone = waits if how == "ended" else next(name for name in crew.pods.values() if name != waits)
    await crew.remove(gone)
    await rig.settle(0.1)
    assert await crew.epochs() == (1, 1)
    await crew.make_pods()
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
