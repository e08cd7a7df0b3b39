"""Modelled Pods in which a guard or a supervisor starts the worker: real agents, real machines, virtual time."""

from __future__ import annotations

import pytest

from inplace.cli.demo.manifest import DemoManifest, read_demo_manifest
from inplace.common.kube.resources import PODS
from inplace.common.wire.mode import GUARDED, Mode
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.timeline import Timeline

pytestmark = [pytest.mark.virtual_time, pytest.mark.parametrize("mode", GUARDED)]
PODS_MADE = 4
TIMEOUT_S = 120.0


def cluster_of_models() -> Cluster:
    """Return a cluster of timed models."""
    return virtual_cluster(nodes=PODS_MADE, adds_agent=True)


async def started(cluster: Cluster, mode: Mode) -> tuple[DemoManifest, Timeline]:
    """Start a group of a mode; return it once all work."""
    manifest = read_demo_manifest(None, PODS_MADE, 3, mode, models=True)
    timeline = Timeline(
        cluster.server,
        cluster.observers,
        clock=cluster.clock,
        jobset=manifest.name,
        agents=manifest.agents,
        workers=frozenset(manifest.workers.values()),
        pods=PODS_MADE,
    )
    await cluster.apply(manifest.documents)
    await cluster.restarted(timeline, timeout_s=TIMEOUT_S)
    return manifest, timeline


async def test_a_dead_worker_restarts_the_group(mode: Mode) -> None:
    """Again and again; where the worker's parent stays, no container starts again and no watch is opened anew."""
    async with cluster_of_models() as cluster:
        manifest, timeline = await started(cluster, mode)
        for number in (1, 2, 3):
            name = cluster.pods()[number]["metadata"]["name"]
            cluster.kill_worker("default", name, container=manifest.worker, supervised=True)
            restart = await cluster.restarted(timeline, number, timeout_s=TIMEOUT_S)
            assert (restart.epoch, restart.trigger, restart.pods_recreated) == (number + 1, "worker_exit", 0)
            watches = restart.requests.get(("watch", "jobsets", "inplace-agent"), 0)
            assert watches == (0 if mode.keeps_agents else PODS_MADE)
        assert (timeline.containers_restarted == 0) == (mode.keeps_agents)


async def test_a_killed_parent_restarts_the_group(mode: Mode) -> None:
    """The kernel ends the worker with it."""
    async with cluster_of_models() as cluster:
        manifest, timeline = await started(cluster, mode)
        cluster.kill_worker("default", cluster.pods()[0]["metadata"]["name"], container=manifest.worker)
        assert (await cluster.restarted(timeline, 1, timeout_s=TIMEOUT_S)).epoch == 2


async def test_a_deleted_pod_ends_its_worker_and_is_replaced(mode: Mode) -> None:
    """Long before its grace is over."""
    async with cluster_of_models() as cluster:
        _, timeline = await started(cluster, mode)
        deleted_s = cluster.clock.monotonic_s()
        before = {pod["metadata"]["uid"] for pod in cluster.pods()}
        await cluster.client().delete(PODS, "default", cluster.pods()[0]["metadata"]["name"])
        restart = await cluster.restarted(timeline, 1, timeout_s=TIMEOUT_S)
        assert restart.pods_recreated == 1
        assert len(before & {pod["metadata"]["uid"] for pod in cluster.pods()}) == PODS_MADE - 1
        assert (restart.synced_s or 0.0) - deleted_s < 20.0


async def test_workers_that_complete_end_the_jobset(mode: Mode) -> None:
    """After STEPS steps of STEP_S seconds."""
    async with cluster_of_models() as cluster:
        manifest = read_demo_manifest(None, PODS_MADE, 1, mode, models=True)
        (job,) = manifest.jobset["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"]["containers"]:
            env = [entry for entry in container.get("env", []) if entry["name"] not in ("STEPS", "STEP_S")]
            container["env"] = [*env, {"name": "STEPS", "value": "10"}, {"name": "STEP_S", "value": "1"}]
        await cluster.apply(manifest.documents)

        def done() -> bool:
            return bool(cluster.jobset(manifest.name).get("status", {}).get("terminalState"))

        await cluster.until(done, timeout_s=60.0)
        assert cluster.jobset(manifest.name)["status"]["terminalState"] == "Completed"
        assert {pod["status"]["phase"] for pod in cluster.pods()} == {"Succeeded"}
