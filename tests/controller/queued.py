"""JobSets whose Pods Kueue places, and what Kueue, the scheduler and kubelet do for them; on any API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import JOBSETS, PODS, WORKLOADS, KubeObject, Resource
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job

HOST: Final = "kubernetes.io/hostname"
TOPOLOGY: Final = {"kueue.x-k8s.io/podset-required-topology": "rack"}


def definition(resource: Resource) -> KubeObject:
    """Return a definition by which an API server stores any object of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }


KUEUE: Final = definition(WORKLOADS)
"""Kueue's Workload, as far as an API server needs it to store one."""


def manifest(name: str = "train", *, pods: int = 3, bad_nodes: str = "1", **annotations: str) -> KubeObject:
    """Return a JobSet whose Pods Kueue places."""
    given = {wire.FAILURES: "backoff=0", wire.NODES: bad_nodes}
    given |= {getattr(wire, key): value for key, value in annotations.items()}
    wanted = jobset(name, jobs=[replicated_job(replicas=1, pods=pods)], restarts_max=100, annotations=given)
    pods_template = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods_template["metadata"] = {"annotations": TOPOLOGY}
    pods_template["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    return wanted


def in_namespace(namespace: str, **changes: Any) -> KubeObject:
    """Return such a JobSet in another namespace."""
    wanted = manifest(**changes)
    wanted["metadata"]["namespace"] = namespace
    return wanted


async def place(crew: Crew, index: int, where: str) -> None:
    """Pin the Pod of a slot to a node and let it run there, as Kueue, scheduler and kubelet do."""
    pod = crew.pod_at(index)
    spec = {"nodeSelector": {HOST: where}, "schedulingGates": None}
    await crew.client.patch(PODS, crew.namespace, pod, {"spec": spec})
    await crew.run_on(pod, where)


async def admit(crew: Crew, **changes: Any) -> None:
    """Let Kueue admit a JobSet and assign its Pods to hosts: what it writes into the Workload's status."""
    uid = (await crew.jobset())["metadata"]["uid"]
    metadata = {"name": crew.name, "labels": {"kueue.x-k8s.io/job-uid": uid}}
    workload = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "metadata": metadata}
    await crew.client.create(WORKLOADS, crew.namespace, workload)
    assigned = {"name": "workers", "topologyAssignment": {"levels": [HOST]}}
    admitted = {"type": "Admitted", "status": "True"}
    status = {"conditions": [admitted], "admission": {"podSetAssignments": [assigned]}} | changes
    await crew.client.patch(WORKLOADS, crew.namespace, crew.name, {"status": status}, subresource="status")


async def find_bad(client: KubeClient, namespace: str, node: str) -> None:
    """Let a JobSet of a namespace find a node bad now, as its status says it where its worker failed there."""
    wanted = in_namespace(namespace, name="opinion")
    wanted["spec"]["suspend"] = True
    await client.create(JOBSETS, namespace, wanted)
    found = {"node": node, "avoidedSince": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    status = {"status": {wire.NODE_FAILURES: [found]}}
    await client.patch(JOBSETS, namespace, "opinion", status, subresource="status")
