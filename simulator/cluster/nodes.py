"""The Node objects of an embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.scheduler import RESTART_FEATURE

HOST_IP = "127.0.0.1"
KUBELET_VERSION = "v1.37.2"


ROOM: Mapping[str, str] = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti"}


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What tells a node from a plain one.

    Args:
        pods: how many Pods it takes; None is the cluster's number.
        resources: what it has beside, or instead of, `ROOM`.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    resources: Mapping[str, str] = field(default_factory=dict)
    pods: int | None = None


PLAIN = NodeShape()


def node(name: str, *, pods: int, now: str, shape: NodeShape = PLAIN) -> KubeObject:
    """Return one ready node that declares in-place restart of all containers."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    room = {**ROOM, **shape.resources, "pods": str(pods if shape.pods is None else shape.pods)}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **shape.labels}},
        "spec": {"taints": [dict(taint) for taint in shape.taints]} if shape.taints else {},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": name}],
            "declaredFeatures": [RESTART_FEATURE],
            "nodeInfo": {"kubeletVersion": KUBELET_VERSION, "operatingSystem": "linux"},
        },
    }
