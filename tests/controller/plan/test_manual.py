"""A restart on request: once for each id, uncounted, of all running scopes."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.scopes import CRD_CURE
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig
from tests.deploy.crd_cases import crd

pytestmark = pytest.mark.virtual_time


async def ask(rig: Rig, request: str) -> None:
    """Annotate the JobSet, as kubectl does."""
    await rig.annotate({wire.RESTART_REQUESTED: request}, 0.1)


async def test_each_id_restarts_the_group_once_and_costs_nothing(rig: Rig) -> None:
    """Two status writes; the same id again, or by another controller, does nothing; maxRestarts stays whole."""
    crew = await rig.started(jobset(restarts_max=1))
    before = rig.writes("/jobsets/train/status")
    for epoch, request in ((2, "one"), (3, "2026-11-22T02:39:09Z"), (4, "three")):
        await ask(rig, request)
        assert await crew.epochs() == (epoch - 1, epoch - 1)
        await ask(rig, request)
        await rig.meet(crew, epoch, 0.1)
        assert await crew.epochs() == (epoch, epoch - 1)
        entry = (await crew.status())[wire.LAST_GROUP_RESTART]
        assert (entry["trigger"], entry["request"]) == ("manual", request)
    assert rig.writes("/jobsets/train/status") == before + 6 + 1  # a dry run: is the first id kept
    labels = {"namespace": "default", "jobset": "train"}
    assert rig.sample("inplace_restart_budget_remaining", **labels) == 1
    assert rig.sample("inplace_group_restarts_total", outcome="finished", trigger="manual", **labels) == 3
    await rig.change_controller()
    await rig.settle(20.0)
    assert await crew.epochs() == (4, 3)
    await rig.meet(crew, 5, 0.1)
    assert await crew.epochs() == (5, 4)
    await rig.meet(crew, 6)
    assert (await crew.status())["terminalState"] == "Failed"  # one restart is allowed, and this is the second


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


async def test_a_group_that_has_not_started_is_not_restarted(rig: Rig) -> None:
    """An annotation that came with the manifest is noted; the first start is not interrupted."""
    crew = await rig.started(jobset(annotations={wire.RESTART_REQUESTED: "from-a-copy"}))
    assert await crew.epochs() == (1, 0)
    assert (await crew.status())[wire.LAST_RESTART_REQUEST] == "from-a-copy"
    (event,) = await rig.events("RestartRequestNoted")
    assert "the group has not started yet" in event["note"]


async def test_a_request_during_a_restart_joins_it(rig: Rig) -> None:
    """A request during a restart causes no second one, and the running restart counts as before."""
    crew = await rig.started(jobset(restarts_max=1))
    await rig.announce(crew, next(iter(crew.pods.values())), 2, 0.1)
    await ask(rig, "impatient")
    await rig.meet(crew, 2, 0.1)
    await rig.settle(5.0)
    assert await crew.epochs() == (2, 1)
    assert (await crew.status())[wire.LAST_GROUP_RESTART]["trigger"] == "worker_exit"
    (event,) = await rig.events("RestartRequestNoted")
    assert "a restart is under way" in event["note"]


async def test_suspended_and_resumed(rig: Rig) -> None:
    """A request to a suspended JobSet restarts nothing, also after the resume."""
    crew = await rig.started(jobset())
    await rig.edit({"spec": {"suspend": True}}, 0.1)
    await ask(rig, "asleep")
    assert await crew.epochs() == (1, 0)
    assert (await crew.status())[wire.LAST_RESTART_REQUEST] == "asleep"


def saving(status: dict[str, Any]) -> tuple[int, str]:
    """Return the epoch whose workers save, and for which request."""
    return status[wire.SAVING]["epoch"], status[wire.SAVING]["request"]


async def test_who_cannot_save_in_time_delays_nobody(rig: Rig) -> None:
    """The agents are told in one status write; the epoch ends after the time to save, and not before; uncounted."""
    crew = await rig.started(jobset(restarts_max=0))
    before = rig.writes("/jobsets/train/status")
    await ask(rig, "one,save=60")
    assert await crew.epochs() == (1, 0)
    assert saving(await crew.status()) == (1, "one")
    assert (await crew.status())[wire.LAST_RESTART_REQUEST] == "one"
    await rig.settle(59.0)
    assert await crew.epochs() == (1, 0)
    assert rig.writes("/jobsets/train/status") == before + 1 + 1  # a dry run: is the id kept
    await rig.settle(1.0)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    entry = (await crew.status())[wire.LAST_GROUP_RESTART]
    assert (entry["trigger"], entry["request"]) == ("manual", "one")
    await rig.settle(120.0)
    assert await crew.epochs() == (2, 1)
    assert rig.writes("/jobsets/train/status") == before + 3 + 1


async def test_workers_that_saved_and_ended_begin_the_restart(rig: Rig) -> None:
    """The first Pod that announces the next epoch begins it; it is the request's restart, and maxRestarts 0 stands."""
    crew = await rig.started(jobset(restarts_max=0))
    await ask(rig, "one,save=3600")
    await rig.settle(5.0)
    await rig.announce(crew, next(iter(crew.pods.values())), 2, 0.1)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    status = await crew.status()
    entry = status[wire.LAST_GROUP_RESTART]
    assert (entry["trigger"], entry["request"], status[wire.EXEMPT_EPOCHS]) == ("manual", "one", 1)
    assert "firstFailure" not in entry
    assert "terminalState" not in status


