"""
The rules of Pods: defaults, and what an update may change. What a spec may say is in pod_validation.py.

Source: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go and /validation/validation.go (1.37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.decoding import decoded
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.pod_annotations import annotation_causes
from inplace.simulator.apiserver.pod_groups import without_group
from inplace.simulator.apiserver.pod_validation import TEMPLATES_MAX, pod_spec_causes
from inplace.simulator.apiserver.status import StatusCause
from inplace.simulator.apiserver.store import CollectionKey, Store

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")

_SPEC_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER_DEFAULTS = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_HTTP_DEFAULTS = {"path": "/", "scheme": "HTTP"}
_TCP = {"protocol": "TCP"}
_MUTABLE = frozenset(("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"))
_MUTABLE_WHILE_GATED = frozenset(("nodeSelector", "affinity"))
_UPDATE_FORBIDDEN = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_UNREACHABLE_S = 300
_DEFAULT_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _UNREACHABLE_S,
    }
    for key in ("not-ready", "unreachable")
]


def ready_pod_spec(spec: Any, path: str, kind: str, *, strict: bool) -> dict[str, Any]:
    """Return a client's Pod spec (of a Pod or of a template) decoded and with the API's defaults.

    What the Pods of one template share is made once.

    Raises:
        StatusError: 400, it cannot be decoded.
    """
    if not isinstance(spec, dict) or not isinstance(hostname := spec.get("hostname", ""), str):
        return decoded(spec, "PodSpec", path, kind, strict=strict)  # type: ignore[no-any-return]  # which raises
    shared = {name: value for name, value in spec.items() if name != "hostname"}
    ready = _ready(msgspec.json.encode(shared), path, kind, strict)
    return ready | {"hostname": hostname} if hostname else ready


@lru_cache(maxsize=TEMPLATES_MAX)
def _ready(encoded: bytes, path: str, kind: str, strict: bool) -> dict[str, Any]:
    spec = decoded(msgspec.json.decode(encoded), "PodSpec", path, kind, strict=strict)
    return default_pod_spec(spec)


def default_pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a decoded Pod spec with the API's defaults; an empty text counts as absent."""
    defaulted = spec | {field: value for field, value in _SPEC_DEFAULTS.items() if not spec.get(field)}
    if spec.get("terminationGracePeriodSeconds") is None:
        defaulted["terminationGracePeriodSeconds"] = 30
    for field in CONTAINER_LISTS:
        if field in spec:
            defaulted[field] = [_default_container(container) for container in spec[field]]
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):  # the second is its old name
        defaulted |= {"serviceAccountName": account, "serviceAccount": account}
    return defaulted


