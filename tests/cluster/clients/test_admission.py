"""Kueue admits, holds and ends JobSets; its Workload says what became of each."""

from __future__ import annotations

from functools import partial

import pytest

from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.pages import run_command
from tests.cluster.clients.queue import TAINT, Object, Queue, condition, is_true, local_queue
from tests.cluster.clients.world import RESERVED, SPOT

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_admitted_and_run(queue: Queue) -> None:
    """A queued JobSet is created suspended, admitted within seconds, and all its Pods run."""
    stored = await queue.submit(jobset())
    assert stored["spec"]["suspend"] is True
    await queue.admitted()
    await queue.pods_are_ready(2)
    assert await queue.workloads_so_far() == 1


async def test_flavors(opened: OpenQueue) -> None:
    """A flavor's node selector and toleration reach the Job, its Pods and so their nodes; each JobSet has its own."""
    queue = await opened({RESERVED: 2, SPOT: 2})
    for name, kind, tolerations in (("first", RESERVED, []), ("second", SPOT, [TAINT])):
        await queue.submit(jobset(name=name))
        await queue.admitted(name)
        pods = await running(queue, name)
        template = (await queue.jobs())[f"{name}-workers-0"]["spec"]["template"]["spec"]
        assert template["nodeSelector"] == {"capacity": kind}
        assert template.get("tolerations", []) == tolerations
        for pod in pods:
            node = await queue.world.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
            assert node["metadata"]["labels"]["capacity"] == kind

    async def both_are_used() -> bool:
        return bool(await queue.usage() == {RESERVED: "2", SPOT: "2"})

    await until(both_are_used, "two CPUs of each flavor in use")


async def test_exhausted_quota(opened: OpenQueue) -> None:
    """A JobSet without room waits suspended, without a Pod, and is admitted when the one before it is deleted."""
    queue = await opened({"any": 2})
    await queue.submit(jobset(name="first"))
    await queue.admitted("first")
    await queue.submit(jobset(name="second"))
    await until(lambda: _waits(queue, "second"), "a Workload without quota")
    assert (await queue.jobset("second"))["spec"]["suspend"] is True
    assert {name.rpartition("-workers")[0] for name in await queue.pods()} <= {"first"}
    await queue.delete("first")
    await queue.workload_is("Admitted", "second")
    await running(queue, "second")
    assert await queue.workloads_so_far() == 2


async def test_explain_has_kueues_words(opened: OpenQueue) -> None:
    """Of a JobSet without room `explain` says what Kueue says, and of one in a queue that does not exist as well."""
    queue = await opened({"any": 1})
    for name, where in (("large", "queue"), ("lost", "nowhere")):
        await queue.submit(jobset(name=name), queue=where)
        await until(partial(_waits, queue, name), f"why {name} waits")
        said = condition(await queue.workload(name), "QuotaReserved")["message"]
        command = f"inplace explain {name} -n {queue.namespace}"
        explained = await run_command(queue.world.plane.kubeconfig, command)
        assert " ".join(said.split()) in " ".join(explained.split())
        assert where in explained


async def test_finish(queue: Queue) -> None:
    """When all Pods succeed, the Workload is Finished with Succeeded and returns its quota."""
    await queue.submit(jobset())
    await queue.pods_are_ready(2)
    for pod in queue.played():
        await queue.world.nodes.succeed(pod)
    await queue.jobset_is("Completed")
    assert condition(await queue.workload_is("Finished"), "Finished")["reason"] == "Succeeded"
    await until(lambda: _usage_is(queue, "0"), "no CPU in use")


async def test_failure(queue: Queue) -> None:
    """When a Pod fails a JobSet without restarts, the Workload is Finished with Failed and returns its quota."""
    await queue.submit(jobset(replicated_job(backoffLimit=0)))
    await queue.pods_are_ready(2)
    await queue.world.nodes.fail(queue.played()[0])
    await queue.jobset_is("Failed")
    assert condition(await queue.workload_is("Finished"), "Finished")["reason"] == "Failed"
    await until(lambda: _usage_is(queue, "0"), "no CPU in use")


