"""Real agents and kubelet's loop without a pause: an image without the guard's interpreter is bounded and named."""

from __future__ import annotations

import pytest

from inplace.cli.group.pod_facts import POD_CODEC
from inplace.cli.group.state import group_state
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from tests.simulator.cluster.planned_stops import EXAMPLES

RESTARTS_MAX = 20


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_image_without_the_guards_interpreter_is_bounded() -> None:
    """The JobSet fails with the container and its code, soon after one start more than maxRestarts allows."""
    found = with_pods(read_manifests(EXAMPLES / "train.yaml"), 2)
    jobset = found[-1]
    jobset["spec"]["failurePolicy"]["maxRestarts"] = RESTARTS_MAX
    worker = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    worker["command"][0] = "python3-that-no-image-has"
    name, counts = jobset["metadata"]["name"], [0]
    async with Cluster(nodes=1) as cluster:

        def has_ended() -> bool:
            for pod in cluster.pods():
                statuses = (pod.get("status") or {}).get("containerStatuses") or ()
                counts.extend(one["restartCount"] for one in statuses)
            return bool((cluster.jobset(name).get("status") or {}).get("terminalState"))

        await cluster.apply(found)
        await cluster.until(has_ended, timeout_s=60)
        raw = cluster.jobset(name)
        pods = [POD_CODEC.convert(pod) for pod in cluster.pods()]
    state = group_state(raw, pods)
    message = (state.conditions or {})["Failed"]["message"]
    assert "ended 21 times before they joined" in message, message
    assert f"container {worker['name']} exited with 128 (StartError)" in message, message
    assert RESTARTS_MAX <= max(counts) < 5 * RESTARTS_MAX  # what a pass and the deletion take
