"""Shipped runtimes and one annotation: a TrainJob restarts in place, its own command included, also through Kueue."""

from __future__ import annotations

from signal import SIGKILL
from typing import Final

import pytest

from inplace.common.wire import names as wire
from testbed.clients.played_nodes import PlayedPod
from testbed.clients.process_node import NAME as PROCESSES
from testbed.clients.process_node import ProcessNode, process_node
from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.queue import Object, Queue, condition, is_true
from tests.cluster.clients.trainjobs import ONE_CPU, TrainJobs

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANNOTATION: Final = {"metadata": {"annotations": {wire.RESTART_IN_PLACE: "10"}}}
IN_PLACE: Final = {"manager": "example.com/user", "trainingRuntimeSpec": {"template": ANNOTATION}}
GUARD: Final = ["/inplace/bin/guard", "--"]
COMMAND: Final = ["torchrun", "train.py"]
SSHD: Final = ["/usr/sbin/sshd"]
PLAYS: Final = (
    "import os, time; env = os.environ; words = '{INPLACE_RANK} of {INPLACE_SIZE}, {PET_NNODES} nodes'.format(**env); "
    "assert env['PET_NODE_RANK'] == env['INPLACE_RANK'] == env['JOB_COMPLETION_INDEX']; "
    "assert env['PET_MASTER_ADDR'] == env['INPLACE_COORDINATOR']; "
    "print(f'epoch {env[\"INPLACE_EPOCH\"]}:', words, flush=True); time.sleep(3600)"
)
PRINTS: Final = "import os, time; print('run', os.environ['INPLACE_EPOCH'], os.getpid(), flush=True); time.sleep(3600)"


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("torch-distributed", {"node": COMMAND}),
        ("jax-distributed", {"node": COMMAND}),
        ("xgboost-distributed", {"node": COMMAND}),
        ("deepspeed-distributed", {"launcher": COMMAND, "node": SSHD}),
        ("mlx-distributed", {"launcher": COMMAND, "node": SSHD}),
    ],
)
async def test_a_shipped_runtime(
    trainjobs: TrainJobs, runtimes: dict[str, Object], name: str, commands: dict[str, list[str]]
) -> None:
    """Three nodes restart in the same Pods, each behind a guard; MPI's launcher is one of them, and decides the end."""
    queue, world = trainjobs.queue, trainjobs.queue.world
    await trainjobs.submit(name, trainer={"numNodes": 3, "command": COMMAND, **ONE_CPU}, runtimePatches=[IN_PLACE])
    # Since Trainer 2.3 MPI's launcher waits until the nodes are ready: it joins their group at the next epoch.
    first = 1 + any("dependsOn" in job for job in runtimes[name]["spec"]["template"]["spec"]["replicatedJobs"])
    pods = await queue.lifted(first, count=3)
    before = uids(queue)
    assert {role(pod.stored): worker(pod.stored)["command"] for pod in pods} == {
        job: [*GUARD, *command] for job, command in commands.items()
    }
    pods[0].restart_containers()
    again = await queue.lifted(first + 1, count=3)
    assert uids(queue) == before
    stored = await queue.jobset()
    assert "failurePolicy" not in stored["spec"]
    assert "inplace-agent" not in str(stored["spec"])
    for pod in again:
        if "launcher" not in commands or role(pod.stored) == "launcher":
            await world.nodes.succeed(pod)
    await trainjobs.becomes("Complete")


async def test_initializers_do_not_run_again(trainjobs: TrainJobs) -> None:
    """They come first, complete, and leave the group: a restart later is the nodes' alone."""
    queue, nodes = trainjobs.queue, trainjobs.queue.world.nodes
    await trainjobs.submit("torchtune-qwen2.5-1.5b", trainer={"numNodes": 2, **ONE_CPU}, runtimePatches=[IN_PLACE])
    first = await queue.lifted(1)
    assert {role(pod.stored) for pod in first} == {"dataset-initializer", "model-initializer"}
    for pod in first:
        await nodes.succeed(pod)
    pods = await trained(queue, 2)
    jobs, before = set(await job_uids(queue)), {pod.stored["metadata"]["uid"] for pod in pods}
    pods[0].restart_containers()
    assert {pod.stored["metadata"]["uid"] for pod in await trained(queue, 3)} == before
    assert set(await job_uids(queue)) == jobs


