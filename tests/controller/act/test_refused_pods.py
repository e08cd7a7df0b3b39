"""Pods that the API server refuses are told on the JobSet, from the Job controller's Event, and rarely looked for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.act.refused_pods import ASK_AGAIN_S
from inplace.controller.api.object_events import CORE_EVENTS
from tests.common.kube.answers import refusal
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.rig import Rig, running_rig

pytestmark = pytest.mark.virtual_time

ADDS = JobSettings(agent=InjectOptions(agent_image="inplace-agent:1"))
QUOTA = (
    'Error creating: pods "train-workers-0-2-x7k2p" is forbidden: exceeded quota: team, requested: cpu=1010m, '
    "used: cpu=2020m, limited: cpu=3"
)


def plain(annotations: Mapping[str, str] | None = None, name: str = "train") -> KubeObject:
    """Return an in-place JobSet of three Pods of 1 CPU."""
    manifest = jobset(name=name, jobs=[replicated_job(pods=3)], annotations=dict(annotations or {}))
    pod = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"
    manifest = changed(manifest, f"{pod}.command", ["train"])
    return changed(manifest, f"{pod}.resources", {"requests": {"cpu": "1"}})


async def refuse(rig: Rig, crew: Crew, message: str, minute: int = 0) -> None:
    """Write the Event of the Job controller."""
    ((name, job),) = (await crew.jobs()).items()
    about = {"kind": "Job", "namespace": "default", "name": name, "uid": job["metadata"]["uid"]}
    event = {
        "metadata": {"name": f"{name}.{minute:x}", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": message,
        "type": "Warning",
        "lastTimestamp": f"2026-01-01T00:{minute:02}:00Z",
    }
    await rig.admin.create(CORE_EVENTS, "default", {"apiVersion": "v1", "kind": "Event"} | event)


def looks(rig: Rig) -> int:
    """Return how often the controllers read Events."""
    return sum(request.path.startswith("/api/v1/namespaces/default/events?") for request in rig.requests)


async def test_a_quota_that_the_agent_exceeds_is_told_with_figures() -> None:
    """The newest Event of the Job, the agent's share of it, and whether that decides."""
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.submit(plain())
        for index in (0, 1):
            await crew.announce(await crew.replace("train-workers-0", index), 1)
        await refuse(rig, crew, "Error creating: Internal error occurred: older words", minute=1)
        await refuse(rig, crew, QUOTA, minute=2)
        await rig.settle(17.0)
        (event,) = await rig.events("PodsRefused")
    assert event["type"] == "Warning"
    assert event["regarding"]["name"] == "train"
    assert event["note"].startswith(
        "job train-workers-0: the API server refuses its pods: exceeded quota team: cpu: a Pod asks for 1010m, of "
        "which 10m for the agent (30m in all 3 Pods of workers), and 980m of 3 is left; "
    )
    assert "without the agent it would not fit either" in event["note"]


async def test_a_group_that_is_well_costs_no_request() -> None:
    """Nor one that waits for Pods which exist, or has not waited for long."""
    async with running_rig(job_settings=ADDS) as rig:
        await rig.submit(plain())
        await rig.settle(10.0)
        assert looks(rig) == 0
        await rig.with_pods(plain(name="other"))
        await rig.settle(60.0)
        assert looks(rig) == 1  # for the first, which has no Pod


async def test_it_is_looked_for_rarely() -> None:
    """A hundred JobSets that wait ask one at a time, a second apart, and each again after minutes."""
    async with running_rig(job_settings=ADDS) as rig:
        for number in range(20):
            await rig.submit(plain(name=f"train-{number}"))
        await rig.settle(16.0)
        assert looks(rig) <= 38
        await rig.settle(ASK_AGAIN_S - 60.0)
        assert looks(rig) == 20
        await rig.settle(120.0)
        assert 20 < looks(rig) <= 40


@pytest.mark.parametrize("why", ["off", "no image", "kept out"])
async def test_without_an_agent_of_the_controllers_nothing_is_asked(why: str) -> None:
    """The refusal is then the user's manifest's, as it always was."""
    rig = Rig()
    manifest = plain({wire.AGENT: wire.AGENT_OFF} if why == "off" else {})
    if why == "kept out":
        both = [{"name": name, "image": "i", "command": [name]} for name in ("a", "b")]
        manifest = changed(manifest, "spec.replicatedJobs.0.template.spec.template.spec.containers", both)
    settings = JobSettings() if why == "no image" else ADDS
    async with rig.running(rig.controller(job_settings=settings)):
        await refuse(rig, await rig.submit(manifest), QUOTA)
        await rig.settle(40.0)
        assert await rig.events("PodsRefused") == []
    assert looks(rig) == 0


async def test_events_that_may_not_be_read_stop_nothing() -> None:
    """An older ClusterRole lacks the right: the group goes on, and is asked about again after minutes."""
    rig = Rig()

    def deny(request: Request) -> Response | None:
        return refusal(403, "Forbidden") if "/events?" in request.path else None

    rig.fault = deny
    async with rig.running(rig.controller(job_settings=ADDS)):
        crew = await rig.submit(plain())
        await rig.settle(60.0)
        assert looks(rig) == 1
        await crew.make_pods()
        await rig.meet(crew, 1)
        assert await crew.epochs() == (1, 0)
