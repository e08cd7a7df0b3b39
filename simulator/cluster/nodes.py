"""The Node objects of an embedded cluster."""

from __future__ import annotations

from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.scheduler import RESTART_FEATURE

HOST_IP = "127.0.0.1"
KUBELET_VERSION = "v1.36.3"


def node(name: str, *, pods: int, now: str) -> KubeObject:
    """Return one ready node that declares in-place restart of all containers."""
    room = {"pods": str(pods), "cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti"}
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
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": name},
            ],
            "declaredFeatures": [RESTART_FEATURE],
            "nodeInfo": {"kubeletVersion": KUBELET_VERSION, "operatingSystem": "linux"},
        },
    }
