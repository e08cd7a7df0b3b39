from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inplace.common.kube.errors import BadRequest
from inplace.common.kube.resources import PODS
from inplace.common.wire import names as wire
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from inplace.simulator.cluster.timeline import GroupRestart

REPOSITORY = Path(__file__).parents[3]
TIMEOUT_S = 60.0
COUNTS = """
cd "$INPLACE_KEEP_DIR" || exit 3
read runs < runs || runs=0
echo $((runs + 1)) > runs
echo "epoch=$INPLACE_EPOCH run=$(cat runs)"
exec sleep 100000
"""
"""Count the runs in the folder that outlives them."""
LIES = """
import inplace, os, sys, time
epoch, step = os.environ["INPLACE_EPOCH"], inplace.resume_step()
if step == 20:
    sys.exit("expected the state of step 20, which was saved, saw none")
inplace.progress(step or 0)
if step is None:
    inplace.saved(10)
    inplace.saved(20)
print(f"epoch={epoch}", "said" if step is None else f"from={step}", flush=True)
time.sleep(1000)
"""
"""Say of two steps that they are saved; only the first one can be loaded."""
Documents = list[dict[str, Any]]


async def log_of(cluster: Cluster, pod: str, container: str, query: str = "") -> str:
    """Return a container's log as `kubectl logs` gets it."""
    path = f"/api/v1/namespaces/default/pods/{pod}/log?container={container}{query}"
    return (await cluster.client().raw("GET", path, expects_json=False)).body.decode()