async def test_a_restart_by_recreation(queue: Queue) -> None:
    """A JobSet that restarts by recreating its Jobs keeps its admission and its flavor's selector."""
    await queue.submit(jobset(replicated_job(backoffLimit=0), failurePolicy={"maxRestarts": 1}))
    await queue.pods_are_ready(2)
    before = (await queue.jobs())["train-workers-0"]["metadata"]["uid"]
    await queue.world.nodes.fail(queue.played()[0])

    async def is_new() -> bool:
        return bool((await queue.jobs()).get("train-workers-0", {}).get("metadata", {}).get("uid", before) != before)

    await until(is_new, "another Job of that name")
    await queue.pods_are_ready(2)
    assert is_true(await queue.workload(), "Admitted")
    assert await queue.workloads_so_far() == 1


async def test_deletion(queue: Queue) -> None:
    """A JobSet that is deleted takes its Pods and its Workload along, and returns its quota."""
    await queue.submit(jobset())
    await queue.pods_are_ready(2)
    workload = await queue.workload()
    await queue.delete()
    await queue.is_gone(f"{queue.workloads_path}/{workload['metadata']['name']}")
    await until(lambda: _no_pods(queue), "no Pods")
    await until(lambda: _usage_is(queue, "0"), "no CPU in use")


async def test_a_workload_deleted_by_hand(queue: Queue) -> None:
    """When somebody deletes the Workload, Kueue suspends the JobSet and admits it again; all its Pods run again."""
    await queue.submit(jobset())
    await queue.pods_are_ready(2)
    first = await queue.workload()
    before = set(await queue.pods())
    await queue.world.api.delete(f"{queue.workloads_path}/{first['metadata']['name']}")

    async def is_another() -> bool:
        found = await queue.workload()
        return is_true(found, "Admitted") and found["metadata"]["uid"] != first["metadata"]["uid"]

    await until(is_another, "another Workload, admitted")
    await until(lambda: _all_new(queue, before), "two other Pods")
    assert await queue.workloads_so_far() == 2


async def test_a_queue_that_does_not_exist(queue: Queue) -> None:
    """A JobSet of an unknown LocalQueue waits suspended, its Workload says why, and it runs once the queue exists."""
    await queue.submit(jobset(), queue="later")

    async def says_why() -> bool:
        return "later" in condition(await queue.workload(), "QuotaReserved").get("message", "")

    await until(says_why, "a Workload that names the queue")
    assert (await queue.jobset())["spec"]["suspend"] is True
    await queue.world.applier.apply_one(local_queue(queue.namespace, queue.namespace, "later"))
    await queue.workload_is("Admitted")
    await queue.pods_are_ready(2)
    assert await queue.workloads_so_far() == 1


@pytest.mark.parametrize("status", ["Ready", "Complete"])
async def test_depends_on(queue: Queue, status: str) -> None:
    """One admission covers a replicatedJob and the one that depends on it; the quota is reserved for both at once."""
    second = replicated_job("second") | {"dependsOn": [{"name": "first", "status": status}]}
    await queue.submit(jobset(replicated_job("first", pods=1), second))
    await queue.admitted()
    await until(lambda: _usage_is(queue, "3"), "three CPUs in use")
    if status == "Complete":
        await queue.pods_are_ready(1)
        assert set(await queue.jobs()) == {"train-first-0"}
        (first,) = queue.played()
        await queue.world.nodes.succeed(first)
    await until(lambda: _of_job(queue, "train-second-0", 2), "two Pods of the second")
    assert await queue.workloads_so_far() == 1


async def running(queue: Queue, name: str) -> list[Object]:
    """Wait until two Pods of a JobSet are Ready, and return them."""

    async def look() -> list[Object]:
        pods = (await queue.pods()).items()
        found = [pod for each, pod in pods if each.startswith(f"{name}-") and is_true(pod, "Ready")]
        return found if len(found) == 2 else []

    found: list[Object] = await until(look, f"two Pods of {name} that are Ready")
    return found


async def _of_job(queue: Queue, job: str, count: int) -> bool:
    found = [pod for name, pod in (await queue.pods()).items() if name.startswith(job) and is_true(pod, "Ready")]
    return len(found) == count


async def _waits(queue: Queue, name: str) -> bool:
    return condition(await queue.workload(name), "QuotaReserved").get("status") == "False"


async def _usage_is(queue: Queue, cpus: str) -> bool:
    return bool(await queue.usage() == {"any": cpus})


async def _no_pods(queue: Queue) -> bool:
    return not await queue.pods()


async def _all_new(queue: Queue, before: set[str]) -> bool:
    found = await queue.pods()
    return len(found) == 2 and not before & set(found) and all(is_true(pod, "Ready") for pod in found.values())
