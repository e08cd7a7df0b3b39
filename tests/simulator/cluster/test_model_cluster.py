from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import PODS
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import virtual_cluster
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.manifests import with_pods
from inplace.simulator.cluster.node_loss import give_up
from inplace.simulator.cluster.timeline import GroupRestart

TIMEOUT_S = 120.0
Documents = list[dict[str, Any]]


async def restart_once(documents: Documents, pods: int, seed: int) -> tuple[list[ClusterEvent], GroupRestart]:
    """Start a group, kill one worker, and return all events with the restart that followed."""
    events: list[ClusterEvent] = []
    async with virtual_cluster(nodes=pods, seed=seed) as cluster:
        cluster.observers.add(events.append)
        timeline = await cluster.trained(with_pods(documents, pods), timeout_s=TIMEOUT_S)
        cluster.kill_worker("default", cluster.pods()[pods // 2]["metadata"]["name"])
        return events, await cluster.restarted(timeline, 1, timeout_s=TIMEOUT_S)


def test_a_killed_worker_restarts_the_group_in_place(example: Documents) -> None:
    """The moments come in the protocol's order, with three requests per Pod and no Pod recreated."""
    _, restart = virtual_time.run(restart_once(example, 20, seed=1))
    times = [at_s for _, at_s in restart.moments()]
    assert all(at_s is not None for at_s in times)
    assert restart.detected_s is not None
    assert restart.deprecated_s is not None
    assert restart.synced_s is not None
    assert restart.stepped_s is not None
    assert restart.began_s < restart.detected_s <= restart.deprecated_s < restart.synced_s < restart.stepped_s
    assert restart.requests["list", "jobsets", "inplace-agent"] == 20
    assert restart.requests["watch", "jobsets", "inplace-agent"] == 20
    assert restart.requests["patch", "pods", "inplace-agent"] == 20 + 1  # one tells of the death
    assert (restart.epoch, restart.rejected, restart.pods_recreated) == (2, 0, 0)
    assert restart.stepped_s - restart.began_s < 10


def test_one_seed_gives_one_run(example: Documents) -> None:
    """Two runs from one seed have the same events at the same times; another seed has others."""
    first, _ = virtual_time.run(restart_once(example, 8, seed=1))
    again, _ = virtual_time.run(restart_once(example, 8, seed=1))
    other, _ = virtual_time.run(restart_once(example, 8, seed=2))
    assert first == again
    assert first != other


def test_no_worker_starts_before_the_last_one_of_the_old_epoch_is_gone(example: Documents) -> None:
    """Between the fault and the first new worker, every worker exited and every agent restarted."""
    events, restart = virtual_time.run(restart_once(example, 12, seed=3))
    after = [e for e in events if e.time_s >= restart.began_s]
    exits = [e.time_s for e in after if e.kind is Kind.CONTAINER_EXITED and e.container == "worker"]
    starts = [e.time_s for e in after if e.kind is Kind.CONTAINER_STARTED and e.container == "worker"]
    assert (len(exits), len(starts)) == (12, 12)
    assert max(exits) < min(starts)


@pytest.mark.virtual_time
async def test_a_lost_node_delays_only_its_pods(example: Documents) -> None:
    """The Pods of a dead node are Failed and replaced elsewhere; the others restart in place."""
    async with virtual_cluster(nodes=3, pods_per_node=2) as cluster:
        timeline = await cluster.trained(with_pods(example, 4), timeout_s=TIMEOUT_S)
        lost_s = cluster.clock.monotonic_s()
        cluster.lose_node("node-0")
        restart = await cluster.restarted(timeline, 1, timeout_s=1000)
        took_s = (restart.stepped_s or 0.0) - lost_s
    assert restart.pods_recreated == 2
    assert 340 < took_s < 400


@pytest.mark.virtual_time
async def test_a_lost_node_keeps_no_deleted_pods(example: Documents) -> None:
    """A Pod that is deleted while its node is dead has no kubelet to end it: it goes when the node is given up."""
    async with virtual_cluster(nodes=3, pods_per_node=2) as cluster:
        await cluster.trained(with_pods(example, 4), timeout_s=TIMEOUT_S)
        cluster.lose_node("node-0")
        doomed = [pod["metadata"] for pod in cluster.pods() if pod["spec"]["nodeName"] == "node-0"]
        for meta in doomed:
            await cluster.client().delete(PODS, "default", meta["name"])
        last_words = {"status": {"phase": "Failed"}}  # of a kubelet that died before its next request
        await cluster.client().patch(PODS, "default", doomed[0]["name"], last_words, subresource="status")
        await cluster.clock.sleep(400)
        deleted, left = {meta["uid"] for meta in doomed}, {pod["metadata"]["uid"] for pod in cluster.pods()}
    assert deleted
    assert len(left) == 4
    assert not deleted & left


@pytest.mark.virtual_time
async def test_a_pod_that_is_deleted_while_its_node_is_given_up_goes_too(
    example: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 100001117: a deletion that begins after the node's Pods were listed is seen in the answer to the PATCH."""
    async with virtual_cluster(nodes=2, pods_per_node=2) as cluster:
        await cluster.trained(with_pods(example, 4), timeout_s=TIMEOUT_S)
        cluster.lose_node("node-0")
        client = cluster.client("node-lifecycle")
        list_pods = client.list

        async def list_before_deletion(*args: Any, **options: Any) -> dict[str, Any]:
            listed: dict[str, Any] = await list_pods(*args, **options)
            for pod in listed["items"]:
                await cluster.client().delete(PODS, "default", pod["metadata"]["name"])
            return listed

        monkeypatch.setattr(client, "list", list_before_deletion)
        await give_up(client, cluster.clock, "node-0", 0.0)
        await cluster.clock.sleep(5)  # the Job controller takes its finalizer off
        assert not [pod for pod in cluster.pods() if pod["spec"].get("nodeName") == "node-0"]


@pytest.mark.virtual_time
async def test_a_pod_that_fits_nowhere_says_so(example: Documents) -> None:
    """Without room the Pod stays Pending with PodScheduled=False, and the others run."""
    async with virtual_cluster(nodes=1, pods_per_node=3) as cluster:
        await cluster.apply(with_pods(example, 4))

        def condition(pod: dict[str, Any]) -> str:
            conditions = pod.get("status", {}).get("conditions") or ()
            return next((f"{c['status']} {c.get('reason', '')}" for c in conditions if c["type"] == "PodScheduled"), "")

        await cluster.until(
            lambda: len(cluster.pods()) == 4 and all(map(condition, cluster.pods())), timeout_s=TIMEOUT_S
        )
        found = sorted(map(condition, cluster.pods()))
    assert found == ["False Unschedulable", "True ", "True ", "True "]


def test_waiting_for_what_never_happens_times_out(example: Documents) -> None:
    """`until` raises TimeoutError in virtual time."""

    async def main() -> None:
        async with virtual_cluster() as cluster:
            await cluster.until(lambda: False, timeout_s=60)

    with pytest.raises(TimeoutError):
        virtual_time.run(main())


@pytest.mark.virtual_time
async def test_the_admission_policies_are_there(example: Documents) -> None:
    """The cluster has the policies of deploy/admission: they refuse a claim that no container mounts."""
    *others, jobset = example
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    jobset["spec"]["volumeClaimPolicies"] = [{"templates": [template]}]
    async with virtual_cluster() as cluster:
        with pytest.raises(ApiError, match="data from VolumeClaimPolicies"):
            await cluster.apply([*others, jobset])
