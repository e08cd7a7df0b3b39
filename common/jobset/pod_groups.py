"""
The Workload and the PodGroups of a JobSet whose spec.scheduling asks for them: names, objects, differences. Pure.

A Workload has a template for each group of Pods, and each template has one PodGroup, which the Pods name. Upstream
computes the size of a gang from the replicatedJobs and writes it nowhere else. Source of names and fields: jobset
pkg/controllers/scheduling.go and workload_builder.go; k8s.io/api scheduling/v1beta1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.form import Entry, Placing, Scheduling
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Keys, OwnedMeta, controller_uid
from inplace.common.kube.codec import slim
from inplace.common.kube.resources import POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject, Resource
from inplace.common.wire import names as wire

NAME_CHARACTERS_MAX: Final = 63  # of both kinds' names and of a template's; all are DNS labels
HASH_CHARACTERS: Final = 10
GROUPS_MAX: Final = 8  # k8s.io/api, WorkloadMaxPodGroupTemplates
_PARTS: Final = ("schedulingPolicy", "schedulingConstraints", "disruptionMode", "resourceClaims", "priorityClassName")
_DROPPED: Final = ("resourceClaims", "schedulingConstraints")  # by a server without their feature gates: null then


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A template of the Workload, and its PodGroup.

    Args:
        template: the template's name, unique in the Workload.
        name: the PodGroup's name.
        members: the replicatedJobs whose Pods are in it.
        job_index: of the one Job in it; None for all Jobs of its members.
        placing: what the spec says about it.
    """

    template: str
    name: str
    members: tuple[ReplicatedJob, ...]
    job_index: int | None
    placing: Placing

    @property
    def pods(self) -> int:
        """Return of how many Pods it consists when all run."""
        counts = [(min(job.parallelism, job.completions), job.replicas) for job in self.members]  # of one Job, and Jobs
        return sum(pods * (jobs if self.job_index is None else 1) for pods, jobs in counts)

    @property
    def size(self) -> int:
        """Return of how many Pods a gang is: of all, unless one Job's group says less; the API takes no 0."""
        policy = self.placing.scheduling_policy
        asked = policy.gang.min_count if self.job_index is not None and policy is not None and policy.gang else None
        return max(1, self.pods if asked is None else asked)

    @property
    def spec(self) -> KubeObject:
        """Return what the template and the PodGroup have in common."""
        said = self.placing
        parts = (
            {"gang": {"minCount": self.size}} if said.is_gang else {"basic": {}},
            said.scheduling_constraints,
            said.disruption_mode,
            said.resource_claims,
            self.members[0].form.priority_class_name,
        )
        return {name: value for name, value in zip(_PARTS, parts, strict=True) if value}

    def has(self, job: ReplicatedJob, index: int) -> bool:
        """Say whether the Pods of a Job are in it."""
        return job in self.members and self.job_index in (None, index)


class _Labels(Keys, frozen=True, gc=False, rename={"jobset": wire.JOBSET_NAME}):
    jobset: str | None = None


class _Meta(OwnedMeta, rename="camel", frozen=True, gc=False):
    labels: _Labels | None = None


class SchedulingObject(msgspec.Struct, frozen=True, gc=False):
    """A Workload or a PodGroup, slim: whose it is, and its spec as it is stored, to compare."""

    metadata: _Meta
    spec: dict[str, Any] = {}

    @property
    def wanted(self) -> tuple[object, ...]:
        """Return what the plan compares; the scheduler's status is no part of it."""
        return self.spec, self.metadata.deletion_timestamp

    @property
    def jobset(self) -> str | None:
        """Return the name of its JobSet."""
        return self.metadata.labels.jobset if self.metadata.labels is not None else None

    @property
    def owner_uid(self) -> str | None:
        """Return the UID of the JobSet that controls it."""
        return controller_uid(self.metadata.owner_references, wire.KIND)


SCHEDULING_CODEC: Final = slim(SchedulingObject)


@dataclass(frozen=True, slots=True)
class SchedulingObjects:
    """What the API server has for one JobSet.

    Args:
        is_known: the server was asked.
        why_none: why it can have none; "" where it serves them.
        stored: the Workloads and PodGroups that the JobSet owns.
    """

    is_known: bool = False
    why_none: str = ""
    stored: Mapping[tuple[Resource, str], SchedulingObject] = field(default_factory=dict)


UNKNOWN: Final = SchedulingObjects()
"""Of a server that was not asked."""


def read_scheduling(jobset: JobSet) -> Scheduling | None:
    """Return what spec.scheduling says; None where it is not set. The form is checked: form.py."""
    spec: Mapping[str, Any] = jobset.raw.get("spec") or {}
    raw = spec.get("scheduling")
    return None if raw is None else msgspec.convert(raw, Scheduling)


def pod_groups(jobset: JobSet) -> tuple[PodGroup, ...]:
    """Return the groups of a JobSet; none without spec.scheduling. A replicatedJob is in the first that targets it."""
    scheduling = read_scheduling(jobset)
    return () if scheduling is None else tuple(_groups(jobset, scheduling))