async def trained(queue: Queue, epoch: int) -> list[PlayedPod]:
    """Wait until the barriers of both nodes lifted at an epoch; return the Pods."""

    async def look() -> list[PlayedPod]:
        found = [pod for pod in queue.played() if role(pod.stored) == "node"]
        return found if len(found) == 2 and all(pod.lifts[-1:] == [epoch] for pod in found) else []

    found: list[PlayedPod] = await until(look, f"two nodes lifted at epoch {epoch}")
    return found


async def job_uids(queue: Queue) -> list[str]:
    """Return the UIDs of the Jobs."""
    return [job["metadata"]["uid"] for job in (await queue.jobs()).values()]


async def test_a_number_that_cannot_be_read_is_said(trainjobs: TrainJobs) -> None:
    """The JobSet says it, and no restart is allowed until it is corrected."""
    bad = {"metadata": {"annotations": {wire.RESTART_IN_PLACE: "ten"}}}
    patches = [IN_PLACE | {"trainingRuntimeSpec": {"template": bad}}]
    await trainjobs.submit("torch-distributed", trainer={"command": COMMAND, **ONE_CPU}, runtimePatches=patches)
    await until(trainjobs.queue.jobs, "a Job")
    stored = await trainjobs.queue.jobset_is("SpecProblem")
    assert "saw 'ten'; no restart is allowed; correct it" in condition(stored, "SpecProblem")["message"]


async def test_with_real_guards_through_kueue(opened: OpenQueue, runtimes: dict[str, Object]) -> None:
    """A worker is killed: its group starts anew below the same guards, and Kueue sees nothing of it."""
    queue = await opened({PROCESSES: 3})
    trainer = {"numNodes": 2, "command": ["python3", "-c", PRINTS], **ONE_CPU}
    async with process_node(queue.world.plane, queue.world.nodes) as node:
        await TrainJobs(queue).submit("torch-distributed", queued=True, trainer=trainer, runtimePatches=[IN_PLACE])
        workload = await queue.admitted()
        first = await runs(node, queue, 1)
        before, reserved = await facts(queue), {PROCESSES: "2"}
        await until(lambda: has_reserved(queue, reserved), f"a ClusterQueue with {reserved}")  # Kueue writes it later
        node.pods(queue.namespace)[min(first)].running["node"].signal_child(SIGKILL)
        second = await runs(node, queue, 2)
        assert first.keys() == second.keys()
        for name, lines in second.items():
            assert lines[:1] == first[name]
            assert [line.split()[1] for line in lines] == ["1", "2"]
        pids = [line.split()[2] for lines in second.values() for line in lines]
        assert len(set(pids)) == 4
        assert await facts(queue) == before
        assert await queue.usage() == reserved
        now = await queue.workload()
        assert (now["metadata"]["uid"], is_true(now, "Admitted")) == (workload["metadata"]["uid"], True)
        assert (condition(now, "Evicted"), await queue.workloads_so_far()) == ({}, 1)
        await queue.world.api.delete(TrainJobs(queue).path())
        await until(lambda: is_empty(queue), "no Pods")


async def test_one_of_its_nodes_is_a_spare(opened: OpenQueue, runtimes: dict[str, Object]) -> None:
    """The number of nodes counts the spare. It takes a deleted Pod's rank, and Trainer's variables say two nodes."""
    queue = await opened({PROCESSES: 4})
    trainer = {"numNodes": 3, "command": ["python3", "-c", PLAYS], **ONE_CPU}
    patch = with_members("max=2")
    async with process_node(queue.world.plane, queue.world.nodes) as node:
        await TrainJobs(queue).submit("torch-distributed", queued=True, trainer=trainer, runtimePatches=[patch])
        first = await plays(node, queue, 1)
        assert sorted(first) == ["0 of 2, 2 nodes", "1 of 2, 2 nodes"]
        lost = first["1 of 2, 2 nodes"]
        await queue.world.api.delete(f"/api/v1/namespaces/{queue.namespace}/pods/{lost}")
        second = await plays(node, queue, 2)
        assert second.keys() == first.keys()
        assert second["0 of 2, 2 nodes"] == first["0 of 2, 2 nodes"]
        assert second["1 of 2, 2 nodes"] != lost
        assert (await queue.jobset())["status"]["restarts"] == 0
        await queue.world.api.delete(TrainJobs(queue).path())
        await until(lambda: is_empty(queue), "no Pods")


