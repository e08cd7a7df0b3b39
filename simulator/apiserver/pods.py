"""
The rules of Pods: defaults, restart rules, what an update may change.

Source: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go and /validation/validation.go (1.36).
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.metadata import is_dns_label
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required

RESTART_RULES_MAX = 20
EXIT_CODES_MAX = 255
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")

_POD_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RULE_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
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


def default_pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod spec (of a Pod or of a template) with the API's defaults."""
    defaulted = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    } | spec
    for field in CONTAINER_LISTS:
        if isinstance(spec.get(field), list):
            defaulted[field] = [_default_container(container) for container in spec[field]]
    if "serviceAccountName" in spec:
        defaulted["serviceAccount"] = spec["serviceAccountName"]
    return defaulted


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2]
    latest = ("@" not in tag and ":" not in tag) or tag.endswith(":latest")
    defaulted: dict[str, Any] = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        "resources": {},
    } | container
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            defaulted[probe] = _default_probe(container[probe])
    if isinstance(container.get("ports"), list):
        defaulted["ports"] = [{"protocol": "TCP"} | port for port in container["ports"]]
    if isinstance(container.get("env"), list):
        defaulted["env"] = [_default_env(variable) for variable in container["env"]]
    return defaulted


def _default_probe(probe: dict[str, Any]) -> dict[str, Any]:
    defaulted = {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    } | probe
    if isinstance(probe.get("httpGet"), dict):
        defaulted["httpGet"] = {"path": "/", "scheme": "HTTP"} | probe["httpGet"]
    return defaulted


def _default_env(variable: dict[str, Any]) -> dict[str, Any]:
    field_ref = (variable.get("valueFrom") or {}).get("fieldRef")
    if not isinstance(field_ref, dict):
        return variable
    return variable | {"valueFrom": variable["valueFrom"] | {"fieldRef": {"apiVersion": "v1"} | field_ref}}


def pod_spec_causes(spec: Any, path: str) -> Iterable[StatusCause]:
    """Return the rules that a Pod spec breaks."""
    if not isinstance(spec, dict) or not spec.get("containers"):
        yield required(f"{path}.containers")
        return
    policy = spec.get("restartPolicy")
    if policy not in _POD_RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _POD_RESTART_POLICIES)
    names: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            yield from _container_causes(container, here, names, volumes, init=field == "initContainers")


def _container_causes(
    container: dict[str, Any], path: str, names: set[str], volumes: set[Any], *, init: bool
) -> Iterable[StatusCause]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif not is_dns_label(name):
        yield bad_value(
            f"{path}.name",
            name,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters",
        )
    elif name in names:
        yield StatusCause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
    names.add(name or "")
    if not container.get("image"):
        yield required(f"{path}.image")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            yield StatusCause(f"{path}.volumeMounts[{index}].name", message, "FieldValueNotFound")
    yield from _restart_causes(container, path)
    sidecar = init and container.get("restartPolicy") == "Always"
    if init and not sidecar:
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(probe):
                message = "Forbidden: may not be set for init containers without restartPolicy=Always"
                yield StatusCause(f"{path}.{probe}", message, "FieldValueForbidden")


def _restart_causes(container: dict[str, Any], path: str) -> Iterable[StatusCause]:
    """Return the broken rules of KEP-5307 (container restart rules) and KEP-5532 (RestartAllContainers)."""
    policy = container.get("restartPolicy")
    if policy is not None and policy not in _POD_RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _POD_RESTART_POLICIES)
    rules = container.get("restartPolicyRules")
    if not rules:
        return
    if policy is None:
        yield required(
            f"{path}.restartPolicy",
            "Required value: must specify restartPolicy when restart rules are used",
        )
    if len(rules) > RESTART_RULES_MAX:
        message = f"Too many: {len(rules)}: must have at most {RESTART_RULES_MAX} items"
        yield StatusCause(f"{path}.restartPolicyRules", message, "FieldValueTooMany")
    for index, rule in enumerate(rules):
        yield from _rule_causes(rule, f"{path}.restartPolicyRules[{index}]")


def _rule_causes(rule: dict[str, Any], path: str) -> Iterable[StatusCause]:
    if rule.get("action") not in _RULE_ACTIONS:
        yield not_supported(f"{path}.action", rule.get("action", ""), _RULE_ACTIONS)
    codes = rule.get("exitCodes")
    if codes is None:
        yield required(f"{path}.exitCodes", "Required value: must be specified")
        return
    if codes.get("operator") not in _OPERATORS:
        yield not_supported(f"{path}.exitCodes.operator", codes.get("operator", ""), _OPERATORS)
    if len(codes.get("values") or ()) > EXIT_CODES_MAX:
        message = f"Too many: {len(codes['values'])}: must have at most {EXIT_CODES_MAX} items"
        yield StatusCause(f"{path}.exitCodes.values", message, "FieldValueTooMany")


class PodStrategy(Strategy):
    """Pods: created Pending; afterwards the spec is all but fixed."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults and the initial status."""
        given = default_pod_spec(obj.get("spec") or {})
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
        return pod_spec_causes(obj["spec"], "spec")

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults that the client left out."""
        if new.get("spec") is old.get("spec"):
            return new
        spec = default_pod_spec(new.get("spec") or {})
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
