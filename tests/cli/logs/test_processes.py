"""`inplace logs` as a user runs it, of real workers: in each mode and depth, after one of them died."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.command import REPOSITORY, command, run
from tests.cli.injecting import example_of

TIMEOUT_S = 60.0
SAID_AGAIN = 5  # lines of the second epoch, before the command runs


async def logs(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command beside the cluster."""
    return await asyncio.to_thread(run, "logs", "train", "--kubeconfig", str(cluster.kubeconfig("admin")), *options)


def texts(cluster: Cluster) -> str:
    """Return what all workers have printed."""
    files = (cluster.folder / "pods").glob("*/logs/worker/*.log")
    return "".join(path.read_text() for path in files)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("example", "depth"),
    [("train.yaml", "process"), ("train.yaml", "containers"), ("train-supervisor.yaml", "process")],
)
async def test_the_last_words_of_the_worker_that_died(example: str, depth: str) -> None:
    """Its epoch ends with them; each epoch can be read alone; what was followed is what was printed."""
    group = example_of(2, example)
    group[-1]["metadata"]["annotations"] = {wire.RESTART: depth}
    async with Cluster(nodes=1) as cluster:
        timeline = await cluster.trained(group, timeout_s=TIMEOUT_S)
        words = command("logs", "train", "-f", "--since", "1h", "--kubeconfig", str(cluster.kubeconfig("admin")))
        following = await asyncio.create_subprocess_exec(*words, cwd=REPOSITORY, stdout=subprocess.PIPE)
        try:
            await asyncio.sleep(5)  # it has begun
            victim = sorted(pod["metadata"]["name"] for pod in cluster.pods())[1]
            cluster.kill_worker("default", victim, supervised=True)
            await cluster.restarted(timeline, 1, timeout_s=TIMEOUT_S)
            async with cluster.clock.timeout(TIMEOUT_S):
                while texts(cluster).count(" epoch=2 rank=") < SAID_AGAIN:
                    await cluster.clock.sleep(0.1)
            first, second = await logs(cluster), await logs(cluster, "--epoch", "2", "--grep", "^step=")
            both = await logs(cluster, "--grep", "^step=1 ", "--all")
            await asyncio.sleep(3)
        finally:
            following.terminate()
            followed = (await following.communicate())[0].decode()
    head, *lines = first.stdout.splitlines()
    assert head.startswith("first failure: ")
    assert victim in head
    assert (first.returncode, first.stderr) == (0, "")
    assert [line for line in lines if f" rank 1 {victim}  " in line]
    assert " epoch=1 rank=1" in first.stdout
    assert " epoch=2 " not in first.stdout
    assert second.stdout.count(" epoch=2 rank=") >= 1
    assert " epoch=1 rank=" not in second.stdout
    assert both.stdout.count("step=1 ") == 2, "each worker's first step, wherever its log is"
    assert followed.count("  step=1 loss=") == 2
    assert followed.count(" goes on from step ") == 4
