"""
The rules of Workloads and PodGroups (scheduling.k8s.io/v1beta1), as far as this project relies on them.

Not there: composite groups, the rules of constraints and claims, the priority of a class, and the finalizer that keeps
a PodGroup while it has Pods: here it goes at once. Words of a refusal are shorter than the real server's.
Source: k8s.io/api scheduling/v1beta1; k8s.io/kubernetes pkg/registry/scheduling.
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.status import StatusCause, bad_value, duplicate, repeated, too_many

TEMPLATES_MAX: Final = 8
_FILLED: Final = {"disruptionMode": {"single": {}}, "preemptionPolicy": "PreemptLowerPriority", "priority": 0}
# Their feature gates, TopologyAwareWorkloadScheduling and DRAWorkloadResourceClaims, are off: the first is null then.
_DROPPED: Final = {"schedulingConstraints": None}
_IMMUTABLE: Final = "field is immutable"


class PodGroupStrategy(Strategy):
    """PodGroups: of one policy for ever; only the size of a gang changes."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in what the server and its priority admission do; a new one has no status."""
        return obj | {"spec": _FILLED | _without_gated(obj.get("spec") or {}), "status": {}}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new PodGroup."""
        return _policy_causes(obj["spec"], "spec")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks."""
        yield from _policy_causes(new["spec"], "spec")
        if _fixed(new["spec"]) != _fixed(old["spec"]):
            yield bad_value("spec", "", _IMMUTABLE)


class WorkloadStrategy(Strategy):
    """Workloads: their templates neither come nor go, and change no more than PodGroups do."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in the priorities of the templates, as the server's priority admission does."""
        spec = obj.get("spec") or {}
        filled = {name: value for name, value in _FILLED.items() if name != "disruptionMode"}
        return obj | {"spec": spec | {"podGroupTemplates": [filled | _without_gated(one) for one in _templates(spec)]}}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new Workload."""
        path, templates = "spec.podGroupTemplates", _templates(obj["spec"])
        if not templates:
            yield bad_value(path, "", "must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`")
        if len(templates) > TEMPLATES_MAX:
            yield too_many(path, len(templates), TEMPLATES_MAX)
        names = [str(one.get("name", "")) for one in templates]
        yield from (duplicate(f"{path}[{at}]", name) for at, name in repeated(names))
        for at, template in enumerate(templates):
            yield from _policy_causes(template, f"{path}[{at}]")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks."""
        yield from self.validate_create(new)
        before, after = (_fixed_workload(one["spec"]) for one in (old, new))
        if before != after:
            yield bad_value("spec", "", _IMMUTABLE)


def without_group(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod spec as a server stores it that serves no gangs."""
    return {name: value for name, value in spec.items() if name != "schedulingGroup"}


def _policy_causes(spec: KubeObject, path: str) -> Iterator[StatusCause]:
    policy = spec.get("schedulingPolicy") or {}
    if len(policy) != 1 or not policy.keys() <= {"basic", "gang"}:
        yield bad_value(f"{path}.schedulingPolicy", "", "must specify exactly one of: `basic`, `gang`")
    elif "gang" in policy and (policy["gang"] or {}).get("minCount", 0) < 1:
        size = (policy["gang"] or {}).get("minCount", 0)
        yield bad_value(f"{path}.schedulingPolicy.gang.minCount", size, "must be greater than or equal to 1")


def _without_gated(spec: KubeObject) -> KubeObject:
    return {name: value for name, value in spec.items() if name != "resourceClaims"} | _DROPPED


def _templates(spec: KubeObject) -> list[KubeObject]:
    return spec.get("podGroupTemplates") or []


def _fixed(spec: KubeObject) -> KubeObject:
    """Return what never changes."""
    return spec | {"schedulingPolicy": sorted(spec["schedulingPolicy"])}


def _fixed_workload(spec: KubeObject) -> KubeObject:
    return spec | {"podGroupTemplates": [_fixed(one) for one in _templates(spec)]}
