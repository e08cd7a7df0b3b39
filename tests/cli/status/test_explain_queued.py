"""`inplace explain` of a JobSet that a queue keeps suspended: Kueue's own reason, read only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from inplace.cli.status.advice import Obstacle
from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import explain
from inplace.common.kube.resources import JOBSETS, KubeObject, Resource
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.facts import text_of
from tests.cli.scenes import Spy, another, connection, explained, training

pytestmark = pytest.mark.virtual_time

KEPT: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUOTA: Final = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "couldn't assign flavors to pod set workers: insufficient unused quota for nvidia.com/gpu",
}
QUEUE: Final = {"kueue.x-k8s.io/queue-name": "team"}


def crd(version: str) -> KubeObject:
    """Return a definition of Workloads that keeps all they hold."""
    names = {"plural": "workloads", "kind": "Workload", "singular": "workload", "listKind": "WorkloadList"}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": KEPT}}]
    spec = {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": names, "versions": versions}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": spec,
    }


@asynccontextmanager
async def queued(labels: dict[str, str], *, owned: bool = False) -> AsyncIterator[Cluster]:
    """Run a group, and beside it the suspended JobSet `other`, which the first one may own."""
    async with training(1) as cluster:
        other = another(labels=labels)
        if owned:
            meta = cluster.jobset("train")["metadata"]
            owner = {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "name": "train", "uid": meta["uid"]}
            other["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        other["spec"]["suspend"] = True
        await cluster.apply([other])
        yield cluster


async def create_workload(cluster: Cluster, uid: str, version: str = "v1beta2", **status: Any) -> None:
    """Create the Workload of an object, as Kueue does."""
    await cluster.apply([crd(version)])
    workload = {
        "metadata": {"name": "jobset-other-1a2b3", "labels": {"kueue.x-k8s.io/job-uid": uid}},
        "spec": {"active": status.pop("active", True)},
        "status": status,
    }
    resource = Resource("kueue.x-k8s.io", version, "workloads", "Workload")
    await cluster.client().create(
        resource, "default", {"apiVersion": resource.api_version, "kind": "Workload"} | workload
    )


async def cause_of(cluster: Cluster) -> Obstacle:
    """Return the only cause."""
    (cause,) = (await explained(cluster, "other")).causes
    return cause


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_kueues_reason_is_told(version: str) -> None:
    """With the Workload's name; nobody is told to resume by hand what Kueue suspends again."""
    async with queued(QUEUE) as cluster:
        await create_workload(cluster, cluster.jobset("other")["metadata"]["uid"], version, conditions=[QUOTA])
        cause = await cause_of(cluster)
        assert cause.kind == "Queued"
        assert cause.text == (
            "it waits in queue team; Workload jobset-other-1a2b3: QuotaReserved is False (Pending): couldn't assign "
            "flavors to pod set workers: insufficient unused quota for nvidia.com/gpu"
        )
        assert "kubectl describe workload jobset-other-1a2b3" in cause.advice
        assert "kubectl patch" not in cause.advice


async def test_the_queue_of_its_owner_is_asked() -> None:
    """The Workload of what owns the JobSet bears the owner's UID, as that of a TrainJob."""
    async with queued({}, owned=True) as cluster:
        await create_workload(cluster, cluster.jobset("train")["metadata"]["uid"], conditions=[QUOTA])
        assert (await cause_of(cluster)).text.startswith("it waits in its owner's queue; Workload jobset-other-1a2b3")


EVICTED: Final = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "by a higher priority"}
RESERVED: Final = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
CHECK: Final = {"name": "provision", "state": "Pending", "message": "no nodes yet"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "Kueue has not looked at it yet"),
        ({"active": False, "conditions": [QUOTA]}, "deactivated it (spec.active is false); QuotaReserved is False"),
        ({"conditions": [EVICTED, QUOTA]}, "Evicted is True (Preempted): by a higher priority; QuotaReserved"),
        ({"conditions": [RESERVED], "admissionChecks": [CHECK]}, "admission check provision is Pending: no nodes yet"),
    ],
)
async def test_each_state_of_a_workload_has_words(status: dict[str, Any], said: str) -> None:
    """Not only a missing quota keeps a Workload waiting."""
    async with queued(QUEUE) as cluster:
        await create_workload(cluster, cluster.jobset("other")["metadata"]["uid"], **status)
        assert said in (await cause_of(cluster)).text


async def test_a_queue_without_kueue_is_told() -> None:
    """Nobody will ever resume it: the cluster has no Kueue."""
    async with queued(QUEUE) as cluster:
        cause = await cause_of(cluster)
        assert cause.text == "it waits in queue team: this cluster has no Kueue"


async def test_a_namesakes_workload_is_left_out() -> None:
    """A Workload of another JobSet says nothing of this one."""
    async with queued(QUEUE) as cluster:
        await create_workload(cluster, "another", conditions=[QUOTA])
        assert (await cause_of(cluster)).text == "it waits in queue team: Kueue has no Workload of it"


async def test_a_jobset_without_a_queue_is_resumed_by_hand() -> None:
    """And no Workload is asked for."""
    async with queued({}) as cluster:
        cause = await cause_of(cluster)
        assert (cause.kind, cause.text) == ("Suspended", "spec.suspend is true")
        assert "kubectl patch jobset other" in cause.advice
        assert cluster.server.requests.of(resource="workloads") == 0


async def test_a_missing_right_is_said() -> None:
    """The queue's name stands on the JobSet, and the rest is told."""
    async with queued(QUEUE) as cluster:
        found = explain(await read_facts(Spy(cluster.server, "/workloads").connection(), "other"), now_s=0.0)
        assert [cause.text for cause in found.causes] == ["it waits in queue team"]
        assert "not read: Kueue's Workload: 403" in text_of(found)
        assert (await connection(cluster).client.get(JOBSETS, "default", "other"))["spec"]["suspend"] is True
