"""Bad nodes on a real API server: the gate, its patch with an affinity, the status field, and the end of a Pod."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire import unfit
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.cluster.features.test_placement import bind, gates, node
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
TERM: Final[KubeObject] = {
    "weight": 7,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
}


async def avoided(stage: Stage) -> list[str]:
    """Return the nodes that the status says are avoided."""
    return [entry["node"] for entry in (await stage.status()).get(wire.NODE_FAILURES) or ()]


async def test_a_failed_check_and_its_replacement(stage: Stage) -> None:
    """The API server takes the preference with the gate's end, beside the user's own, and keeps the status field."""
    job = changed(replicated_job(pods=1), "template.spec.template.spec.affinity", {"nodeAffinity": {PREFERRED: [TERM]}})
    await stage.start(changed(jobset(jobs=[job]), "metadata.annotations", {wire.NODES: "1"}))
    await stage.make_pods()
    pod = stage.pods[JOB, 0]
    await eventually(lambda: gates(stage, pod), [])
    name = await node(stage)
    await bind(stage, pod, name)
    ended: dict[str, Any] = {
        "exitCode": unfit.CHECK_FAILED_EXIT_CODE,
        "message": f"{unfit.WORDS}: GPU 3",
        "finishedAt": await now(stage),
    }
    container: KubeObject = {"name": "worker", "state": {"terminated": ended}, "image": "i", "imageID": ""}
    container |= {"ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [container]}
    await stage.client.patch(PODS, stage.namespace, pod, {"status": status}, subresource="status")
    await eventually(lambda: avoided(stage), [name])
    replacement = await stage.make_pod((await stage.jobs())[JOB], 0)
    await eventually(lambda: gates(stage, replacement), [])
    spec = (await stage.client.get(PODS, stage.namespace, replacement))["spec"]
    theirs, ours = spec["affinity"]["nodeAffinity"][PREFERRED]
    assert theirs == TERM
    assert ours["preference"]["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]


async def now(stage: Stage) -> str:
    """Return the time of the API server: that of the JobSet's creation."""
    created: str = (await stage.jobset())["metadata"]["creationTimestamp"]
    return created
