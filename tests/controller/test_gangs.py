"""Gangs with the whole controller: what it asks of the API server, with and without Workloads and PodGroups."""

from __future__ import annotations

import msgspec
import pytest

from inplace.common.kube.http.request import Response
from inplace.common.kube.resources import POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.api.scheduling_objects import AGAIN_S
from tests.controller.crew import Crew
from tests.controller.manifests import jobset
from tests.controller.rig import Rig, running_rig

pytestmark = pytest.mark.virtual_time

KINDS = (SCHEDULING_WORKLOADS, POD_GROUPS)


def gang(name: str = "train") -> KubeObject:
    """Return a JobSet that asks for a gang."""
    return jobset(name, scheduling={})


async def stored(rig: Rig) -> list[KubeObject]:
    """Return the Workloads and PodGroups."""
    return [one for kind in KINDS for one in (await rig.admin.list(kind))["items"]]


def asked(rig: Rig) -> list[str]:
    """Return the requests of the controllers that concern Workloads and PodGroups."""
    return [f"{one.method} {one.path}" for one in rig.requests if wire.SCHEDULING_API in one.path]


@pytest.mark.parametrize("serves", [True, False])
async def test_without_the_field_nothing_is_asked(serves: bool) -> None:
    """A controller whose JobSets ask for no gang sends no request about gangs."""
    rig = Rig(serves_gangs=serves)
    async with rig.running():
        await rig.started(jobset())
        await rig.settle(700.0)
        assert asked(rig) == []


async def test_a_gang_costs_its_objects_and_two_watches() -> None:
    """A gang costs one write for each object; a restart in place asks nothing about it, and keeps it."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        crew = await rig.started(gang())
        writes = [one for one in asked(rig) if not one.startswith("GET")]
        assert len(writes) == 2
        before, watches = await stored(rig), len(asked(rig))
        await rig.fail(crew)
        await rig.run_epoch(crew, 2)
        assert await crew.epochs() == (2, 1)
        assert await stored(rig) == before
        assert len(asked(rig)) == watches


async def test_a_gang_goes_with_suspension_and_comes_back() -> None:
    """The objects go at a suspension, come back before the Jobs are resumed, and go when the JobSet is over."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        crew = await rig.started(gang())
        await rig.edit({"spec": {"suspend": True}})
        assert await stored(rig) == []
        await rig.edit({"spec": {"suspend": False}})
        await rig.finish_job(crew, "train-workers-0", "Complete")
        assert await stored(rig) == []


async def test_what_a_person_deletes_comes_back() -> None:
    """A PodGroup that somebody deletes is made anew at once."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        await rig.started(gang())
        (group,) = (await rig.admin.list(POD_GROUPS))["items"]
        await rig.admin.delete(POD_GROUPS, "default", group["metadata"]["name"])
        await rig.settle()
        (again,) = (await rig.admin.list(POD_GROUPS))["items"]
        assert again["metadata"]["uid"] != group["metadata"]["uid"]


async def test_a_new_leader_finds_what_is_there() -> None:
    """A controller that starts reads the objects of its JobSets, and writes none."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        await rig.started(gang())
        before = await stored(rig)
        rig.requests.clear()
        await rig.change_controller()
        assert [one for one in asked(rig) if not one.startswith("GET")] == []
        assert await stored(rig) == before


