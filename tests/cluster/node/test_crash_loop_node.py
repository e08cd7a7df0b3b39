"""A crash loop on a real kubelet, which removes containers with their logs: each run's traceback stays readable."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.waiting import until
from tests.cli.command import run

pytestmark = pytest.mark.asyncio(loop_scope="session")

# It does not import inplace. One rank fails at once, as often as it is told; the other one trains.
FAILS = """
import os, time
epoch = int(os.environ["INPLACE_EPOCH"])
print("begins", epoch, flush=True)
if os.environ["JOB_COMPLETION_INDEX"] == "0" and epoch <= {failures}:
    raise ValueError(f"shard {{epoch}} is truncated")
time.sleep(600)
"""


async def logs(group: Group, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace)
    return await asyncio.to_thread(run, "logs", "train", *where, *options)


@pytest.mark.parametrize(
    ("mode", "failures"),
    [
        ("process", 10),
        pytest.param("containers", 10, marks=pytest.mark.long),
        pytest.param("supervisor", 4, marks=pytest.mark.long),  # kubelet lets its container wait 10 s, 20 s ...
    ],
)
async def test_each_runs_traceback_is_readable_after_the_last_failure(
    cluster: Cluster, mode: str, failures: int
) -> None:
    """Once each, by pattern and by epoch; the last one is the first failure's; the agent's own log has all of them."""

    def fail(jobset: KubeObject) -> None:
        template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        del template["metadata"]["annotations"][wire.CLEAN_AFTER]  # as by default: clean containers from the second on
        (worker,) = template["spec"]["containers"]
        before = worker["command"][: worker["command"].index("--") + 1]
        worker["command"] = [*before, "/usr/bin/python3", "-ISc", FAILS.format(failures=failures)]
        worker.pop("args", None)

    async with running_group(cluster, mode, pods=2, restarts_max=failures, change=fail) as group:
        runs = f"begins {failures + 1}\n"
        await until(
            lambda: group.printed("worker").count(runs[:-1]) >= 2,
            f"epoch {failures + 1}",
            timeout_s=SETTLED_S_MAX,
            also=group.state,
        )
        found = await logs(group, "--all", "--grep", "Traceback|Error")
        last = await logs(group)
        third = await logs(group, "--epoch", "3", "--rank", "0")
    said = re.findall(r"  (ValueError: shard \d+ is truncated)$", found.stdout, re.MULTILINE)
    assert said == [f"ValueError: shard {epoch} is truncated" for epoch in range(1, failures + 1)], found.stderr
    assert found.stdout.count("Traceback (most recent call last)") == failures
    assert (found.returncode, found.stderr) == (0, "")
    assert f", epoch {failures}, " in last.stdout.splitlines()[0]
    assert last.stdout.count(f"ValueError: shard {failures} is truncated\n") == 1
    assert "  ValueError: shard 3 is truncated\n" in third.stdout
    assert "shard 2 " not in third.stdout
    assert "shard 4 " not in third.stdout


@pytest.mark.parametrize("mode", ["process", pytest.param("supervisor", marks=pytest.mark.long)])
async def test_each_try_of_a_command_that_cannot_be_executed_counts(cluster: Cluster, mode: str) -> None:
    """After maxRestarts the JobSet has failed, no container was started more often, and the reason is told by name."""

    def spoil(jobset: KubeObject) -> None:
        template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        (worker,) = template["spec"]["containers"]
        worker["command"] = [*worker["command"][: worker["command"].index("--") + 1], "/etc/hostname"]
        worker.pop("args", None)

    async with running_group(cluster, mode, pods=2, restarts_max=3, change=spoil) as group:
        await group.until_ended("Failed")
        status = group.history.jobset()["status"]
        pods = [version.stored for version in group.history.versions if version.kind == "Pod"]
    counts = [one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses", [])]
    assert set(counts) == {0}, "clean-after is 0 here: the containers stay"
    assert wire.epochs_of_status(status)[0] == 4
    said = str(status[wire.LAST_GROUP_RESTART]["firstFailure"])
    assert "cannot execute '/etc/hostname': it is not executable (mode 0644)" in said
