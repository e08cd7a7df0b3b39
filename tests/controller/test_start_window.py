"""Where the API server queues what agents send (deploy/apf), the controller tells them not to wait."""

from __future__ import annotations

import pytest

from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from tests.controller.manifests import jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time
IDENTITY = {"NAMESPACE": "ns", "POD_NAME": "p", "JOBSET_NAME": "train", "GROUP_SIZE": "5000", "GROUP_OFFSET": "4000"}


@pytest.mark.parametrize(("window_s", "own", "carried"), [(None, None, None), (0, None, "0"), (0, "2", "2")])
async def test_pods_of_new_jobs_carry_the_window(window_s: int | None, own: str | None, carried: str | None) -> None:
    """The JobSet's own one wins; without --start-window agents keep theirs."""
    rig, manifest = Rig(), jobset()
    if own is not None:
        manifest["metadata"].setdefault("annotations", {})[wire.RESTART] = f"window={own}"
    async with rig.running(rig.controller(job_settings=JobSettings(window_s))):
        crew = await rig.submit(manifest)
        await rig.settle()
        jobs = (await crew.jobs()).values()
    seen = [job["spec"]["template"]["metadata"]["annotations"].get(wire.START_WINDOW) for job in jobs]
    assert set(seen) == {carried}


async def test_a_resume_keeps_the_window() -> None:
    """What a resume changes in a pod template is compared with the Job as it was created, the window included."""
    rig, manifest = Rig(), jobset(suspend=True)
    async with rig.running(rig.controller(job_settings=JobSettings(0))):
        crew = await rig.submit(manifest)
        await rig.admin.patch(JOBSETS, "default", "train", {"spec": {"suspend": False}})
        await rig.settle()
        (job,) = (await crew.jobs()).values()
    assert job["spec"]["suspend"] is False
    assert job["spec"]["template"]["metadata"]["annotations"][wire.START_WINDOW] == "0"


@pytest.mark.parametrize(("text", "waits"), [("", True), ("0", False)])
async def test_an_agent_of_5000_starts_at_once_where_it_says_0(text: str, waits: bool) -> None:
    """The variable is the annotation's value, "" where there is none."""
    config = AgentConfig.from_env(IDENTITY | {"START_WINDOW_S": text, "JOB_COMPLETION_INDEX": "0"})
    assert (config.start_slot_s > 0) == waits
