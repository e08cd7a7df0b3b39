"""A restart on request: once for each id, uncounted, of all running scopes."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.scopes import CRD_CURE
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig
from tests.deploy.crd_cases import crd

pytestmark = pytest.mark.virtual_time


async def ask(rig: Rig, request: str) -> None:
    """Annotate the JobSet, as kubectl does."""
    await rig.annotate({wire.RESTART_REQUESTED: request}, 0.1)


@pytest.mark.parametrize("scope", [None, "ReplicatedJob"])
async def test_a_definition_that_is_older_than_saving_does_not_swallow_the_request(scope: str | None) -> None:
    """The API server drops `saving`: the restart comes at once, uncounted and once; a warning has the cure."""
    definition = crd()
    fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del fields[wire.SAVING]
    del fields[wire.SCOPED_EPOCHS]["items"]["properties"][wire.SAVING]
    rig = Rig(definition=definition)
    async with rig.running():
        annotations = {wire.FAILURES: "backoff=0"} | ({} if scope is None else {wire.RESTART_SCOPE: scope})
        crew = await rig.started(jobset(restarts_max=0, annotations=annotations))
        await ask(rig, "a,save=600")
        await rig.settle(5.0)
        assert all(epochs == (1, 1) for epochs in await epochs_of(crew)), await crew.status()
        await rig.meet(crew, 2, 0.1)
        await rig.settle(700.0)
        assert all(epochs == (2, 1) for epochs in await epochs_of(crew)), await crew.status()
        assert await crew.find_condition("Failed") is None
        (event,) = await rig.events("SavingNotStored")
        assert CRD_CURE in event["note"]
        assert (await crew.status())[wire.LAST_GROUP_RESTART]["request"] == "a"


async def test_a_definition_that_drops_the_id_repeats_no_restart() -> None:
    """The request is refused with the cure, other restarts come as ever, and a whole definition brings it once."""
    definition = crd()
    fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del fields[wire.LAST_RESTART_REQUEST]
    rig = Rig(definition=definition)
    async with rig.running():
        crew = await rig.started(jobset(restarts_max=1))
        await ask(rig, "a")
        await rig.settle(60.0)
        assert await crew.epochs() == (1, 0)
        assert CRD_CURE in (await rig.events("RestartRequestRefused"))[0]["note"]
        await rig.announce(crew, next(iter(crew.pods.values())), 2, 0.1)
        await rig.meet(crew, 2, 0.1)
        await rig.settle(60.0)
        assert await crew.epochs() == (2, 1)
        assert (await crew.status())[wire.LAST_GROUP_RESTART]["trigger"] == "worker_exit"
        stored = await rig.admin.get(CUSTOM_RESOURCE_DEFINITIONS, None, definition["metadata"]["name"])
        await rig.admin.replace(
            CUSTOM_RESOURCE_DEFINITIONS, None, definition["metadata"]["name"], stored | {"spec": crd()["spec"]}
        )
        await rig.settle(60.0)  # the change ends every watch
        await ask(rig, "b")
        assert await crew.epochs() == (2, 2)
        await rig.meet(crew, 3, 0.1)
        await rig.settle(60.0)
        assert await crew.epochs() == (3, 2)


async def epochs_of(crew: Crew) -> list[tuple[int, int]]:
    """Return S and D of each scope."""
    status = await crew.status()
    return [wire.epochs_of_status(part) for part in status.get(wire.SCOPED_EPOCHS) or (status,)]


def saving(status: dict[str, Any]) -> tuple[int, str]:
    """Return the epoch whose workers save, and for which request."""
    return status[wire.SAVING]["epoch"], status[wire.SAVING]["request"]


def at_epoch_1() -> PlannerWorld:
    """Return the settled world of a group that runs at epoch 1."""
    world = settled(jobset())
    world.decisions = {"": Decision(1, 0)}
    world.settle()
    return world


@pytest.mark.parametrize("seconds", ["", "0", "-1", "3601", "1e3", "60s", "many", "9" * 20, " 60", "6,save=6"])
def test_a_time_to_save_that_is_none(seconds: str) -> None:
    """Nothing is restarted, and SpecProblem says what is expected."""
    world = at_epoch_1()
    world.manifest["metadata"]["annotations"] = {wire.RESTART_REQUESTED: f"one,save={seconds}"}
    world.settle()
    assert "save: expected an integer from 1 to 3600" in world.condition("SpecProblem")["message"]
    assert wire.LAST_RESTART_REQUEST not in world.status
