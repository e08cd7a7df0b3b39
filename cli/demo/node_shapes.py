"""Decide the nodes of the demo's cluster: enough of the kind that each replicatedJob's Pods ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.common.injection.pod_roles import Member, members
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.nodes import ROOM, NodeShape
from inplace.simulator.cluster.scheduler import number_of, requests_of

PODS_PER_NODE: Final = 8  # as on an accelerator host
_HOSTNAME: Final = "kubernetes.io/hostname"  # every node has its own
_OF_KUBERNETES: Final = "node.kubernetes.io/"  # taints that Kubernetes sets while something is wrong with a node


def node_shapes(jobset: KubeObject) -> list[NodeShape]:
    """Return the nodes on which all Pods of a JobSet fit, and one to spare for each replicatedJob.

    Raises:
        ValueError: a quantity cannot be read.
    """
    return [shape for member in members(jobset) if member.pods for shape in _of_member(jobset, member)]


def _of_member(jobset: KubeObject, member: Member) -> Iterator[NodeShape]:
    jobs, pods = int(member.raw["replicas"]), int(member.job_spec["parallelism"])
    topology = _exclusive_topology(jobset, member)
    if topology is None:
        yield from [_shape(member, {}, PODS_PER_NODE)] * (-(-jobs * pods // PODS_PER_NODE) + 1)
        return
    is_host = topology == _HOSTNAME
    for job in range(jobs):
        meta = jobset["metadata"]
        name = f"{meta['name']}-{member.name}-{job}"
        labels = {wire.NAMESPACED_JOB: f"{meta.get('namespace', 'default')}_{name}"[:63]}
        labels |= {} if is_host else {topology: f"domain-{job}"}
        room = max(pods, PODS_PER_NODE) if is_host else PODS_PER_NODE
        yield from [_shape(member, labels, room)] * -(-pods // room)
    yield _shape(member, {} if is_host else {topology: "spare"}, max(pods, PODS_PER_NODE))


def _exclusive_topology(jobset: KubeObject, member: Member) -> str | None:
    """Return the node label whose values the Jobs do not share."""
    for meta in (member.template.get("metadata") or {}, jobset["metadata"]):
        if key := (meta.get("annotations") or {}).get(wire.EXCLUSIVE_TOPOLOGY):
            return str(key)
    return None


def _shape(member: Member, labels: Mapping[str, str], pods: int) -> NodeShape:
    spec = member.pod_spec
    asked = {key: str(value) for key, value in (spec.get("nodeSelector") or {}).items() if key != _HOSTNAME}
    requests = requests_of({"spec": spec})
    resources = {
        name: str(math.ceil(max(amount * pods, number_of(ROOM.get(name, 0)))))
        for name, amount in requests.items()
        if name != "pods"
    }
    return NodeShape(asked | dict(labels), tuple(_taints(spec)), resources, pods)


def _taints(spec: Mapping[str, Any]) -> Iterator[KubeObject]:
    """Yield the taints that the Pods name, so that nobody else's Pods take their nodes."""
    for toleration in spec.get("tolerations") or ():
        key = toleration.get("key") or ""
        if key and not key.startswith(_OF_KUBERNETES) and toleration.get("effect") in (None, "", "NoSchedule"):
            yield {"key": key, "value": str(toleration.get("value") or ""), "effect": "NoSchedule"}
