"""
The printed columns of built-in kinds: what `kubectl get` shows.

Source: k8s.io/kubernetes/pkg/printers/internalversion/printers.go (the columns people read; details differ).
"""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.jsonpath import at_path
from inplace.simulator.apiserver.kinds import Column
from inplace.simulator.apiserver.table import AGE, NAME, age, human_duration, parse_time_s

NONE = "<none>"


def _at(obj: KubeObject, path: str, default: Any = "") -> Any:
    value = at_path(obj, tuple(path.split(".")))
    return default if value is None else value


def _text(name: str, path: str, *, default: str = "", priority: int = 0) -> Column:
    return Column(name, lambda obj, _: str(_at(obj, path, default)), priority=priority)


def _statuses(pod: KubeObject, field: str = "containerStatuses") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _at(pod, f"status.{field}", [])
    return found


def _ready(pod: KubeObject, _: float) -> str:
    sidecars = [c["name"] for c in _at(pod, "spec.initContainers", []) if c.get("restartPolicy") == "Always"]
    inits = [s for s in _statuses(pod, "initContainerStatuses") if s["name"] in sidecars]
    ready = sum(bool(status.get("ready")) for status in (*_statuses(pod), *inits))
    return f"{ready}/{len(_at(pod, 'spec.containers', [])) + len(sidecars)}"


def _pod_status(pod: KubeObject, _: float) -> str:
    reason = str(_at(pod, "status.reason") or _at(pod, "status.phase", "Unknown"))
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in _at(pod, "status.conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for status in (*_statuses(pod, "initContainerStatuses"), *_statuses(pod)):
        state = status.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return str(waiting)
        terminated = (state.get("terminated") or {}).get("reason")
        if terminated:
            reason = terminated
    return reason


def _restarts(pod: KubeObject, now_s: float) -> str:
    # Like kubectl: sidecars count, and the age is that of the most recent end of a container.
    statuses = (*_statuses(pod, "initContainerStatuses"), *_statuses(pod))
    count = sum(status.get("restartCount", 0) for status in statuses)
    ended = [
        at_path(status, ("lastState", "terminated", "finishedAt"))
        for status in statuses
        if at_path(status, ("lastState", "terminated", "finishedAt"))
    ]
    if not count or not ended:
        return str(count)
    return f"{count} ({human_duration(now_s - parse_time_s(max(ended)))} ago)"


def _readiness_gates(pod: KubeObject, _: float) -> str:
    gates = _at(pod, "spec.readinessGates", [])
    return f"0/{len(gates)}" if gates else NONE


POD = (
    NAME,
    Column("Ready", _ready),
    Column("Status", _pod_status),
    Column("Restarts", _restarts),
    AGE,
    _text("IP", "status.podIP", default=NONE, priority=1),
    _text("Node", "spec.nodeName", default=NONE, priority=1),
    _text("Nominated Node", "status.nominatedNodeName", default=NONE, priority=1),
    Column("Readiness Gates", _readiness_gates, priority=1),
)


def _job_status(job: KubeObject, _: float) -> str:
    held = {c["type"] for c in _at(job, "status.conditions", []) if c.get("status") == "True"}
    if job["metadata"].get("deletionTimestamp"):
        held.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((word for word in order if word in held), "Running")


def _completions(job: KubeObject, _: float) -> str:
    succeeded = _at(job, "status.succeeded", 0)
    wanted = _at(job, "spec.completions", None)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = _at(job, "spec.parallelism", 1)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: KubeObject, now_s: float) -> str:
    started = _at(job, "status.startTime", None)
    if not started:
        return ""
    ended = _at(job, "status.completionTime", None)
    return human_duration((parse_time_s(ended) if ended else now_s) - parse_time_s(started))


def _template_names(field: str) -> Column:
    def cell(obj: KubeObject, _: float) -> str:
        return ",".join(str(c.get(field, "")) for c in _at(obj, "spec.template.spec.containers", []))

    return Column({"name": "Containers", "image": "Images"}[field], cell, priority=1)


def _selector(path: str) -> Column:
    def cell(obj: KubeObject, _: float) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted(_at(obj, path, {}).items())) or NONE

    return Column("Selector", cell, priority=1)


JOB = (
    NAME,
    Column("Status", _job_status),
    Column("Completions", _completions),
    Column("Duration", _duration),
    AGE,
    _template_names("name"),
    _template_names("image"),
    _selector("spec.selector.matchLabels"),
)


def _ports(service: KubeObject, _: float) -> str:
    ports = [f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in _at(service, "spec.ports", [])]
    return ",".join(ports) or NONE


SERVICE = (
    NAME,
    _text("Type", "spec.type"),
    _text("Cluster-IP", "spec.clusterIP", default=NONE),
    _text("External-IP", "spec.externalName", default=NONE),
    Column("Port(s)", _ports),
    AGE,
    _selector("spec.selector"),
)


def _node_status(node: KubeObject, _: float) -> str:
    ready = [c["status"] for c in _at(node, "status.conditions", []) if c.get("type") == "Ready"]
    word = "Unknown" if not ready else "Ready" if ready[0] == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if _at(node, "spec.unschedulable", False) else word


def _roles(node: KubeObject, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(k.removeprefix(prefix) for k in labels if k.startswith(prefix))) or NONE


def _internal_ip(node: KubeObject, _: float) -> str:
    addresses = _at(node, "status.addresses", [])
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), NONE)


NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _roles),
    AGE,
    _text("Version", "status.nodeInfo.kubeletVersion"),
    Column("Internal-IP", _internal_ip, priority=1),
)


def _last_seen(event: KubeObject, now_s: float) -> str:
    stamp = _at(event, "series.lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    if not stamp:
        stamp = event["metadata"].get("creationTimestamp")
    return age(stamp, now_s)


def _about(event: KubeObject, _: float) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _said(event: KubeObject, _: float) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


EVENT = (
    Column("Last Seen", _last_seen),
    _text("Type", "type"),
    _text("Reason", "reason"),
    Column("Object", _about),
    Column("Message", _said),
    Column("Name", NAME.cell, format="name", priority=1),
)

LEASE = (NAME, _text("Holder", "spec.holderIdentity"), AGE)

NAMESPACE = (NAME, _text("Status", "status.phase", default="Active"), AGE)


def _count(name: str, *fields: str) -> Column:
    return Column(name, lambda obj, _: sum(len(obj.get(f) or {}) for f in fields), type="integer")


CONFIG_MAP = (NAME, _count("Data", "data", "binaryData"), AGE)
SECRET = (NAME, _text("Type", "type"), _count("Data", "data"), AGE)
SERVICE_ACCOUNT = (NAME, _count("Secrets", "secrets"), AGE)

CLAIM = (
    NAME,
    _text("Status", "status.phase"),
    _text("Volume", "spec.volumeName"),
    _text("Capacity", "status.capacity.storage"),
    Column("Access Modes", lambda obj, _: ",".join(_at(obj, "spec.accessModes", []))),
    _text("StorageClass", "spec.storageClassName"),
    AGE,
)

CUSTOM_RESOURCE_DEFINITION = (
    NAME,
    Column("Created At", lambda obj, _: obj["metadata"].get("creationTimestamp"), "date"),
)