def _groups(jobset: JobSet, scheduling: Scheduling) -> Iterator[PodGroup]:
    jobs = jobset.replicated_jobs
    if not scheduling.replicated_jobs and not jobset.has_order and jobs:
        template = workload_name(jobset)
        yield PodGroup(template, template, jobs, None, scheduling)
        return
    targeted = set[str]()
    for entry in scheduling.replicated_jobs or ():
        found = [jobset.find_replicated_job(name) for name in entry.target_replicated_jobs]
        members = tuple(job for job in found if job is not None and job.name not in targeted)
        targeted |= {job.name for job in members}
        if members:
            yield from _groups_of(jobset, entry, members)
    for job in jobs:
        if job.name not in targeted:
            template = _hashed(job.name, "ReplicatedJob", jobset, f"{jobset.name}/{job.name}")
            yield PodGroup(template, _group_name(jobset, template), (job,), None, scheduling)


def _groups_of(jobset: JobSet, entry: Entry, members: tuple[ReplicatedJob, ...]) -> Iterator[PodGroup]:
    if entry.job is None:
        joined = "-".join(entry.target_replicated_jobs)
        template = _hashed(joined, "ReplicatedJobGroup", jobset, f"{jobset.name}/{joined}")
        yield PodGroup(template, _group_name(jobset, template), members, None, entry)
        return
    name = members[0].name
    for index in range(min(members[0].replicas, GROUPS_MAX + 1)):  # the server refuses one too many
        template = _hashed(f"{name}-{index}", "Job", jobset, f"{jobset.name}/{name}/{index}")
        yield PodGroup(template, _group_name(jobset, template), members[:1], index, entry.job)


def workload_name(jobset: JobSet) -> str:
    """Return the name of the JobSet's Workload."""
    return _hashed(jobset.name, "JobSet", jobset, jobset.name)


def wanted_objects(jobset: JobSet, groups: Sequence[PodGroup]) -> dict[tuple[Resource, str], KubeObject]:
    """Return the spec of the Workload and of each PodGroup by kind and name, in the order of their creation."""
    owner = {"apiGroup": wire.API_GROUP, "kind": wire.KIND, "name": jobset.name}
    templates = [{"name": group.template, **group.spec} for group in groups]
    workload = workload_name(jobset)
    wanted = {(SCHEDULING_WORKLOADS, workload): {"controllerRef": owner, "podGroupTemplates": templates}}
    for group in groups:
        reference = {"workloadName": workload, "templateName": group.template}
        wanted[POD_GROUPS, group.name] = {"workloadRef": reference, **group.spec}
    return wanted


def is_replaced(stored: KubeObject, wanted: KubeObject) -> bool:
    """Say whether a stored spec differs from the wanted one in more than the size of gangs: only that can change.

    What the server fills in, or drops without a feature gate, is no difference: it would be one for ever.
    """
    if (templates := wanted.get("podGroupTemplates")) is None:
        return any(_differs(name, stored.get(name), wanted.get(name)) for name in {*wanted, *_DROPPED})
    present = stored.get("podGroupTemplates") or []
    return (
        stored.get("controllerRef") != wanted["controllerRef"]
        or [one.get("name") for one in present] != [one["name"] for one in templates]
        or any(is_replaced(old, new) for old, new in zip(present, templates, strict=True))
    )


def resized(stored: KubeObject, wanted: KubeObject) -> KubeObject:
    """Return the merge patch of a spec that gives its gangs their size; empty where they have it."""
    if (templates := wanted.get("podGroupTemplates")) is None:
        policy = wanted["schedulingPolicy"]
        return {} if stored.get("schedulingPolicy") == policy else {"schedulingPolicy": policy}
    present = stored.get("podGroupTemplates") or []
    changed = [old | resized(old, new) for old, new in zip(present, templates, strict=True)]
    return {} if changed == present else {"podGroupTemplates": changed}  # a merge patch replaces a list whole


def _differs(name: str, stored: Any, wanted: Any) -> bool:
    """Say whether a field is another one; of a policy only its kind counts, and a field that was dropped is none."""
    if name == "schedulingPolicy":
        return sorted(stored or ()) != sorted(wanted)
    return bool(stored != wanted) and not (name in _DROPPED and stored is None)


def _hashed(prefix: str, kind: str, jobset: JobSet, identity: str) -> str:
    """Return a name that no object of another kind, or of another JobSet, gets; of a long prefix the start."""
    return _cut(prefix, f"{kind}/{jobset.namespace}/{identity}")


def _group_name(jobset: JobSet, template: str) -> str:
    name = f"{jobset.name}-{template}"
    return name if len(name) <= NAME_CHARACTERS_MAX else _cut(jobset.name, f"{jobset.name}/{template}")


def _cut(prefix: str, identity: str) -> str:
    digest = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:HASH_CHARACTERS]
    return f"{prefix[: NAME_CHARACTERS_MAX - 1 - HASH_CHARACTERS]}-{digest}"
