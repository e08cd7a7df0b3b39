"""The PriorityClass of spares, whose name the controller writes, and who may have it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest
import yaml

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBS, PODS, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster.access import user_name
from inplace.simulator.cluster.manifests import spare_manifests
from tests.deploy.test_rbac import granted, role

CLASS: Final = Path(__file__).parents[2] / "deploy" / "spares" / "priorityclass.yaml"
AUTOSCALERS_CUTOFF: Final = -10
"""cluster-autoscaler's default of --expendable-pods-priority-cutoff: it neither keeps nor adds nodes for less."""


def test_a_spare_gives_way_to_everybody_and_takes_nobodys_place() -> None:
    """Its priority is negative, it preempts nobody, and no other Pod gets it by default."""
    (found,) = yaml.safe_load_all(CLASS.read_text())
    assert found["metadata"]["name"] == wire.SPARE_PRIORITY_CLASS
    assert AUTOSCALERS_CUTOFF <= found["value"] < 0
    assert found["preemptionPolicy"] == "Never"
    assert found["globalDefault"] is False


def test_spares_ask_for_no_right() -> None:
    """The controller makes Jobs for them as for the group; it may neither create Pods nor Deployments."""
    verbs = granted(role("ClusterRole", "inplace-controller"))
    assert "create" not in verbs["/pods"]
    assert not [what for what in verbs if what.startswith("apps/") or what == "scheduling.k8s.io/priorityclasses"]


CONTROLLER: Final = user_name("inplace-controller")
JOB_CONTROLLER: Final = user_name("job-controller")
TENANT: Final = "jane"


def pod_spec(priority_class: str | None = wire.SPARE_PRIORITY_CLASS) -> KubeObject:
    """Return the spec of a Pod with a priority class."""
    spec: KubeObject = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return spec | ({"priorityClassName": priority_class} if priority_class else {})


def pod(priority_class: str | None = wire.SPARE_PRIORITY_CLASS) -> KubeObject:
    """Return a Pod with a priority class; it looks like a spare in all that its author can write."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-spares", "uid": "u1", "controller": True}
    metadata = {"name": "p", "labels": {wire.SPARE_OF: "train"}, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": pod_spec(priority_class)}


def job(priority_class: str | None = wire.SPARE_PRIORITY_CLASS, **labels: str) -> KubeObject:
    """Return a Job of such Pods."""
    metadata = {"name": "train-spares", "labels": {wire.SPARE_OF: "train"} | labels}
    return {"metadata": metadata, "spec": {"template": {"spec": pod_spec(priority_class)}}}


OF_A_JOBSET: Final = {wire.JOBSET_NAME: "train"}
MAY: Final[dict[str, tuple[str, Resource, KubeObject]]] = {
    "the spares' job": (CONTROLLER, JOBS, job()),
    "a spare": (JOB_CONTROLLER, PODS, pod()),
    "a spare, where all controllers are one user": ("system:kube-controller-manager", PODS, pod()),
    "a tenant's pod without a class": (TENANT, PODS, pod(None)),
    "a tenant's job without a class": (TENANT, JOBS, job(None)),
    "a job of a jobset": (CONTROLLER, JOBS, job(None, **OF_A_JOBSET)),
}
MAY_NOT: Final[dict[str, tuple[str, Resource, KubeObject]]] = {
    "a tenant's pod": (TENANT, PODS, pod()),
    "a tenant's job": (TENANT, JOBS, job()),
    "a tenant's deployment": ("system:serviceaccount:kube-system:replicaset-controller", PODS, pod()),
    "a tenant's jobset": (CONTROLLER, JOBS, job(**OF_A_JOBSET)),
    "a pod by a stolen token of the controller": (CONTROLLER, PODS, pod()),
}


def server() -> ApiServer:
    """Return an API server that has the class and its policy."""
    made = ApiServer(clock=LoopClock(0.0), rng=Random(1))
    made.load(spare_manifests())
    return made


def client_of(user: str, of: ApiServer) -> KubeClient:
    """Return a user's client."""
    return KubeClient(InMemoryTransport(of, user=user), user_agent="t", field_manager="t")


async def created(user: str, resource: Resource, made: KubeObject) -> KubeObject:
    """Let a user create an object."""
    return await client_of(user, server()).create(resource, "default", made)


@pytest.mark.virtual_time
@pytest.mark.parametrize("claim", MAY)
async def test_who_may_have_the_class(claim: str) -> None:
    """The controller's Job of spares, and the Pods that the Job controller makes; nobody else's Pods are looked at."""
    await created(*MAY[claim])


@pytest.mark.attack
@pytest.mark.virtual_time
@pytest.mark.parametrize("claim", MAY_NOT)
async def test_who_may_not_have_the_class(claim: str) -> None:
    """A quota that leaves the class out counts no ordinary Pod of anybody."""
    with pytest.raises(ApiError, match="only spares of a JobSet may have the PriorityClass inplace-spare"):
        await created(*MAY_NOT[claim])


@pytest.mark.attack
@pytest.mark.virtual_time
async def test_the_spares_are_as_many_as_the_controller_says() -> None:
    """A user who may change Jobs cannot have more of them; the controller may, and others may annotate the Job."""
    of = server()
    controller, tenant = client_of(CONTROLLER, of), client_of(TENANT, of)
    await controller.create(JOBS, "default", job())
    more: KubeObject = {"spec": {"parallelism": 20}}
    with pytest.raises(ApiError, match="only spares of a JobSet may have the PriorityClass inplace-spare"):
        await tenant.patch(JOBS, "default", "train-spares", more)
    await tenant.patch(JOBS, "default", "train-spares", {"metadata": {"annotations": {"note": "x"}}})
    await controller.patch(JOBS, "default", "train-spares", more)
