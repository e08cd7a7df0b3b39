"""
The rules of Jobs: what the API server fills in for the Job controller, and what an update may change.

Source: k8s.io/kubernetes/pkg/apis/batch/v1/defaults.go, /validation/validation.go, pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.simulator.apiserver.decoding import decoded
from inplace.simulator.apiserver.job_validation import count_causes, name_causes, selector_causes, spec_causes
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.metadata import map_causes
from inplace.simulator.apiserver.pod_annotations import annotation_causes
from inplace.simulator.apiserver.pod_failure_policies import pod_failure_policy_causes
from inplace.simulator.apiserver.pod_groups import without_group
from inplace.simulator.apiserver.pod_validation import pod_spec_causes
from inplace.simulator.apiserver.pods import default_pod_spec, ready_pod_spec
from inplace.simulator.apiserver.status import StatusCause, bad_value, required

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
LEGACY_CONTROLLER_UID = "controller-uid"
LEGACY_JOB_NAME = "job-name"
BACKOFF_LIMIT = 6

_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_SCHEDULING_DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def default_job_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Job spec with the API's defaults."""
    is_single = spec.get("completions") is None and spec.get("parallelism") is None
    defaults = ({"completions": 1} if is_single else {}) | {
        "parallelism": 1,
        "backoffLimit": BACKOFF_LIMIT if spec.get("backoffLimitPerIndex") is None else INT32_MAX,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed",
    }
    return spec | {field: value for field, value in defaults.items() if spec.get(field) is None}


def _ready_job_spec(spec: Any, *, strict: bool) -> dict[str, Any]:
    """Return a client's spec decoded and with defaults."""
    pod = None
    if isinstance(spec, dict) and isinstance(template := spec.get("template"), dict):
        given = {} if template.get("spec") is None else template["spec"]
        pod = ready_pod_spec(given, "spec.template.spec", "Job", strict=strict)
        spec = spec | {"template": template | {"spec": {}}}  # decoded above
    ready = default_job_spec(decoded(spec, "JobSpec", "spec", "Job", strict=strict))
    return ready | {"template": ready.get("template", {}) | {"spec": pod or default_pod_spec({})}}


def _generated_labels(obj: KubeObject) -> dict[str, str]:
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    return {CONTROLLER_UID: uid, JOB_NAME: name, LEGACY_CONTROLLER_UID: uid, LEGACY_JOB_NAME: name}


