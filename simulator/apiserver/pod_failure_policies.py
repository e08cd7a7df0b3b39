"""
The rules of a Job's podFailurePolicy.

Source: k8s.io/kubernetes/pkg/apis/batch/validation/validation.go, validatePodFailurePolicy (1.37).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inplace.simulator.apiserver.formats import label_key
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required, too_many

RULES_MAX = 20
VALUES_MAX = 255
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")


def pod_failure_policy_causes(spec: dict[str, Any], path: str) -> Iterable[StatusCause]:
    """Return the rules that the podFailurePolicy of a Job's spec breaks."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    if len(rules) > RULES_MAX:
        yield too_many(f"{path}.rules", len(rules), RULES_MAX)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name") for kind in ("containers", "initContainers") for one in pod.get(kind) or ()}
    for index, rule in enumerate(rules):
        yield from _rule_causes(spec, rule, f"{path}.rules[{index}]", names)


def _rule_causes(spec: dict[str, Any], rule: dict[str, Any], path: str, names: set[Any]) -> Iterable[StatusCause]:
    action, codes = rule.get("action"), rule.get("onExitCodes")
    if not action:
        yield required(f"{path}.action")
    elif action not in _ACTIONS:
        yield not_supported(f"{path}.action", action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield bad_value(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    if codes is not None:
        yield from _code_causes(codes, f"{path}.onExitCodes", names)
    conditions = rule.get("onPodConditions") or []
    if len(conditions) > RULES_MAX:
        yield too_many(f"{path}.onPodConditions", len(conditions), RULES_MAX)
    for index, pattern in enumerate(conditions):
        here, kind, status = f"{path}.onPodConditions[{index}]", pattern.get("type") or "", pattern.get("status")
        yield from (bad_value(f"{here}.type", kind, why) for why in label_key(kind))
        if status and status not in _STATUSES:
            yield not_supported(f"{here}.status", status, _STATUSES)
    if (codes is None) == (not conditions):
        words = "is required" if codes is None else "is not supported"
        which = "one of" if codes is None else "both"
        yield StatusCause(path, f"Invalid value: specifying {which} OnExitCodes and OnPodConditions {words}")


def _code_causes(codes: dict[str, Any], path: str, names: set[Any]) -> Iterable[StatusCause]:
    operator, container, values = codes.get("operator"), codes.get("containerName"), codes.get("values") or []
    if not operator:
        yield required(f"{path}.operator")
    elif operator not in _OPERATORS:
        yield not_supported(f"{path}.operator", operator, _OPERATORS)
    if container is not None and container not in names:
        rule = "must be one of the container or initContainer names in the pod template"
        yield bad_value(f"{path}.containerName", container, rule)
    if not values:
        yield bad_value(f"{path}.values", values, "at least one value is required")
    elif len(values) > VALUES_MAX:
        yield too_many(f"{path}.values", len(values), VALUES_MAX)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield bad_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield StatusCause(f"{path}.values[{index}]", f"Duplicate value: {value}", "FieldValueDuplicate")
    if values != sorted(values):
        yield bad_value(f"{path}.values", values, "must be ordered")