@pytest.mark.slow
async def test_another_controller_keeps_the_time_to_save() -> None:
    """The controller dies between request and restart; the next one restarts when the first would have."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(jobset())
        await ask(rig, "one,save=90")
    await rig.settle(40.0)
    async with rig.running(rig.controller()):
        await rig.settle(45.0)
        assert await crew.epochs() == (1, 0)
        await rig.settle(10.0)
        assert await crew.epochs() == (1, 1)


async def test_a_second_request_while_the_workers_save(rig: Rig) -> None:
    """A later one does not put the restart off; one without time to save restarts now; an epoch is exempt once."""
    crew = await rig.started(jobset(restarts_max=0))
    await ask(rig, "one,save=30")
    await ask(rig, "two,save=600")
    await rig.settle(31.0)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.1)
    await ask(rig, "three,save=600")
    await ask(rig, "four")
    assert await crew.epochs() == (2, 2)
    await rig.meet(crew, 3, 0.1)
    status = await crew.status()
    assert (status[wire.LAST_GROUP_RESTART]["request"], status[wire.EXEMPT_EPOCHS]) == ("four", 2)


@pytest.mark.slow
async def test_suspended_while_the_workers_save(rig: Rig) -> None:
    """A group that is suspended has nothing to restart, and its epoch is not touched."""
    crew = await rig.started(jobset())
    await ask(rig, "one,save=30")
    await rig.edit({"spec": {"suspend": True}}, 60.0)
    assert await crew.epochs() == (1, 0)


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


def divided(*names: str) -> PlannerWorld:
    """Return a settled world of replicatedJobs that restart each by itself."""
    jobs = [replicated_job(name) for name in names]
    return settled(jobset(jobs=jobs, annotations={wire.RESTART_SCOPE: "ReplicatedJob"}))


def test_each_scope_restarts_when_its_workers_have_saved() -> None:
    """One scope ends by itself and restarts; the other one has its time to the end."""
    world = divided("a", "b")
    world.decisions = {"a": Decision(1, 0), "b": Decision(3, 2)}
    world.settle()
    world.manifest["metadata"]["annotations"][wire.RESTART_REQUESTED] = "7,save=60"
    world.carry_out(world.plan())
    assert {name: (s.synced, s.deprecated) for name, s in world.jobset.scopes.items()} == {"a": (1, 0), "b": (3, 2)}
    world.decisions = {"a": Decision(1, 1), "b": Decision(3, 2)}
    world.carry_out(world.plan())
    scopes = {name: (s.synced, s.deprecated, s.exempt) for name, s in world.jobset.scopes.items()}
    assert scopes == {"a": (1, 1, 1), "b": (3, 2, 1)}


def test_a_group_that_met_again_while_no_controller_ran() -> None:
    """All Pods announced the next epoch before the old one could be deprecated: it is the request's restart still."""
    world = at_epoch_1()
    world.manifest["metadata"]["annotations"] = {wire.RESTART_REQUESTED: "7,save=60"}
    world.carry_out(world.plan())
    world.decisions = {"": Decision(2, 0)}
    world.carry_out(world.plan())
    scope = world.jobset.scopes[""]
    assert (scope.synced, scope.deprecated, scope.exempt) == (2, 1, 1)
    entry = world.status[wire.LAST_GROUP_RESTART]
    assert (entry["trigger"], entry["request"]) == ("manual", "7")
    assert "syncedAt" in entry


def test_all_scopes_restart() -> None:
    """Each running scope restarts; a scope that has not started yet goes on starting."""
    world = divided("a", "b", "c")
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
    world = settled(jobset(strategy=strategy, annotations={wire.RESTART_REQUESTED: "7"}))
    assert "expected restartStrategy InPlaceRestart" in world.condition("SpecProblem")["message"]
    assert wire.LAST_RESTART_REQUEST not in world.status
