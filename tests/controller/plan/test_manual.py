"""A restart on request: once for each id, uncounted, of all running scopes."""

from __future__ import annotations

import pytest

from inplace.common import wire
from inplace.common.epoch.decision import Decision
from inplace.common.kube.resources import JOBSETS
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


async def ask(rig: Rig, request: str) -> None:
    """Annotate the JobSet, as kubectl does."""
    annotations = {wire.RESTART_REQUESTED: request}
    await rig.admin.patch(JOBSETS, "default", "train", {"metadata": {"annotations": annotations}})
    await rig.settle(0.1)


async def meet(rig: Rig, crew: Crew, epoch: int) -> None:
    """Let every Pod announce an epoch."""
    await crew.announce_all(epoch)
    await rig.settle(0.1)


async def test_each_id_restarts_the_group_once_and_costs_nothing() -> None:
    """Two status writes; the same id again, or by another controller, does nothing; maxRestarts stays whole."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(jobset(restarts_max=1))
        before = rig.writes("/jobsets/train/status")
        for epoch, request in ((2, "one"), (3, "2026-11-22T02:39:09Z"), (4, "three")):
            await ask(rig, request)
            assert await crew.epochs() == (epoch - 1, epoch - 1)
            await ask(rig, request)
            await meet(rig, crew, epoch)
            assert await crew.epochs() == (epoch, epoch - 1)
            entry = (await crew.status())[wire.LAST_GROUP_RESTART]
            assert (entry["trigger"], entry["request"]) == ("manual", request)
        assert rig.writes("/jobsets/train/status") == before + 6
        labels = {"namespace": "default", "jobset": "train"}
        registry = rig.controllers[0].metrics.registry
        assert registry.get_sample_value("inplace_restart_budget_remaining", labels) == 1
        counted = labels | {"outcome": "finished", "trigger": "manual"}
        assert registry.get_sample_value("inplace_group_restarts_total", counted) == 3
    async with rig.running(rig.controller()):
        await rig.settle(20.0)
        assert await crew.epochs() == (4, 3)
        await meet(rig, crew, 5)
        assert await crew.epochs() == (5, 4)
        await meet(rig, crew, 6)
        assert (await crew.status())["terminalState"] == "Failed"  # one restart is allowed, and this is the second


async def test_a_group_that_has_not_started_is_not_restarted() -> None:
    """An annotation that came with the manifest is noted; the first start is not interrupted."""
    rig = Rig()
    async with rig.running():
        manifest = jobset()
        manifest["metadata"]["annotations"] = {wire.RESTART_REQUESTED: "from-a-copy"}
        crew = await rig.started(manifest)
        assert await crew.epochs() == (1, 0)
        assert (await crew.status())[wire.LAST_RESTART_REQUEST] == "from-a-copy"
        (event,) = await rig.events("RestartRequestNoted")
        assert "the group has not started yet" in event["note"]


async def test_a_request_during_a_restart_joins_it() -> None:
    """A request during a restart causes no second one, and the running restart counts as before."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(jobset(restarts_max=1))
        await crew.announce(next(iter(crew.pods.values())), 2)
        await rig.settle(0.1)
        await ask(rig, "impatient")
        await meet(rig, crew, 2)
        await rig.settle(5.0)
        assert await crew.epochs() == (2, 1)
        assert (await crew.status())[wire.LAST_GROUP_RESTART]["trigger"] == "worker_exit"
        (event,) = await rig.events("RestartRequestNoted")
        assert "a restart is under way" in event["note"]


async def test_suspended_and_resumed() -> None:
    """A request to a suspended JobSet restarts nothing, also after the resume."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(jobset())
        await rig.admin.patch(JOBSETS, "default", "train", {"spec": {"suspend": True}})
        await rig.settle(0.1)
        await ask(rig, "asleep")
        assert await crew.epochs() == (1, 0)
        assert (await crew.status())[wire.LAST_RESTART_REQUEST] == "asleep"


def test_all_scopes_restart() -> None:
    """Each running scope restarts; a scope that has not started yet goes on starting."""
    manifest = jobset(jobs=[replicated_job("a"), replicated_job("b"), replicated_job("c")])
    manifest["metadata"]["annotations"] = {wire.RESTART_SCOPE: "ReplicatedJob"}
    world = PlannerWorld(manifest)
    world.settle()
    world.decisions = {"a": Decision(1, 0), "b": Decision(3, 2), "c": Decision(0, 0)}
    world.settle()
    world.manifest["metadata"]["annotations"][wire.RESTART_REQUESTED] = "7"
    planned = world.plan()
    world.carry_out(planned)
    scopes = {name: (s.synced, s.deprecated, s.exempt) for name, s in world.jobset.scopes.items()}
    assert scopes == {"a": (1, 1, 1), "b": (3, 3, 1), "c": (0, 0, 0)}
    assert world.status[wire.LAST_RESTART_REQUEST] == "7"
    world.decisions = {"a": Decision(1, 1), "b": Decision(3, 3), "c": Decision(0, 0)}
    assert world.settle() == 0


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
def test_where_groups_do_not_restart_in_place(strategy: str) -> None:
    """Nothing is restarted, and SpecProblem says why."""
    world = PlannerWorld(jobset(strategy=strategy))
    world.manifest["metadata"]["annotations"] = {wire.RESTART_REQUESTED: "7"}
    world.settle()
    condition = world.condition("SpecProblem")
    assert condition is not None
    assert "expected restartStrategy InPlaceRestart" in condition["message"]
    assert wire.LAST_RESTART_REQUEST not in world.status
