"""A JobSet whose status was lost recovers from its Pods' announcements without a person."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def group(restarts_max: int = 5) -> KubeObject:
    """Return a group of three Pods."""
    return jobset(jobs=[replicated_job(pods=3)], restarts_max=restarts_max)


async def ran_to_epoch_3(rig: Rig, restarts_max: int) -> Crew:
    """Bring a group to epoch 3, and end its controller."""
    async with rig.running():
        crew = await rig.started(group(restarts_max=restarts_max))
        for epoch in (2, 3):
            await rig.meet(crew, epoch)
        assert await crew.epochs() == (3, 2)
    return crew


async def lose_status(rig: Rig) -> None:
    """Remove the status, as a restore from a backup without it does."""
    await rig.edit({"status": None}, 0.0, subresource="status")


@pytest.mark.parametrize("restarts_max", [5, 2])
async def test_what_every_pod_announced_is_the_groups_epoch(restarts_max: int) -> None:
    """The epoch that every Pod announced becomes S again, with an Event, without a restart or a counted one."""
    rig = Rig()
    crew = await ran_to_epoch_3(rig, restarts_max)
    await lose_status(rig)
    async with rig.running():
        await rig.settle()
        synced, deprecated = await crew.epochs()
        assert synced == 3
        assert deprecated < 3
        (event,) = await rig.events("StatusRestored")
        assert "expected syncedEpoch to be 3" in event["note"]
        assert "its workers run on" in event["note"]
        assert len(await rig.events("GroupRestartStarted")) == 2
        assert len(await rig.events("GroupRestartFinished")) == 2


async def test_a_controller_that_remembers_writes_the_status_again(rig: Rig) -> None:
    """A running controller writes a lost status again at once, as it was."""
    crew = await rig.started(group())
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    await lose_status(rig)
    await rig.settle()
    assert await crew.epochs() == (2, 1)
    await rig.meet(crew, 3)
    assert await crew.epochs() == (3, 2)


async def test_one_tampered_pod_alone_decides_nothing() -> None:
    """An epoch that only one Pod announces restarts no other Pod, with or without a lost status."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(group())
        one, *_ = crew.pods.values()
        await rig.announce(crew, one, 7)
        assert await crew.epochs() == (1, 0)
    await lose_status(rig)
    async with rig.running():
        await rig.settle()
        assert await crew.epochs() == (0, 0)
        await rig.announce(crew, one, 1)
        assert await crew.epochs() == (1, 0)


async def test_pods_of_two_generations_meet_in_the_epoch_after() -> None:
    """A Pod that is new since the loss and the older ones restart together and meet in the next epoch."""
    rig = Rig()
    crew = await ran_to_epoch_3(rig, 5)
    await lose_status(rig)
    new, *_ = crew.pods.values()
    await crew.announce(new, 1)
    async with rig.running():
        await rig.settle()
        assert await crew.epochs() == (3, 3)
        (event,) = await rig.events("StatusRestored")
        assert "the group meets in the epoch after" in event["note"]
        await rig.meet(crew, 4)
        assert await crew.epochs() == (4, 3)


async def test_a_budget_that_was_lost_too_fails_nobody_before_the_next_restart() -> None:
    """After the exempt epochs are lost too, the JobSet does not fail before the next restart."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(group(restarts_max=1))
        for epoch in (2, 3):  # restarts on request are not counted
            await rig.annotate({wire.RESTART_REQUESTED: f"request-{epoch}"})
            await rig.meet(crew, epoch)
        assert await crew.epochs() == (3, 2)
    await lose_status(rig)
    async with rig.running():
        await rig.settle()
        assert (await crew.epochs())[0] == 3
        assert (await crew.status())[wire.EXEMPT_EPOCHS] == 1
        assert await crew.find_condition("Failed") is None
