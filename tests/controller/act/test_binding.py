"""Agents get their rights when a Pod of theirs was admitted, each account once; Jobs do not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.kube.resources import JOBS, JOBSETS, NAMESPACES, ROLE_BINDINGS, ROLES
from inplace.controller.act.job_settings import JobSettings
from tests.common.kube.answers import refusal
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig, running_rig

pytestmark = pytest.mark.virtual_time

ADDING = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))
ASKED_IN_TWO_MINUTES = 7  # after 0, 1, 3, 7, 15, 31 and 63 s
OBJECTS = ["roles", "rolebindings", "rolebindings"]


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller that adds agents."""
    return running_rig(job_settings=ADDING)


def creates(request: Request, plural: str) -> bool:
    """Say whether a request creates an object of a kind."""
    return request.method == "POST" and request.path.partition("?")[0].endswith(f"/{plural}")


def given(rig: Rig) -> list[str]:
    """Return the kinds of the objects that controllers asked for, in order, of those that are rights."""
    return [kind for request in rig.requests for kind in dict.fromkeys(OBJECTS) if creates(request, kind)]


def failing(answer: Callable[[], Response]) -> Callable[[Request], Response | None]:
    """Return a fault for each creation of a Role."""
    return lambda request: answer() if creates(request, "roles") else None


async def names(rig: Rig) -> list[str]:
    """Return the names of the bindings."""
    return sorted(found["metadata"]["name"] for found in (await rig.admin.list(ROLE_BINDINGS, "default"))["items"])


@pytest.mark.attack
async def test_a_jobset_whose_pods_are_refused_gives_no_right(rig: Rig) -> None:
    """A JobSet may name any account: until a quota let a Pod with it in, that account gets nothing."""
    await rig.submit(jobset(jobs=[replicated_job(replicas=3)]))
    await rig.settle(60.0)
    assert given(rig) == []


async def test_rights_come_with_the_first_pod(rig: Rig) -> None:
    """A Role that reads this JobSet by name, its binding, and one of the ClusterRole; all go with the JobSet."""
    crew = await rig.with_pods(jobset(jobs=[replicated_job(replicas=3)]))
    await rig.settle()
    uid = (await crew.jobset())["metadata"]["uid"]
    name = f"inplace-agent:train:default:{uid[:8]}"
    assert given(rig) == OBJECTS
    assert await names(rig) == [name, f"{name}:announce"]
    (role,) = (await rig.admin.list(ROLES, "default"))["items"]
    assert role["rules"] == [
        {
            "apiGroups": ["jobset.x-k8s.io"],
            "resources": ["jobsets"],
            "verbs": ["get", "list", "watch"],
            "resourceNames": ["train"],
        }
    ]
    assert [owner["uid"] for owner in role["metadata"]["ownerReferences"]] == [uid]


async def test_without_agents_no_right() -> None:
    """A controller that adds no agents gives no right."""
    async with running_rig() as rig:
        await rig.started(jobset())
        assert given(rig) == []


async def test_a_controller_that_starts_gives_nothing_again(rig: Rig) -> None:
    """Pods that have announced have their rights: a thousand JobSets cost a new leader no request."""
    await rig.started(jobset())
    before = len(given(rig))
    rig.requests.clear()
    await rig.change_controller()
    await rig.settle(30.0)
    assert (before, given(rig)) == (len(OBJECTS), [])


async def test_they_go_with_the_jobset_and_a_new_one_has_its_own(rig: Rig) -> None:
    """The garbage collector removes them; a JobSet made anew at once gets others, which stay."""
    await rig.with_pods(jobset())
    await rig.settle()
    first = await names(rig)
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.with_pods(jobset())
    await rig.settle(30.0)
    second = await names(rig)
    assert len(first) == len(second) == 2
    assert not set(first) & set(second)
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(30.0)
    assert await names(rig) == []


async def test_a_new_job_brings_them_back(rig: Rig) -> None:
    """Somebody deleted a binding; the next Job that is created has it asked for again."""
    await rig.with_pods(jobset(jobs=[replicated_job(replicas=2)]))
    await rig.settle()
    before = await names(rig)
    await rig.admin.delete(ROLE_BINDINGS, "default", before[0])
    await rig.admin.delete(JOBS, "default", "train-workers-1", propagation="Background")
    await rig.settle(30.0)
    assert await names(rig) == before


def unreachable() -> Response:
    """Break the connection after the request was sent."""
    raise TransportError("connection reset", sent=True)


@pytest.mark.parametrize(
    "how", [lambda: refusal(500, "InternalError"), lambda: refusal(429, "TooManyRequests"), unreachable]
)
async def test_a_failure_that_passes_is_tried_again(rig: Rig, how: Callable[[], Response]) -> None:
    """The Jobs are there meanwhile."""
    rig.fault = failing(how)
    crew = await rig.with_pods(jobset())
    await rig.settle()
    assert len(await crew.jobs()) == 1
    assert len(await rig.events("AgentBindingFailed")) == 1
    rig.fault = lambda _: None
    await rig.settle(60.0)
    assert len(await names(rig)) == 2


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (422, "Invalid"), (400, "BadRequest")])
async def test_where_only_a_person_can_the_event_says_how(rig: Rig, code: int, reason: str) -> None:
    """One Warning has the commands and the server's words; it is asked for again with growing pauses, then given."""
    rig.fault = failing(lambda: refusal(code, reason))
    crew = await rig.with_pods(jobset(jobs=[replicated_job(replicas=3)]))
    for number in range(120):
        await rig.annotate({"tick": str(number)}, 1.0)
    assert len(await crew.jobs()) == 3
    (event,) = await rig.events("AgentBindingFailed")
    assert event["type"] == "Warning"
    role = "kubectl --namespace default create role inplace-agent:train:default --verb=get,list,watch"
    assert f"{role} --resource=jobsets.jobset.x-k8s.io --resource-name=train && " in event["note"]
    assert "create rolebinding inplace-agent:train:default:announce --clusterrole=inplace-agent" in event["note"]
    assert event["note"].endswith(f"{code} {reason}: no")
    assert sum(creates(request, "roles") for request in rig.requests) == ASKED_IN_TWO_MINUTES
    rig.fault = lambda _: None
    await rig.settle(61.0)
    assert len(await names(rig)) == 2


@pytest.mark.attack
async def test_rights_that_are_there_wait_for_no_turn(rig: Rig) -> None:
    """A restart beside another namespace's flood takes its two status writes: no pass waits to give rights again."""
    write_s = 0.5
    crew = await rig.started(jobset())
    rig.latency_s = lambda request: 0.0 if request.method == "GET" or "/leases" in request.path else write_s
    await rig.admin.create(NAMESPACES, None, {"metadata": {"name": "flood"}})
    await rig.admin.create(JOBSETS, "flood", jobset(namespace="flood", jobs=[replicated_job(replicas=1000)]))
    await rig.settle(2.2)
    first, *others = crew.pods.values()
    for epoch in (2, 3, 4):
        await crew.announce(first, epoch)
        while (await crew.epochs())[1] < epoch - 1:
            await rig.settle(0.01)
        began_s = rig.clock.monotonic_s()
        await crew.announce_all(epoch, others)
        while (await crew.epochs())[0] < epoch:
            await rig.settle(0.01)
        assert rig.clock.monotonic_s() - began_s < 2 * write_s
    assert len((await rig.admin.list(JOBS, "flood"))["items"]) < 1000, "the flood ended too soon to prove it"