def _default_container(container: dict[str, Any]) -> dict[str, Any]:
    tag = container.get("image", "").rpartition("/")[2]
    latest = ("@" not in tag and ":" not in tag) or tag.endswith(":latest")
    defaults = _CONTAINER_DEFAULTS | {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    defaulted = {"resources": {}} | container | {k: v for k, v in defaults.items() if not container.get(k)}
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            defaulted[probe] = _default_probe(container[probe])
    if "ports" in container:
        defaulted["ports"] = [port | ({} if port.get("protocol") else _TCP) for port in container["ports"]]
    if "env" in container:
        defaulted["env"] = [_default_env(variable) for variable in container["env"]]
    return defaulted


def _default_probe(probe: dict[str, Any]) -> dict[str, Any]:
    defaulted = probe | {field: value for field, value in _PROBE_DEFAULTS.items() if not probe.get(field)}
    if "httpGet" in probe:
        asked = probe["httpGet"]
        defaulted["httpGet"] = asked | {field: value for field, value in _HTTP_DEFAULTS.items() if not asked.get(field)}
    return defaulted


def _default_env(variable: dict[str, Any]) -> dict[str, Any]:
    field_ref = (variable.get("valueFrom") or {}).get("fieldRef")
    if field_ref is None or field_ref.get("apiVersion"):
        return variable
    return variable | {"valueFrom": variable["valueFrom"] | {"fieldRef": {"apiVersion": "v1"} | field_ref}}


class PodStrategy(Strategy):
    """Pods: created Pending; afterwards the spec is all but fixed."""

    def __init__(self, *, serves_gangs: bool = False) -> None:
        self._kept: Callable[[dict[str, Any]], dict[str, Any]] = dict if serves_gangs else without_group

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults and the initial status."""
        given = self._kept(ready_pod_spec(obj.get("spec") or {}, "spec", "Pod", strict=context.strict))
        spec: dict[str, Any] = {
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
        } | given
        tolerations = spec.get("tolerations") or []
        keys = {toleration.get("key") for toleration in tolerations}
        missing = [toleration for toleration in _DEFAULT_TOLERATIONS if toleration["key"] not in keys]
        spec["tolerations"] = [*tolerations, *missing]
        return obj | {"spec": spec, "status": {"phase": "Pending", "qosClass": _qos_class(spec)}}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new Pod."""
        yield from annotation_causes(obj["metadata"].get("annotations"), obj["spec"], "metadata.annotations", "spec")
        yield from pod_spec_causes(obj["spec"], "spec", of_pod=True)

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults that the client left out."""
        if new.get("spec") is old.get("spec"):
            return new
        spec = self._kept(ready_pod_spec(new.get("spec") or {}, "spec", "Pod", strict=context.strict))
        for field in ("enableServiceLinks", "preemptionPolicy", "priority", "tolerations", "nodeName"):
            if field in old["spec"] and field not in spec:
                spec[field] = old["spec"][field]
        return new | {"spec": old["spec"] if spec == old["spec"] else spec}

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks; most of a Pod never changes."""
        if new["spec"] is old["spec"]:
            return
        allowed = _MUTABLE | (_MUTABLE_WHILE_GATED if old["spec"].get("schedulingGates") else frozenset())
        if _fixed(new["spec"], allowed) != _fixed(old["spec"], allowed):
            yield StatusCause("spec", _UPDATE_FORBIDDEN, "FieldValueForbidden")
        yield from _gate_causes(new["spec"], old["spec"])
        if any(
            toleration not in (new["spec"].get("tolerations") or ())
            for toleration in old["spec"].get("tolerations") or ()
        ):
            message = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
            yield StatusCause("spec.tolerations", message, "FieldValueForbidden")


def _gate_causes(new: dict[str, Any], old: dict[str, Any]) -> Iterable[StatusCause]:
    before = {gate["name"] for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate["name"] not in before:
            message = "Forbidden: only deletion is allowed, but found new scheduling gate"
            yield StatusCause(
                f"spec.schedulingGates[{index}].name", f"{message} '{gate['name']}'", "FieldValueForbidden"
            )


def _fixed(spec: dict[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    """Return the part of a spec that must not change: images and some fields are left out."""
    fixed = {key: value for key, value in spec.items() if key not in allowed and value not in ({}, [])}
    for field in CONTAINER_LISTS:
        if field in fixed:
            fixed[field] = [{k: v for k, v in container.items() if k != "image"} for container in fixed[field]]
    return fixed


def _qos_class(spec: dict[str, Any]) -> str:
    resources = [
        c.get("resources") or {} for f in CONTAINER_LISTS[:2] for c in spec.get(f) or () if isinstance(c, dict)
    ]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= (r.get("limits") or {}).keys() and (r.get("requests") or r["limits"]) == r["limits"]
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


_CLASSES: Final[CollectionKey] = ("scheduling.k8s.io", "priorityclasses")
_BUILTIN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def with_priority(store: Store, pod: KubeObject) -> KubeObject:
    """Return the Pod with the priority of its PriorityClass; no class is the default of all Pods here.

    Raises:
        StatusError: there is no such class.

    Source: k8s.io/kubernetes plugin/pkg/admission/priority.
    """
    name, meta = pod["spec"].get("priorityClassName"), pod["metadata"]
    if not name:
        return pod
    found = store.get(_CLASSES, "", name) or ({"value": _BUILTIN[name]} if name in _BUILTIN else None)
    if found is None:
        raise status.forbidden(f'pods "{meta["name"]}" is forbidden: no PriorityClass with name {name} was found')
    policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
    return pod | {"spec": pod["spec"] | {"priority": int(found["value"]), "preemptionPolicy": policy}}
