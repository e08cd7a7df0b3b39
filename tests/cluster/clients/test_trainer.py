"""Kubeflow Trainer makes JobSets of TrainJobs; the TrainJob says what became of each."""

from __future__ import annotations

from copy import deepcopy
from typing import Final

import pytest
import pytest_asyncio

from inplace.cli.inject.inject import inject
from inplace.common.injection.pod import InjectOptions
from testbed.clients.played_nodes import PlayedPod
from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Object, Queue, condition, is_true, priority_class
from tests.cluster.clients.trainjobs import ONE_CPU, TrainJobs
from tests.cluster.clients.world import RESERVED

pytestmark = pytest.mark.asyncio(loop_scope="session")

IN_PLACE: Final = "in-place"
SHIPPED: Final = (
    "deepspeed-distributed",
    "jax-distributed",
    "mlx-distributed",
    "torch-distributed",
    "torchtune-llama3.2-1b",
    "torchtune-llama3.2-3b",
    "torchtune-qwen2.5-1.5b",
    "xgboost-distributed",
)


@pytest_asyncio.fixture(loop_scope="session")
async def in_place(trainjobs: TrainJobs, runtimes: dict[str, Object]) -> str:
    """Give the name of Trainer's torch runtime with the agent in it, and its namespace the agents' rights."""
    world, runtime = trainjobs.queue.world, deepcopy(runtimes["torch-distributed"])
    runtime["metadata"]["name"] = IN_PLACE
    options = InjectOptions(barrier="probe", namespace=trainjobs.queue.namespace)
    for each in _injected(runtime, options):
        await world.applier.apply_one(each)
    return IN_PLACE


@pytest.mark.parametrize("name", SHIPPED)
async def test_a_shipped_runtime(trainjobs: TrainJobs, name: str) -> None:
    """A TrainJob of each runtime that Trainer ships runs to Complete."""
    await trainjobs.submit(name)
    done: set[str] = set()

    async def is_complete() -> bool:
        for pod in trainjobs.queue.played():
            if pod.path not in done and is_true(pod.stored, "Ready") and _ends(pod, name):
                await trainjobs.queue.world.nodes.succeed(pod)
                done.add(pod.path)
        return is_true(await trainjobs.queue.world.api.get(trainjobs.path()), "Complete")

    await until(is_complete, f"a TrainJob of {name} Complete")
    assert is_true(await trainjobs.queue.jobset(), "Completed")


async def test_every_shipped_runtime_is_tried(runtimes: dict[str, Object]) -> None:
    """The list above is what Trainer ships."""
    assert sorted(runtimes) == sorted(SHIPPED)


async def test_failed(trainjobs: TrainJobs) -> None:
    """A TrainJob whose Pods fail is Failed."""
    await trainjobs.submit("torch-distributed")

    async def is_failed() -> bool:
        for pod in trainjobs.queue.played():
            if is_true(pod.stored, "Ready"):
                await trainjobs.queue.world.nodes.fail(pod)
        return is_true(await trainjobs.queue.world.api.get(trainjobs.path()), "Failed")

    # Trainer sets no backoffLimit, so that the Job would try seven times, and wait longer each time.
    spec = {"activeDeadlineSeconds": 1}
    await trainjobs.queue.world.api.patch(
        f"/apis/batch/v1/namespaces/{trainjobs.queue.namespace}/jobs/{await _job(trainjobs)}", {"spec": spec}
    )
    await until(is_failed, "a TrainJob Failed")


async def test_suspended_and_resumed(trainjobs: TrainJobs) -> None:
    """A TrainJob that is suspended loses its Pods; resumed it runs to Complete."""
    await trainjobs.submit("torch-distributed", trainer={"numNodes": 2})
    await trainjobs.queue.pods_are_ready(2)
    await trainjobs.queue.world.api.patch(trainjobs.path(), {"spec": {"suspend": True}})
    await trainjobs.becomes("Suspended")
    await until(lambda: _has_no_pods(trainjobs.queue), "no Pods")
    await trainjobs.queue.world.api.patch(trainjobs.path(), {"spec": {"suspend": False}})
    await trainjobs.queue.pods_are_ready(2)
    for pod in trainjobs.queue.played():
        await trainjobs.queue.world.nodes.succeed(pod)
    await trainjobs.becomes("Complete")


