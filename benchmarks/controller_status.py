"""A Pod's status as kubelet writes it, for a Pod with a sidecar and a worker."""

from __future__ import annotations

import hashlib

from inplace.common.kube.resources import KubeObject

TIME = "2026-01-01T00:00:00Z"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_NOT_READY = ("Ready", "ContainersReady")


def pod_status(pod: str, epoch: int, *, running: bool) -> KubeObject:
    """Return the status while the containers of an epoch run, or after they ended (the worker with an error)."""
    conditions = [
        {"type": kind, "status": "True" if running or kind not in _NOT_READY else "False", "lastTransitionTime": TIME}
        for kind in _CONDITIONS
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "10.0.0.1",
        "podIP": "10.244.0.1",
        "startTime": TIME,
        "qosClass": "Burstable",
        "initContainerStatuses": [_container(pod, "agent", epoch, running=running, exit_code=88)],
        "containerStatuses": [_container(pod, "worker", epoch, running=running, exit_code=143)],
    }


def _container(pod: str, name: str, epoch: int, *, running: bool, exit_code: int) -> KubeObject:
    digest = hashlib.sha256(f"{pod}/{name}/{epoch}".encode()).hexdigest()
    image = hashlib.sha256(name.encode()).hexdigest()
    ended = {"exitCode": exit_code, "reason": "Error", "startedAt": TIME, "finishedAt": TIME}
    ended["containerID"] = f"containerd://{digest}"
    return {
        "name": name,
        "image": f"registry.example/team/inplace-{name}:2026.1",
        "imageID": f"registry.example/team/inplace-{name}@sha256:{image}",
        "containerID": f"containerd://{digest}",
        "ready": running,
        "started": running,
        "restartCount": epoch,
        "state": {"running": {"startedAt": TIME}} if running else {"terminated": ended},
        "lastState": {"terminated": ended} if running and epoch else {},
    }