@pytest.mark.parametrize(
    ("runtime", "members", "words"),
    [
        ("torch-distributed", "max=4", "expected max <= 3, the pods of node, saw max 4"),
        ("deepspeed-distributed", "max=2", "expected one replicatedJob that restarts in place, saw node, launcher"),
    ],
)
async def test_members_that_trainer_cannot_have_are_told(
    trainjobs: TrainJobs, runtime: str, members: str, words: str
) -> None:
    """The JobSet says it, and all nodes train."""
    trainer = {"numNodes": 3, "command": COMMAND, **ONE_CPU}
    await trainjobs.submit(runtime, trainer=trainer, runtimePatches=[with_members(members)])
    await until(trainjobs.queue.jobs, "a Job")
    stored = await trainjobs.queue.jobset_is("SpecProblem")
    assert words in condition(stored, "SpecProblem")["message"]


def with_members(members: str) -> Object:
    """Return a patch of a runtime: its TrainJobs restart in place, with members."""
    annotations = {**ANNOTATION["metadata"]["annotations"], wire.MEMBERS: members}
    return IN_PLACE | {"trainingRuntimeSpec": {"template": {"metadata": {"annotations": annotations}}}}


async def plays(node: ProcessNode, queue: Queue, epoch: int) -> dict[str, str]:
    """Wait until the workers of two Pods run in an epoch; return the Pod by what its worker says of its rank."""

    async def look() -> dict[str, str]:
        found = {}
        for name, pod in node.pods(queue.namespace).items():
            for line in await node.lines(pod, "node"):
                if line.startswith(f"epoch {epoch}: "):
                    found[line.partition(": ")[2]] = name
        return found if len(found) == 2 else {}

    found: dict[str, str] = await until(look, f"two workers in epoch {epoch}")
    return found


async def runs(node: ProcessNode, queue: Queue, count: int) -> dict[str, list[str]]:
    """Wait until the workers of two Pods have begun so often; return what each printed, by Pod."""

    async def look() -> dict[str, list[str]]:
        pods = node.pods(queue.namespace)
        printed = {name: await node.lines(pod, "node") for name, pod in pods.items()}
        found = {name: [line for line in lines if line.startswith("run ")] for name, lines in printed.items()}
        return found if len(found) == 2 and all(len(lines) == count for lines in found.values()) else {}

    found: dict[str, list[str]] = await until(look, f"two workers in their run {count}")
    return found


async def facts(queue: Queue) -> dict[str, tuple[str, dict[str, int]]]:
    """Return UID and restarts of the containers, by Pod."""
    found = {}
    for name, pod in (await queue.pods()).items():
        kinds = ("containerStatuses", "initContainerStatuses")
        statuses = [one for kind in kinds for one in pod["status"].get(kind) or ()]
        found[name] = pod["metadata"]["uid"], {one["name"]: one["restartCount"] for one in statuses}
    return found


async def has_reserved(queue: Queue, usage: dict[str, str]) -> bool:
    """Return whether the ClusterQueue says this usage."""
    return await queue.usage() == usage


async def is_empty(queue: Queue) -> bool:
    """Return whether no Pod is left."""
    return not await queue.pods()


def uids(queue: Queue) -> set[str]:
    """Return the UIDs of the Pods that are played."""
    return {pod.stored["metadata"]["uid"] for pod in queue.played()}


def role(stored: Object) -> str:
    """Return the replicatedJob of a Pod."""
    return str(stored["metadata"]["labels"][wire.REPLICATED_JOB_NAME])


def worker(stored: Object) -> Object:
    """Return the only container of a Pod that is no agent."""
    (container,) = stored["spec"]["containers"]
    return dict(container)