async def restart_once(cluster: Cluster, documents: Documents, victim: int) -> GroupRestart:
    """Start a group, wait for a checkpoint, kill one worker, return the restart that followed."""
    timeline = await cluster.trained(documents, timeout_s=TIMEOUT_S)
    checkpoint = cluster.folder / "pods"
    async with cluster.clock.timeout(TIMEOUT_S):
        while len(list(checkpoint.glob("*/volumes/checkpoints/step-*.json"))) < len(cluster.pods()):
            await cluster.clock.sleep(0.05)
    cluster.kill_worker("default", sorted(pod["metadata"]["name"] for pod in cluster.pods())[victim])
    return await cluster.restarted(timeline, 1, timeout_s=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_real_processes_restart_in_place_and_resume(example: Documents) -> None:
    """SIGKILL on one worker: no Pod is recreated, every worker resumes the checkpoint in the next epoch."""
    async with Cluster(nodes=2) as cluster:
        restart = await restart_once(cluster, with_pods(example, 3), victim=1)
        pods = sorted(pod["metadata"]["name"] for pod in cluster.pods())
        logs = [await log_of(cluster, pod, "worker") for pod in pods]
        for container in ("worker", "agent"):  # kubelet removes all containers, and their logs
            with pytest.raises(BadRequest, match=r"previous terminated container .* not found"):
                await log_of(cluster, pods[0], container, "&previous=true")
        last = await log_of(cluster, pods[0], "worker", "&tailLines=1")
        agent = await log_of(cluster, pods[0], "agent")
    assert (restart.epoch, restart.pods_recreated, restart.rejected) == (2, 0, 0)
    assert all(re.search(r"epoch=2 goes on from step [1-9]\d*", log) for log in logs)
    assert not any("refused" in log for log in logs)
    assert last.count("\n") == 1
    assert "agent_started" in agent
    assert not cluster.folder.exists()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_controller_may_be_a_process_too(example: Documents) -> None:
    """The same restart with `python -m inplace.controller` and a kubeconfig."""
    async with Cluster(nodes=1, controller="process") as cluster:
        restart = await restart_once(cluster, with_pods(example, 2), victim=0)
        assert restart.epoch == 2
        log = (cluster.folder / "controller.log").read_text()
    assert "Traceback" not in log


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_behind() -> None:
    """SIGINT to the parent of a running group ends every process of it and deletes its folder."""
    command = [sys.executable, "-m", "tests.simulator.cluster.demo_like"]
    parent = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        ready, folder = parent.stdout.readline().split()
        assert ready == "READY"
        cluster = _cluster_marker(Path(folder))
        assert len(reaper.marked(cluster)) == 6  # an agent, a guard and a worker in each of two Pods
        parent.send_signal(signal.SIGINT)
        assert parent.wait(TIMEOUT_S) == 130
    finally:
        parent.kill()
        parent.communicate()
    assert reaper.marked(cluster) == []
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process_behind() -> None:
    """Even SIGKILL to the parent ends its group: the reaper notices."""
    command = [sys.executable, "-m", "tests.simulator.cluster.demo_like"]
    parent = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    _, folder = parent.stdout.readline().split()
    cluster = _cluster_marker(Path(folder))
    watcher = os.pidfd_open(reaper.marked(cluster)[0])
    parent.kill()
    parent.communicate()
    assert _ended_within(watcher, TIMEOUT_S)
    shutil.rmtree(folder)


@pytest.mark.asyncio
async def test_a_cluster_kills_no_process_of_another() -> None:
    """Two clusters on one machine, whose Pods have equal names and UIDs: one ends, the other's process lives on."""
    container = {"name": "main", "image": "x", "command": ["sleep", "60"]}
    metadata, spec = {"name": "sleeper", "namespace": "default"}, {"containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    async with Cluster(nodes=1, controller="none") as stays:
        await _run_pod(stays, pod)
        async with Cluster(nodes=1, controller="none") as ends:
            await _run_pod(ends, pod)
            assert ends.pods()[0]["metadata"]["uid"] == stays.pods()[0]["metadata"]["uid"]
        assert len(reaper.marked(_cluster_marker(stays.folder))) == 1


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("depth", ["process", "containers"])
async def test_what_a_worker_keeps_outlives_restarts_and_goes_with_the_pod(depth: str) -> None:
    """Each run finds what the one before left in both depths, and the Pod that replaces one that is lost nothing."""
    async with Cluster(nodes=1, adds_agent=True) as cluster:
        await cluster.apply([_two_pods(["sh", "-c", COUNTS], f"depth={depth},keep=8Mi")])
        await _print_lines(cluster, 1, "run=1", "run=1")
        before = [pod["metadata"]["uid"] for pod in cluster.pods()]
        cluster.kill_worker("default", cluster.pods()[0]["metadata"]["name"], supervised=True)
        await _print_lines(cluster, 2, "run=2", "run=2")
        assert [pod["metadata"]["uid"] for pod in cluster.pods()] == before
        await cluster.client().delete(PODS, "default", cluster.pods()[0]["metadata"]["name"])
        await _print_lines(cluster, 3, "run=1", "run=3")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_step_that_was_said_and_is_not_there_costs_two_runs() -> None:
    """Then all go on from the step before, and the history says from which each run went on."""
    async with Cluster(nodes=1, adds_agent=True) as cluster:
        await cluster.apply([_two_pods(["python3", "-c", LIES], "process")])
        await _print_lines(cluster, 1, "said", "said")
        cluster.kill_worker("default", cluster.pods()[0]["metadata"]["name"], supervised=True)
        await _print_lines(cluster, 4, "from=10", "from=10")
        told = [(one["epoch"], one["resumeStep"]) for one in cluster.jobset("minimal")["status"]["restartHistory"]]
        assert sorted(told) == [(2, 20), (3, 20), (4, 10)]


def _two_pods(command: list[str], restart: str) -> dict[str, Any]:
    """Return examples/minimal.yaml with two Pods, a command and the annotation inplace.dev/restart."""
    (jobset,) = read_manifests(REPOSITORY / "examples" / "minimal.yaml")
    jobset["metadata"]["annotations"] = {wire.RESTART: restart, wire.FAILURES: "backoff=0"}
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["parallelism"] = 2
    spec["template"]["spec"]["containers"][0]["command"] = command
    return jobset


async def _print_lines(cluster: Cluster, epoch: int, *lines: str) -> None:
    """Wait until the workers of an epoch have printed these lines, in any order."""

    def printed() -> list[str]:
        logs = [log.read_text() for log in cluster.folder.glob("pods/*/logs/worker/*.log")]
        return sorted(re.findall(rf"^epoch={epoch} (.*)$", "\n".join(logs), re.MULTILINE))

    await cluster.until(lambda: printed() == sorted(lines), timeout_s=TIMEOUT_S)


async def _run_pod(cluster: Cluster, pod: dict[str, Any]) -> None:
    await cluster.apply([pod])
    await cluster.until(lambda: cluster.pods()[0].get("status", {}).get("phase") == "Running", timeout_s=TIMEOUT_S)


def _cluster_marker(folder: Path) -> str:
    """Return the marker that every process of a cluster carries, read from one of them."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            environ = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(folder).encode() in variable for variable in environ):
            found = [v for v in environ if v.startswith(b"INPLACE_CLUSTER=")]
            if found:
                return found[0].decode()
    raise AssertionError(f"expected a process of the cluster in {folder}, saw none")


def _ended_within(pidfd: int, timeout_s: float) -> bool:
    """Return whether a process ends in time."""
    ready, _, _ = select.select([pidfd], [], [], timeout_s)
    os.close(pidfd)
    return bool(ready)


@pytest.mark.asyncio
async def test_a_kubeconfig_is_written_once(tmp_path: Path) -> None:
    """A second call leaves the file alone: a command that reads it just then would find it empty."""
    async with Cluster(folder=tmp_path) as cluster:
        path = cluster.kubeconfig("admin")
        path.write_text("as it was")
        assert cluster.kubeconfig("admin").read_text() == "as it was"