async def test_in_place(trainjobs: TrainJobs, in_place: str) -> None:
    """A TrainJob of an injected runtime restarts in place, although it has a command of its own, and completes."""
    await trainjobs.submit(in_place, trainer={"numNodes": 2, "command": ["torchrun", "train.py"], **ONE_CPU})
    pods = await trainjobs.queue.lifted(1)
    before = {pod.path for pod in pods}
    pods[0].restart_containers()
    again = await trainjobs.queue.lifted(2)
    assert {pod.path for pod in again} == before
    (container,) = again[0].stored["spec"]["containers"]
    assert container["command"] == ["torchrun", "train.py"]
    for pod in again:
        await trainjobs.queue.world.nodes.succeed(pod)
    await trainjobs.becomes("Complete")


async def test_a_trainjob_gets_the_agent_around_its_own_command(
    trainjobs: TrainJobs, runtimes: dict[str, Object]
) -> None:
    """The runtime says one line, restartStrategy; its TrainJobs' commands are wrapped where the Job is made."""
    world, runtime = trainjobs.queue.world, deepcopy(runtimes["torch-distributed"])
    runtime["metadata"]["name"] = "one-line"
    runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 10, "restartStrategy": "InPlaceRestart"}
    await world.applier.apply_one(runtime)
    trainer = {"numNodes": 2, "command": ["torchrun", "train.py"], **ONE_CPU}
    await trainjobs.submit("one-line", suspend=True, trainer=trainer)
    name = await _job(trainjobs)
    pod = (await trainjobs.queue.jobs())[name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["/inplace/bin/guard", "--", "torchrun", "train.py"]
    assert [each["name"] for each in pod["initContainers"]] == ["inplace-agent"]
    assert "inplace" not in str((await trainjobs.queue.jobset())["spec"]["replicatedJobs"])
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{trainjobs.queue.namespace}/rolebindings"
    assert (await world.api.get(bindings))["items"] == [], "expected no right before a Pod was admitted"


async def test_in_place_through_kueue(
    opened: OpenQueue, runtimes: dict[str, Object], in_place: str, trainjobs: TrainJobs
) -> None:
    """A queued TrainJob restarts in place, is preempted, comes back, and finishes; its Workload is the TrainJob's."""
    queue = await opened({RESERVED: 3}, preemption={"withinClusterQueue": "LowerPriority"})
    world, jobs = queue.world, TrainJobs(queue)
    await world.applier.apply_one(priority_class("high", 100))
    options = InjectOptions(barrier="probe", namespace=queue.namespace)
    for each in _injected(deepcopy(runtimes["torch-distributed"]), options)[:-1]:
        await world.applier.apply_one(each)
    await jobs.submit(in_place, queued=True, trainer={"numNodes": 2, **ONE_CPU})
    await queue.admitted()
    pods = await queue.lifted(1)
    pods[0].restart_containers()
    await queue.lifted(2)
    await _preempt(queue)
    await queue.workload_is("Admitted")
    await queue.pods_are_ready(2)
    for pod in queue.played():
        await world.nodes.succeed(pod)
    await jobs.becomes("Complete")
    assert condition(await queue.workload_is("Finished"), "Finished")["reason"] == "Succeeded"
    assert await queue.workloads_so_far() == 2


async def _preempt(queue: Queue) -> None:
    """Let a more important JobSet take the quota, and give it back."""
    await queue.submit(jobset(name="high"), priority="high")
    await queue.workload_is("Evicted")
    await queue.workload_is("Admitted", "high")
    await queue.delete("high")


async def _job(trainjobs: TrainJobs) -> str:
    async def look() -> str:
        return next(iter(await trainjobs.queue.jobs()), "")

    name: str = await until(look, "a Job")
    return name


async def _has_no_pods(queue: Queue) -> bool:
    return not await queue.pods()


def _injected(runtime: Object, options: InjectOptions) -> list[Object]:
    """Return what an injected runtime needs, and at the end the runtime."""
    (changed,), others = inject([runtime], options)
    return [*others, changed]


def _ends(pod: PlayedPod, runtime: str) -> bool:
    """Return whether a Pod's program ends by itself: beside a launcher, the nodes' sshd does not."""
    role = pod.stored["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
    return role != "node" or runtime not in ("deepspeed-distributed", "mlx-distributed")
