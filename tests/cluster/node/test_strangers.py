"""What public bug reports tell of workers, after `inplace inject`, on a real kubelet."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from inplace.common.wire import names as wire
from testbed.node.archives import WORKER_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.node.manifests import documents_of
from testbed.waiting import until
from tests.cli.command import REPOSITORY, run

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = 2
WORKERS = Path(__file__).parents[2] / "cases" / "workers"
Shape = tuple[str, dict[str, str]]  # inject's mode, and the JobSet's annotations
CONTAINERS: Shape = ("sidecar", {wire.RESTART: wire.DEPTH_CONTAINERS})
PROCESS: Shape = ("sidecar", {wire.RESTART: wire.DEPTH_PROCESS})
SUPERVISOR: Shape = ("supervisor", {})


@asynccontextmanager
async def injected(
    cluster: Cluster, folder: Path, shape: Shape, worker: str, *, restarts_max: int = 10, backoff: str = "5"
) -> AsyncIterator[Group]:
    """Run examples/plain.yaml with a worker of tests/cases/workers, or a command of that name, after inject."""
    *_, jobset = yaml.safe_load_all((REPOSITORY / "examples" / "plain.yaml").read_text())
    mode, annotations = shape
    jobset["metadata"]["annotations"] = {wire.FAILURES: f"backoff={backoff}"} | annotations
    jobset["spec"]["failurePolicy"] = {"maxRestarts": restarts_max}
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = PODS
    (container,) = job["template"]["spec"]["containers"]
    script = WORKERS / f"{worker}.py"
    container["command"] = ["python3", "-c", script.read_text()] if script.exists() else [worker]
    container["image"] = WORKER_IMAGE
    manifest = folder / "manifest.yaml"
    manifest.write_text(yaml.safe_dump(jobset))
    made = run("inject", "-f", str(manifest), "--mode", mode, "--quiet").stdout
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=restarts_max)
    async with running(group, documents_of(made, group.namespace)):
        yield group


async def printed(group: Group, words: str, times: int = PODS) -> str:
    """Return what the workers printed, once they all printed these words."""

    def holds() -> bool:
        return len(re.findall(words, group.printed("worker"))) >= times

    await until(holds, f"{words!r} {times} times", timeout_s=SETTLED_S_MAX, also=group.state)
    return group.printed("worker")


async def becomes(group: Group, of: Callable[[Group], object], wanted: object) -> None:
    """Wait until something of a group has a value."""
    await until(lambda: of(group) == wanted, f"{wanted}", timeout_s=SETTLED_S_MAX, also=group.state)


def restart_counts(group: Group) -> list[int]:
    """Return how often kubelet started each Pod's worker anew."""
    return sorted(status["restartCount"] for pod in group.pods() for status in pod["status"]["containerStatuses"])


async def test_a_worker_that_saves_and_exits_with_0_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """`kubectl delete pod`, in both depths: the Pod has not completed, and the group is whole again."""
    async with (
        injected(cluster, tmp_path, CONTAINERS, "saves_and_exits_0") as containers,
        injected(cluster, tmp_path, PROCESS, "saves_and_exits_0") as process,
    ):
        before: dict[Group, set[str]] = {}
        for group in (containers, process):
            await printed(group, "trains")
            before[group] = group.uids()
            await group.delete(group.pods()[1])
        for group, uids in before.items():
            await becomes(group, lambda seen: seen.epoch, 2)
            assert (len(group.uids() - uids), len(group.live())) == (1, PODS)


async def test_a_spoilt_container_is_replaced_by_a_new_one(cluster: Cluster, tmp_path: Path) -> None:
    """A worker that fails a second time in a row gets it, in its Pod; the other Pods keep theirs."""
    async with (
        injected(cluster, tmp_path, SUPERVISOR, "poisoned_container") as supervisor,
        injected(cluster, tmp_path, PROCESS, "poisoned_container") as process,
    ):
        for group in (supervisor, process):
            said = await printed(group, "trains in epoch 3")
            written = [line for line in said.splitlines() if '"event": "worker_tail"' not in line]
            assert "\n".join(written).count("Failed to initialize NVML") == 1  # a supervisor's log repeats the tail
            assert len(group.uids()) == PODS
            told = group.history.jobset()["status"]["lastGroupRestart"]["firstFailure"]
            assert (told["exitCode"], "the last restart did not help" in told["message"]) == (1, True)
            await becomes(group, restart_counts, [0, 1])


async def test_a_command_that_does_not_exist_ends_the_jobset(cluster: Cluster, tmp_path: Path) -> None:
    """Below a supervisor each try is a run that ends at once: the budget bounds them, and the reason is told."""
    async with injected(cluster, tmp_path, SUPERVISOR, "no-such-program", restarts_max=1) as group:
        await group.until_ended("Failed")
        failure = group.history.jobset()["status"]["lastGroupRestart"]["firstFailure"]
        assert failure["exitCode"] == 127
        assert "cannot execute 'no-such-program': PATH" in failure["lastLine"]


async def test_shared_memory_does_not_fill_over_restarts(cluster: Cluster, tmp_path: Path) -> None:
    """Four workers in a row are killed, in both depths: each one after them starts with an empty /dev/shm."""
    async with (
        injected(cluster, tmp_path, CONTAINERS, "fills_dev_shm", backoff="0") as containers,
        injected(cluster, tmp_path, PROCESS, "fills_dev_shm", backoff="0") as process,
    ):
        for group in (containers, process):
            said = await printed(group, "trains in epoch 5 ")
            assert set(re.findall(r"beside (\d+) MB", said)) == {"0"}
            assert len(group.uids()) == PODS
