"""
The rules of Jobs: what the API server fills in for the Job controller, and what an update may change.

Source: k8s.io/kubernetes/pkg/apis/batch/v1/defaults.go, /validation/validation.go, pkg/registry/batch/job/strategy.go.
"""

# ruff: noqa: ARG002 -- every strategy has the same signatures and uses the arguments that it needs

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.int32 import INT32_MAX
from inplace.simulator.apiserver.kinds import Strategy, WriteContext
from inplace.simulator.apiserver.metadata import LABEL_CHARACTERS_MAX
from inplace.simulator.apiserver.pod_failure_policies import pod_failure_policy_causes
from inplace.simulator.apiserver.pods import default_pod_spec, pod_spec_causes
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
LEGACY_CONTROLLER_UID = "controller-uid"
LEGACY_JOB_NAME = "job-name"
BACKOFF_LIMIT = 6

_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_COUNTS = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_SCHEDULING_DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
_REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")


def default_job_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Job spec with the API's defaults."""
    defaulted = dict(spec)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        defaulted["completions"] = 1
    if defaulted.get("parallelism") is None:
        defaulted["parallelism"] = 1
    if defaulted.get("backoffLimit") is None:
        defaulted["backoffLimit"] = INT32_MAX if spec.get("backoffLimitPerIndex") is not None else BACKOFF_LIMIT
    for field, value in (("completionMode", "NonIndexed"), ("suspend", False), ("manualSelector", False)):
        if defaulted.get(field) is None:
            defaulted[field] = value
    if defaulted.get("podReplacementPolicy") is None:
        defaulted["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        defaulted["template"] = template | {"spec": default_pod_spec(template["spec"])}
    return defaulted


def _with_generated_labels(obj: KubeObject, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with the selector and template labels that tie Pods to this Job by its uid."""
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    labels = {CONTROLLER_UID: uid, JOB_NAME: name, LEGACY_CONTROLLER_UID: uid, LEGACY_JOB_NAME: name}
    template = spec.get("template") or {}
    meta = template.get("metadata") or {}
    meta = {"creationTimestamp": None} | meta | {"labels": (meta.get("labels") or {}) | labels}
    spec = spec | {"template": template | {"metadata": meta}}
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": {CONTROLLER_UID: uid}}
    return spec


class JobStrategy(Strategy):
    """Jobs: completions and template are fixed, except for elastic Indexed Jobs and suspended ones."""

    def prepare_create(self, obj: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults, generated labels and an empty status."""
        spec = default_job_spec(obj.get("spec") or {})
        if not spec["manualSelector"]:
            spec = _with_generated_labels(obj, spec)
        return obj | {"spec": spec, "status": {}}

    def prepare_update(self, new: KubeObject, old: KubeObject, context: WriteContext) -> KubeObject:
        """Fill in defaults that the client left out."""
        if new.get("spec") is old.get("spec"):
            return new
        spec = default_job_spec(new.get("spec") or {})
        return new | {"spec": old["spec"] if spec == old["spec"] else spec}

    def validate_create(self, obj: KubeObject) -> Iterable[StatusCause]:
        """Return the broken rules of a new Job."""
        spec = obj["spec"]
        yield from _count_causes(spec)
        if spec["completionMode"] == "Indexed":
            yield from _indexed_causes(obj["metadata"]["name"], spec)
        if spec["podReplacementPolicy"] not in _REPLACEMENT_POLICIES:
            yield not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], _REPLACEMENT_POLICIES)
        template = spec.get("template") or {}
        pod = template.get("spec")
        yield from pod_spec_causes(pod, "spec.template.spec")
        policy = (pod or {}).get("restartPolicy")
        if policy == "Always":
            yield required("spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
        if spec.get("podFailurePolicy") and policy != "Never":
            message = f'Invalid value: "{policy}": only "Never" is supported when podFailurePolicy is specified'
            yield StatusCause("spec.template.spec.restartPolicy", message)
        if spec.get("podFailurePolicy"):
            yield from pod_failure_policy_causes(spec, "spec.podFailurePolicy")
            if spec["podReplacementPolicy"] == "TerminatingOrFailed":
                yield not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], ("Failed",))

    def validate_update(self, new: KubeObject, old: KubeObject) -> Iterable[StatusCause]:
        """Return the rules that an update breaks."""
        if new["spec"] is old["spec"]:
            return
        spec, before = new["spec"], old["spec"]
        yield from _count_causes(spec)
        yield from _completions_causes(spec, before)
        for field in _IMMUTABLE:
            if spec.get(field) != before.get(field):
                yield bad_value(f"spec.{field}", spec.get(field), "field is immutable")
        comparable = before.get("template")
        if _may_reschedule(old):
            comparable = _rescheduled(before["template"], spec.get("template") or {})
        if spec.get("template") != comparable:
            yield bad_value("spec.template", "<template>", "field is immutable")


def _count_causes(spec: dict[str, Any]) -> Iterable[StatusCause]:
    for field in _COUNTS:
        value = spec.get(field)
        if value is not None and (not isinstance(value, int) or value < 0):
            yield bad_value(f"spec.{field}", value, "must be greater than or equal to 0")
    if spec.get("completionMode") not in ("Indexed", "NonIndexed"):
        yield not_supported("spec.completionMode", spec.get("completionMode"), ("Indexed", "NonIndexed"))


def _indexed_causes(name: str, spec: dict[str, Any]) -> Iterable[StatusCause]:
    completions = spec.get("completions")
    if completions is None:
        yield required("spec.completions", "Required value: when completion mode is Indexed")
        return
    # Pod hostnames are <job>-<index>, and a hostname is a DNS label.
    if len(f"{name}-{max(completions - 1, 0)}") > LABEL_CHARACTERS_MAX:
        rule = "will not able to create pod with invalid DNS label"
        yield bad_value("metadata.name", name, f"{rule}: {name}-{max(completions - 1, 0)}")


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
    """Return whether scheduling directives and resources are mutable: suspended and at rest, as 1.36 has it."""
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
