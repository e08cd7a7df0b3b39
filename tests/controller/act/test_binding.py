"""The binding of agents is there BEFORE their Jobs, goes with its JobSet, and holds up nobody who may not have it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.kube.resources import JOBSETS, ROLE_BINDINGS
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.injection.pod import InjectOptions
from tests.common.kube.answers import refusal
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig, running_rig

pytestmark = pytest.mark.virtual_time

ADDING = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))
BATCHES = 3
ASKED_IN_TWO_MINUTES = 7  # after 0, 1, 3, 7, 15, 31 and 63 s
MANY = 500 * (BATCHES - 1) + 1  # Jobs of three passes


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller that adds agents."""
    return running_rig(job_settings=ADDING)


def creates(request: Request, plural: str) -> bool:
    """Say whether a request creates an object of a kind."""
    return request.method == "POST" and request.path.partition("?")[0].endswith(f"/{plural}")


def is_binding(request: Request) -> bool:
    """Say whether a request creates a binding."""
    return creates(request, "rolebindings")


def answering(answer: Callable[[int], Response | None]) -> Callable[[Request], Response | None]:
    """Return a fault for the n-th creation of a binding."""
    asked = 0

    def fault(request: Request) -> Response | None:
        nonlocal asked
        if not is_binding(request):
            return None
        asked += 1
        return answer(asked)

    return fault


async def names(rig: Rig) -> list[str]:
    """Return the names of the bindings."""
    return [found["metadata"]["name"] for found in (await rig.admin.list(ROLE_BINDINGS, "default"))["items"]]


async def test_it_is_there_before_the_jobs(rig: Rig) -> None:
    """The binding is created, then the Jobs; a controller that adds no agents creates none."""
    rig.latency_s = lambda _: 0.05  # BEFORE the server acts: what is not awaited would be overtaken
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=3)]))
    posts = [request for request in rig.requests if request.method == "POST"]
    kinds = [request.path.partition("?")[0].rpartition("/")[2] for request in posts]
    assert kinds.index("rolebindings") < kinds.index("jobs")
    assert kinds.count("rolebindings") == 1
    assert len(await crew.jobs()) == 3
    (name,) = await names(rig)
    uid = (await crew.jobset())["metadata"]["uid"]
    assert name == f"inplace-agent-train-{uid[:8]}"


async def test_without_agents_no_binding() -> None:
    """A controller that adds no agents asks for no binding."""
    async with running_rig() as rig:
        await rig.submit(jobset())
        assert not any(is_binding(request) for request in rig.requests)


async def test_it_goes_with_its_jobset_and_a_new_one_has_its_own(rig: Rig) -> None:
    """The garbage collector removes the binding; a JobSet made anew at once gets another, which stays."""
    await rig.submit(jobset())
    (first,) = await names(rig)
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.submit(jobset())
    await rig.settle(30.0)
    (second,) = await names(rig)
    assert first != second
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(30.0)
    assert await names(rig) == []


async def test_one_request_for_each_batch_of_jobs(rig: Rig) -> None:
    """A thousand Jobs take three passes and three requests: the second and the third find the binding there."""
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=MANY, pods=1)], strategy="InPlaceRestart"))
    await rig.settle(30.0)
    assert len(await crew.jobs()) == MANY
    assert sum(map(is_binding, rig.requests)) == BATCHES
    assert len(await names(rig)) == 1


def unreachable(_: int) -> Response | None:
    """Break the connection after the request was sent."""
    raise TransportError("connection reset", sent=True)


@pytest.mark.parametrize(
    "how", [lambda _: refusal(500, "InternalError"), lambda _: refusal(429, "TooManyRequests"), unreachable]
)
async def test_no_job_before_it(rig: Rig, how: Callable[[int], Response | None]) -> None:
    """While the server cannot answer, no Job is created: nothing would ask for the binding later."""
    rig.fault = answering(how)
    crew = await rig.submit(jobset())
    assert await crew.jobs() == {}
    assert len(await rig.events("AgentBindingFailed")) == 1
    rig.fault = lambda _: None
    await rig.settle(60.0)
    assert (len(await crew.jobs()), len(await names(rig))) == (1, 1)


@pytest.mark.parametrize(
    ("code", "reason"), [(403, "Forbidden"), (404, "NotFound"), (422, "Invalid"), (400, "BadRequest")]
)
async def test_where_only_a_person_can_the_jobs_come_anyway(rig: Rig, code: int, reason: str) -> None:
    """The Jobs are created, and one Warning has the command and the server's words."""
    rig.fault = answering(lambda _: refusal(code, reason))
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=3)]))
    await rig.settle(120.0)
    assert len(await crew.jobs()) == 3
    (event,) = await rig.events("AgentBindingFailed")
    uid = (await crew.jobset())["metadata"]["uid"]
    command = f"create rolebinding inplace-agent-train-{uid[:8]} --clusterrole=inplace-agent"
    assert event["type"] == "Warning"
    assert f"kubectl --namespace default {command} --serviceaccount=default:default" in event["note"]
    assert event["note"].endswith(f"{code} {reason}: no")
    assert sum(map(is_binding, rig.requests)) == 1


async def test_jobs_that_are_refused_ask_for_no_binding_in_between(rig: Rig) -> None:
    """A quota that stops the Jobs stops the requests for their binding too: both come after 1, 2, 4, ... 60 s."""
    rig.fault = lambda request: refusal(403, "Forbidden") if creates(request, "jobs") else None
    await rig.submit(jobset(jobs=[replicated_job(replicas=100, pods=1)]))
    for number in range(120):
        await rig.annotate({"tick": str(number)}, 1.0)
    assert sum(creates(request, "jobs") for request in rig.requests) == ASKED_IN_TWO_MINUTES
    assert sum(map(is_binding, rig.requests)) == ASKED_IN_TWO_MINUTES
