"""A group restarts in place while Kueue holds its admission: Kueue sees Pods that are not ready, and nothing else."""

from __future__ import annotations

import pytest

from inplace.common.wire import names as wire
from testbed.api_client import UnexpectedStatus
from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.queue import Object, Queue, condition, is_true
from tests.cluster.clients.world import RESERVED
from tests.conformance.api import NEWEST_ONLY

pytestmark = pytest.mark.asyncio(loop_scope="session")


def uids(queue: Queue) -> set[str]:
    """Return the UIDs of the Pods that run."""
    return {pod.stored["metadata"]["uid"] for pod in queue.played()}


async def never_evicted(queue: Queue, workload: Object) -> None:
    """Check that a group's Workload is the one it was, admitted, and was not evicted in between."""
    now = await queue.workload()
    assert now["metadata"]["uid"] == workload["metadata"]["uid"]
    assert is_true(now, "Admitted")
    assert condition(now, "Evicted") == {}
    assert await queue.workloads_so_far() == 1


async def test_a_group_restart(opened: OpenQueue) -> None:
    """When a worker dies, the group restarts in the same Pods; the Workload stays admitted as it was."""
    queue = await opened({RESERVED: 3})
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    workload, before = await queue.workload(), uids(queue)
    pods[0].restart_containers()
    await queue.lifted(2)
    assert uids(queue) == before
    await never_evicted(queue, workload)


async def test_one_scope_of_two(queue: Queue) -> None:
    """A replicatedJob that restarts alone restarts alone under Kueue, too."""
    manifest = jobset(replicated_job("first", pods=1), replicated_job("second", pods=1))
    manifest["metadata"]["annotations"] = {wire.RESTART_SCOPE: "ReplicatedJob"}
    await queue.in_place(manifest)
    first, second = await queue.lifted(1)
    workload, before = await queue.workload(), uids(queue)
    second.restart_containers()
    await until(lambda: second.lifts == [1, 2], "the second one's barrier lifted at epoch 2")
    assert (first.lifts, first.exits, uids(queue)) == ([1], [], before)
    await never_evicted(queue, workload)


async def test_a_deleted_pod(queue: Queue) -> None:
    """A Pod that is deleted is replaced inside the admission, and the group restarts in place."""
    await queue.in_place(jobset())
    kept, gone = await queue.lifted(1)
    workload = await queue.workload()
    await queue.world.api.delete(gone.path)
    pods = await queue.lifted(2)
    assert [pod for pod in pods if pod is kept] == [kept]
    assert gone not in pods
    await never_evicted(queue, workload)


async def test_a_failed_pod_holds_its_quota(queue: Queue) -> None:
    """A Pod that failed is replaced inside the admission: Kueue gives its quota to nobody meanwhile."""
    await queue.in_place(jobset())
    pods = await queue.lifted(1)

    async def is_told() -> bool:
        return (await queue.usage()).get("any", "0") != "0"

    await until(is_told, "a ClusterQueue that says what it reserved")  # Kueue writes that later
    workload, reserved = await queue.workload(), await queue.usage()
    await queue.world.nodes.fail(pods[0])

    async def is_counted() -> bool:
        return bool((await queue.jobs())["train-workers-0"]["status"].get("failed"))

    await until(is_counted, "a Job with a failed Pod")
    assert await queue.usage() == reserved
    others = [[2], [1, 2]]  # its replacement, and the Pod that stayed
    await until(lambda: sorted(pod.lifts for pod in queue.played() if pod is not pods[0]) == sorted(others), "epoch 2")
    assert (await queue.usage(), (await queue.workload())["status"].get("reclaimablePods")) == (reserved, None)
    await never_evicted(queue, workload)


@NEWEST_ONLY
async def test_pods_are_watched_without_a_setting(queue: Queue) -> None:
    """Kueue 0.19 has waitForPodsReady without a setting: it sees a restart in place, and leaves the group alone."""
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    workload = await queue.workload_is("PodsReady")
    pods[0].restart_containers()
    await queue.lifted(2)
    await queue.workload_is("PodsReady")
    await never_evicted(queue, workload)


async def test_finish_in_place(queue: Queue) -> None:
    """A group that restarted in place completes, and its Workload is Finished."""
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    pods[0].restart_containers()
    for pod in await queue.lifted(2):
        await queue.world.nodes.succeed(pod)
    await queue.jobset_is("Completed")
    assert condition(await queue.workload_is("Finished"), "Finished")["reason"] == "Succeeded"


async def test_too_many_restarts(queue: Queue) -> None:
    """A group that used up its restarts fails, and its Workload is Finished with Failed."""
    await queue.in_place(jobset(failurePolicy={"maxRestarts": 0, "restartStrategy": wire.IN_PLACE_RESTART}))
    pods = await queue.lifted(1)
    pods[0].restart_containers()
    await queue.jobset_is("Failed")
    assert condition(await queue.workload_is("Finished"), "Finished")["reason"] == "Failed"


async def test_suspended_by_hand(queue: Queue) -> None:
    """Kueue resumes an admitted group that a person suspends, sometimes before a Pod goes; no restart is counted."""
    await queue.in_place(jobset(failurePolicy={"maxRestarts": 0, "restartStrategy": wire.IN_PLACE_RESTART}))
    await queue.lifted(1)
    suspended = await queue.edit({"spec": {"suspend": True}})

    async def runs_again() -> bool:
        now, found = await queue.jobset(), queue.played()
        is_resumed = not now["spec"]["suspend"] and now["metadata"]["generation"] > suspended["metadata"]["generation"]
        return is_resumed and len(found) == 2 and all(is_true(pod.stored, "Ready") for pod in found)

    await until(runs_again, "a JobSet that was resumed, with two Pods that are Ready")
    assert not is_true(await queue.jobset(), "Failed")
    assert is_true(await queue.workload(), "Admitted")


async def test_a_resize(queue: Queue) -> None:
    """Kueue evicts an admitted JobSet that is resized, as with upstream's controller, and admits it in its new size."""
    await queue.in_place(jobset())
    await queue.lifted(1)
    first = await queue.workload()
    spec = (await queue.jobset())["spec"]["replicatedJobs"]
    spec[0]["template"]["spec"] |= {"parallelism": 3, "completions": 3}
    try:
        await queue.edit({"spec": {"replicatedJobs": spec}})
    except UnexpectedStatus as error:
        pytest.fail(f"the resize was refused: {error}")

    async def is_admitted_anew() -> bool:
        found = await queue.workload()
        return found.get("metadata", {}).get("uid") != first["metadata"]["uid"] and is_true(found, "Admitted")

    await until(is_admitted_anew, "another Workload, admitted")
    await queue.pods_are_ready(3)
    assert (await queue.workload())["spec"]["podSets"][0]["count"] == 3