def _with_generated_labels(obj: KubeObject, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with the selector and template labels that tie Pods to this Job by its uid.

    A client's own labels and selector stay, and are refused where they say something else.
    """
    template, selector = spec["template"], spec.get("selector") or {}
    meta = template.get("metadata") or {}
    meta = meta | {"labels": _generated_labels(obj) | (meta.get("labels") or {})}
    chosen = {CONTROLLER_UID: obj["metadata"]["uid"]} | (selector.get("matchLabels") or {})
    return spec | {"template": template | {"metadata": meta}, "selector": selector | {"matchLabels": chosen}}


class JobStrategy(Strategy):
    """Jobs: completions and template are fixed, except for elastic Indexed Jobs and suspended ones."""

    def __init__(self, *, serves_gangs: bool = False) -> None:
        self._serves_gangs = serves_gangs

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults, generated labels and an empty status."""
        spec = self._ready(obj, strict=context.strict)
        if not spec["manualSelector"]:
            spec = _with_generated_labels(obj, spec)
        return obj | {"spec": spec, "status": {}}

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults that the client left out."""
        if new.get("spec") is old.get("spec"):
            return new
        spec = self._ready(new, strict=context.strict)
        return new | {"spec": old["spec"] if spec == old["spec"] else spec}

    def _ready(self, obj: KubeObject, *, strict: bool) -> dict[str, Any]:
        spec = _ready_job_spec(obj.get("spec") or {}, strict=strict)
        if self._serves_gangs or "schedulingGroup" not in spec["template"]["spec"]:
            return spec
        return spec | {"template": spec["template"] | {"spec": without_group(spec["template"]["spec"])}}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new Job."""
        spec = obj["spec"]
        yield from count_causes(spec)
        yield from name_causes(obj["metadata"]["name"], spec)
        yield from spec_causes(spec)
        yield from selector_causes(spec, _generated_labels(obj))
        template, where = spec["template"], "spec.template"
        meta = template.get("metadata") or {}
        yield from map_causes(meta, where)
        found = annotation_causes(meta.get("annotations"), template["spec"], f"{where}.annotations", f"{where}.spec")
        yield from found
        yield from pod_spec_causes(template["spec"], f"{where}.spec")
        policy = template["spec"]["restartPolicy"]
        if policy == "Always":
            yield required("spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
        if spec.get("podFailurePolicy") is not None:
            if policy == "OnFailure":
                why = 'only "Never" is supported when podFailurePolicy is specified'
                yield bad_value("spec.template.spec.restartPolicy", policy, why)
            yield from pod_failure_policy_causes(spec, "spec.podFailurePolicy")

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks."""
        if new["spec"] is old["spec"]:
            return
        spec, before = new["spec"], old["spec"]
        yield from count_causes(spec)
        yield from name_causes(new["metadata"]["name"], spec)
        yield from _completions_causes(spec, before)
        for field in _IMMUTABLE:
            if spec.get(field) != before.get(field):
                yield bad_value(f"spec.{field}", spec.get(field), "field is immutable")
        comparable = before.get("template")
        if _may_reschedule(old):
            comparable = _rescheduled(before["template"], spec.get("template") or {})
        if spec.get("template") != comparable:
            yield bad_value("spec.template", "<template>", "field is immutable")


def _completions_causes(spec: dict[str, Any], before: dict[str, Any]) -> Iterable[StatusCause]:
    """Allow completions to change only for Indexed Jobs, together with and equal to parallelism (KEP-3715)."""
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    if completions == before.get("completions"):
        return
    if before.get("completionMode") != "Indexed" or completions is None:
        yield bad_value("spec.completions", completions, "field is immutable")
    elif parallelism == before.get("parallelism") or completions != parallelism:
        rule = f"can only be modified in tandem with {'spec.parallelism'}"
        yield bad_value("spec.completions", completions, rule)


def _may_reschedule(job: KubeObject) -> bool:
    """Return whether scheduling directives and resources are mutable: suspended and at rest, as 1.37 has it."""
    status = job.get("status") or {}
    if not job["spec"].get("suspend") or status.get("active"):
        return False
    if status.get("startTime") is None:
        return True
    return any(c.get("type") == "Suspended" and c.get("status") == "True" for c in status.get("conditions") or ())


def _rescheduled(template: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the old template with the new one's scheduling directives, resources, labels and annotations."""
    pod = dict(template.get("spec") or {})
    for field in ("containers", "initContainers"):
        if field in pod:
            pod[field] = _resized(pod[field], (wanted.get("spec") or {}).get(field) or [])
    for field in _SCHEDULING_DIRECTIVES:
        pod.pop(field, None)
        if field in (wanted.get("spec") or {}):
            pod[field] = wanted["spec"][field]
    meta = dict(template.get("metadata") or {})
    for field in ("labels", "annotations"):
        meta.pop(field, None)
        if field in (wanted.get("metadata") or {}):
            meta[field] = wanted["metadata"][field]
    return template | {"spec": pod, "metadata": meta}


def _resized(containers: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the old containers with the resources of the new ones of the same place and name (KEP-5440)."""
    if len(containers) != len(wanted):
        return containers
    return [
        {name: value for name, value in old.items() if name != "resources"}
        | ({"resources": new["resources"]} if "resources" in new else {})
        if old.get("name") == new.get("name")
        else old
        for old, new in zip(containers, wanted, strict=True)
    ]
