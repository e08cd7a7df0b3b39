"""
Build the Pod status that a kubelet reports from what it knows of the containers.

Source: pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go v1.37.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.cluster.pod_lifecycle import RESTARTING_ALL, Container, Exit, PodLifecycle, State
from inplace.simulator.cluster.pod_spec import Role

JsonObject = dict[str, Any]
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
RESTARTING_CONDITION = "AllContainersRestarting"


@dataclass(slots=True)
class StatusReporter:
    """Turns one Pod's lifecycle into its status; remembers when each condition last changed.

    Args:
        uid: of the Pod; container IDs contain it.
        pod_ip: the Pod's address.
        host_ip: the node's address.
        start_s: wall time at which the kubelet took the Pod.
    """

    uid: str
    pod_ip: str
    host_ip: str
    start_s: float
    _transitions: dict[str, tuple[str, str]] = field(default_factory=dict)

    def report(self, pod: PodLifecycle, now_s: float) -> JsonObject:
        """Return the status now; conditions owned by others (PodScheduled) are not in it."""
        status: JsonObject = {
            "phase": phase(pod),
            "conditions": self._conditions(pod, now_s),
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "podIP": self.pod_ip,
            "podIPs": [{"ip": self.pod_ip}],
            "startTime": timestamp(self.start_s),
            "containerStatuses": self._containers(pod, regular=True),
        }
        if pod.expired and pod.stopped:  # the phase is told only when no container is left
            status |= {"reason": "DeadlineExceeded", "message": DEADLINE_MESSAGE}
        if init := self._containers(pod, regular=False):
            status["initContainerStatuses"] = init
        return status

    def _containers(self, pod: PodLifecycle, *, regular: bool) -> list[JsonObject]:
        chosen = [c for c in pod.containers.values() if (c.spec.role is Role.REGULAR) == regular]
        has_init = any(c.spec.role is not Role.REGULAR for c in pod.containers.values())
        creating = "PodInitializing" if has_init else "ContainerCreating"
        return [self._container(container, creating) for container in chosen]

    def _container(self, container: Container, creating: str) -> JsonObject:
        image = container.spec.manifest.get("image", "")
        status: JsonObject = {
            "name": container.spec.name,
            "image": image,
            "imageID": image,
            "ready": container.ready,
            "started": container.started,
            "restartCount": container.restart_count,
            "state": self._state(container, creating),
            "lastState": {},
        }
        if container.last_exit is not None:
            status["lastState"] = {"terminated": self._terminated(container.last_exit)}
        if container.instance:
            status["containerID"] = self._container_id(container.instance)
        return status

    def _state(self, container: Container, creating: str) -> JsonObject:
        if container.state is State.RUNNING:
            return {"running": {"startedAt": timestamp(container.started_s)}}
        if container.state is State.TERMINATED and container.exit is not None:
            return {"terminated": self._terminated(container.exit)}
        reason = creating if container.state is State.STARTING else container.waiting_reason
        return {"waiting": {"reason": reason}}

    def _terminated(self, ended: Exit) -> JsonObject:
        if ended.reason == RESTARTING_ALL:  # kubelet_pods.go: the container is gone, its id, times and log with it
            message = "The container is removed because RestartAllContainers in place"
            return {
                "exitCode": ended.code,
                "reason": ended.reason,
                "message": message,
                "startedAt": None,
                "finishedAt": None,
            }
        return {
            "exitCode": ended.code,
            "reason": ended.reason,
            "startedAt": timestamp(ended.started_s),
            "finishedAt": timestamp(ended.finished_s),
            "containerID": self._container_id(ended.instance),
        }

    def _container_id(self, instance: int) -> str:
        return f"inplace://{self.uid}-{instance}"

    def _conditions(self, pod: PodLifecycle, now_s: float) -> list[JsonObject]:
        ready = _is_ready(pod)
        unready = {} if ready else {"reason": "ContainersNotReady", "message": "containers are not ready"}
        if pod.stopped and not ready:
            unready = {"reason": "PodCompleted"} if phase(pod) == "Succeeded" else {"reason": "PodFailed"}
        rows: list[tuple[str, bool, JsonObject]] = [
            ("PodReadyToStartContainers", not pod.stopped, {}),
            ("Initialized", pod.was_initialized, {} if pod.was_initialized else {"reason": "ContainersNotInitialized"}),
            ("Ready", ready, unready),
            ("ContainersReady", ready, unready),
        ]
        if pod.spec.restarts_all:
            restarting = pod.restarting is not None
            why = {"reason": "RestartAllContainersStarted", "message": "container exited with restart policy rule"}
            rows.append((RESTARTING_CONDITION, restarting, why if restarting else {}))
        return [self._condition(kind, holds, why, now_s) for kind, holds, why in rows]

    def _condition(self, kind: str, holds: bool, why: JsonObject, now_s: float) -> JsonObject:
        status = "True" if holds else "False"
        if self._transitions.get(kind, ("", ""))[0] != status:
            self._transitions[kind] = (status, timestamp(now_s))
        since = self._transitions[kind][1]
        # Explicit nulls: the patch must clear what an earlier report set.
        words = {"reason": None, "message": None} | why
        return {"type": kind, "status": status, "lastTransitionTime": since, "lastProbeTime": None} | words


def phase(pod: PodLifecycle) -> str:
    """Return the Pod's phase. A Pod held at a startup-probe barrier is Pending."""
    regular = pod.regular()
    if pod.stopped:
        done = all(c.state is State.TERMINATED and c.exit is not None and c.exit.code == 0 for c in regular)
        return "Succeeded" if done and not pod.init_failed and not pod.expired else "Failed"
    if pod.initialized and any(_has_run(c) for c in regular):
        return "Running"
    return "Pending"


def _has_run(container: Container) -> bool:
    return container.state in (State.RUNNING, State.TERMINATED) or container.last_exit is not None


def _is_ready(pod: PodLifecycle) -> bool:
    return not pod.stopped and all(c.ready for c in pod.containers.values() if c.spec.role is not Role.INIT)