async def test_a_foreign_object_is_told_of_and_never_taken() -> None:
    """A PodGroup of our name that is somebody else's stays as it is; an Event says so, and no Job is created."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        crew = await rig.submit(jobset(suspend=True, scheduling={}))
        (job,) = (await crew.jobs()).values()
        ours = job["metadata"]["annotations"][wire.GROUP_TEMPLATE]
        group = {"metadata": {"name": ours}, "spec": {"schedulingPolicy": {"basic": {}}}}
        theirs = await rig.admin.create(POD_GROUPS, "default", group)
        await rig.edit({"spec": {"suspend": False}}, 10.0)
        (event,) = await rig.events("GangCreationFailed")
        assert f"PodGroup {ours} exists and is not of this jobset" in event["note"]
        assert (await crew.jobs())["train-workers-0"]["spec"]["suspend"] is True
        assert await rig.admin.get(POD_GROUPS, "default", ours) == theirs


async def test_a_server_without_gangs_gets_one_question_a_minute() -> None:
    """Where gangs are not served there is one Event for each JobSet, its Job is created, and the question is rare."""
    async with running_rig() as rig:
        crews = [await rig.submit(gang(name)) for name in ("one", "two")]
        await rig.settle(600.0)
        assert [len(await crew.jobs()) for crew in crews] == [1, 1]
        told = await rig.events("GangUnavailable")
        assert sorted(event["regarding"]["name"] for event in told) == ["one", "two"]
        assert all("series" not in event for event in told)
        assert await find_problem(crews[0]) is None
        assert 5 <= len(asked(rig)) <= 12


async def find_problem(crew: Crew) -> KubeObject | None:
    """Return the condition SpecProblem."""
    return await crew.find_condition("SpecProblem")


async def test_a_missing_right_is_told_with_the_servers_words() -> None:
    """A controller that may not list Workloads makes the Jobs without a gang, and the Event has the server's answer."""
    rig = Rig(serves_gangs=True)
    words = 'workloads.scheduling.k8s.io is forbidden: User "controller" cannot list resource "workloads"'
    answer = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words}
    rig.fault = lambda request: (
        Response(403, {"content-type": "application/json"}, msgspec.json.encode(answer))
        if wire.SCHEDULING_API in request.path
        else None
    )
    async with rig.running():
        crew = await rig.submit(gang())
        assert await crew.jobs()
        (event,) = await rig.events("GangUnavailable")
        assert words in event["note"]


async def test_a_server_that_begins_to_serve_gangs_serves_new_jobsets() -> None:
    """A JobSet that comes after the server was asked again has a gang; one that runs without goes on so."""
    rig = Rig(serves_gangs=True)
    late = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "the server could not find it"}
    rig.fault = lambda request: (
        Response(404, {"content-type": "application/json"}, msgspec.json.encode(late))
        if wire.SCHEDULING_API in request.path
        else None
    )
    async with rig.running():
        first = await rig.submit(gang("first"))
        before = await first.job_uids()
        rig.fault = lambda _: None
        await rig.settle(AGAIN_S)
        await rig.submit(gang("second"))
        assert {one["metadata"]["labels"][wire.JOBSET_NAME] for one in await stored(rig)} == {"second"}
        assert await first.job_uids() == before


async def test_what_a_server_drops_is_no_difference() -> None:
    """Constraints and claims that the server drops, as their gates are off, make no object again and again."""
    rig = Rig(serves_gangs=True)
    rack = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    claims = [{"name": "links", "resourceClaimName": "links"}]
    job = {"targetReplicatedJobs": ["workers"], "job": rack | {"resourceClaims": claims}}
    async with rig.running():
        crews = [
            await rig.submit(jobset(f"train{at}", scheduling=one))
            for at, one in enumerate((rack, {"replicatedJobs": [job]}))
        ]
        assert [len(await crew.jobs()) for crew in crews] == [1, 1]
        assert len([one for one in asked(rig) if one.startswith("POST")]) == 4
        assert not [one for one in asked(rig) if one.startswith("DELETE")]


async def test_a_server_that_serves_gangs_no_more_is_noticed() -> None:
    """Where the kinds vanish, as without the feature gate, a JobSet that comes later is told of it and goes on."""
    rig = Rig(serves_gangs=True)
    async with rig.running():
        await rig.started(gang("first"))
        gone = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "the server could not find it"}
        rig.fault = lambda request: (
            Response(404, {"content-type": "application/json"}, msgspec.json.encode(gone))
            if wire.SCHEDULING_API in request.path
            else None
        )
        await rig.settle(700.0)
        crew = await rig.submit(gang("second"))
        assert await crew.jobs()
        (event,) = await rig.events("GangUnavailable")
        assert event["regarding"]["name"] == "second"
