"""A tiny cluster of plain objects that carries out plans as the API server and the Job controller would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from inplace.common.jobset.buckets import Bucket, bucket_of
from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.jobset.kinds import Job, PersistentVolumeClaim, Pod
from inplace.common.jobset.notices import GroupNotice
from inplace.common.jobset.pod_groups import SchedulingObject, SchedulingObjects
from inplace.common.jobset.rules import Matches
from inplace.common.jobset.scopes import WHOLE
from inplace.common.jobset.service import Service
from inplace.common.kube.resources import KubeObject, Resource
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import (
    CreateClaim,
    CreateJob,
    CreateSchedulingObject,
    CreateService,
    DeleteJob,
    DeleteJobSet,
    DeleteSchedulingObject,
    LiftGate,
    Plan,
    ReplacePod,
    ResizeJob,
    ResizeSchedulingObject,
    ResumeJob,
    SuspendJob,
    UpdateService,
)
from inplace.controller.plan.observed import Observed
from inplace.controller.plan.resume import execution_annotation, template_patch
from inplace.controller.plan.steps import plan
from inplace.simulator.apiserver.merge_patch import merge_patch
from tests.controller.manifests import jobset
from tests.controller.objects import with_identity

NOW = "2026-01-01T00:00:00Z"


@dataclass
class PlannerWorld:
    """One JobSet and its Jobs."""

    manifest: KubeObject
    jobs: dict[str, KubeObject] = field(default_factory=dict)
    service: KubeObject | None = None
    decision: Decision | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)  # by scope
    claims: dict[str, KubeObject] = field(default_factory=dict)
    pods: dict[str, list[KubeObject]] = field(default_factory=dict)
    domains: dict[tuple[str, str], str] = field(default_factory=dict)
    asked_domains: dict[str, str] = field(default_factory=dict)
    notices: tuple[GroupNotice, ...] = ()
    groups: dict[tuple[Resource, str], KubeObject] = field(default_factory=dict)  # Workloads and PodGroups
    serves_groups: bool | None = True  # None: it was not asked yet
    now: str = NOW
    is_deleted: bool = False
    deleted: list[str] = field(default_factory=list)
    _uid: int = 0

    def __post_init__(self) -> None:
        """Set the server's fields of the JobSet."""
        self.manifest["metadata"] |= {"uid": "js-uid", "resourceVersion": "1"}

    @property
    def jobset(self) -> JobSet:
        """Return the JobSet, parsed."""
        return parse_jobset(self.manifest)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.manifest.setdefault("status", {})
        return status

    def observed(self) -> Observed:
        """Return the planner's input."""
        jobs = {name: msgspec.convert(job, Job) for name, job in self.jobs.items()}
        claims = {name: msgspec.convert(claim, PersistentVolumeClaim) for name, claim in self.claims.items()}
        pods = {name: [msgspec.convert(pod, Pod) for pod in some] for name, some in self.pods.items()}
        jobset = self.jobset
        failed = [job for job in jobs.values() if bucket_of(jobset, job) is Bucket.FAILED]
        return Observed(
            jobset,
            self.now,
            jobs,
            msgspec.convert(self.service, Service) if self.service is not None else None,
            claims,
            self._decisions(),
            pods=pods,
            domains=self.domains,
            asked_domains=self.asked_domains,
            matches=Matches().look(jobset, failed, lambda: 0.0),
            notices=self.notices,
            scheduling_objects=SchedulingObjects(
                self.serves_groups is not None,
                "no such kind" if self.serves_groups is False else "",
                {key: msgspec.convert(stored, SchedulingObject) for key, stored in self.groups.items()},
            ),
        )

    def _decisions(self) -> dict[str, Decision]:
        """Return each ledger's decision; for a JobSet of one scope, `decision`."""
        return self.decisions or ({WHOLE: self.decision} if self.decision is not None else {})

    def plan(self) -> Plan:
        """Plan one pass."""
        return plan(self.observed())

    def carry_out(self, planned: Plan, *, instant_deletes: bool = True) -> None:
        """Carry out a plan."""
        self.manifest["status"] = {k: v for k, v in {**self.status, **planned.status}.items() if v is not None}
        for action in planned.actions:
            match action:
                case CreateJob(manifest):
                    self._create(manifest)
                case DeleteJob(name, uid, _):
                    assert self.jobs[name]["metadata"]["uid"] == uid
                    self.deleted.append(name)
                    if instant_deletes:
                        del self.jobs[name]
                        self.pods.pop(name, None)
                    else:
                        self.jobs[name]["metadata"]["deletionTimestamp"] = NOW
                case LiftGate(lifted, selector):
                    for pod in chain.from_iterable(self.pods.values()):
                        if pod["metadata"]["uid"] == lifted.metadata.uid:
                            gates = pod["spec"]["schedulingGates"]
                            kept = [gate for gate in gates if gate["name"] != wire.PLACEMENT_GATE]
                            pod["spec"] |= {"schedulingGates": kept, "nodeSelector": dict(selector)}
                case ReplacePod(ended):
                    for pod in chain.from_iterable(self.pods.values()):
                        if pod["metadata"]["uid"] == ended.metadata.uid:
                            pod["spec"]["activeDeadlineSeconds"] = 1
                case ResizeJob(name, _, pods):
                    self.jobs[name]["spec"] |= {"parallelism": pods, "completions": pods}
                case SuspendJob(name, _):
                    self.jobs[name]["spec"]["suspend"] = True
                case ResumeJob(name=name, place=place):
                    manifest = place.manifest
                    spec = self.jobs[name]["spec"]
                    spec["suspend"] = False
                    template = manifest["spec"]["template"]
                    spec["template"] = merge_patch(spec["template"], template_patch(spec["template"], template))
                    self.jobs[name]["metadata"]["annotations"] |= execution_annotation(manifest)
                case CreateService(manifest):
                    assert self.service is None
                    self.service = with_identity(manifest)
                case UpdateService(service, ports):
                    assert self.service is not None
                    assert service.owner_uid == self.jobset.uid
                    self.service["spec"]["ports"] = list(ports)
                case CreateClaim(manifest):
                    self._uid += 1
                    name = manifest["metadata"]["name"]
                    metadata = manifest["metadata"] | {"uid": f"claim-{self._uid}", "resourceVersion": str(self._uid)}
                    self.claims[name] = manifest | {"metadata": metadata}
                case CreateSchedulingObject(resource, manifest):
                    self._uid += 1
                    identity = {"uid": f"group-{self._uid}", "resourceVersion": str(self._uid)}
                    stored = manifest | {"metadata": manifest["metadata"] | identity}
                    assert (resource, manifest["metadata"]["name"]) not in self.groups
                    self.groups[resource, manifest["metadata"]["name"]] = stored
                case ResizeSchedulingObject(resource, name, _, spec):
                    self.groups[resource, name]["spec"] = merge_patch(self.groups[resource, name]["spec"], spec)
                case DeleteSchedulingObject(resource, name, uid):
                    assert self.groups[resource, name]["metadata"]["uid"] == uid
                    if instant_deletes:
                        del self.groups[resource, name]
                    else:
                        self.groups[resource, name]["metadata"]["deletionTimestamp"] = NOW
                case DeleteJobSet(uid):
                    assert uid == self.jobset.uid
                    self.is_deleted = True
                    self.manifest["metadata"]["deletionTimestamp"] = NOW

    def settle(self, *, passes_max: int = 10) -> int:
        """Plan and carry out until a plan is empty; return the number of passes before it."""
        for number in range(passes_max):
            planned = self.plan()
            if not planned.status and not planned.actions:
                return number
            self.carry_out(planned)
        raise AssertionError(f"not settled after {passes_max} passes: {self.plan()!r}")

    def set_job(
        self,
        name: str,
        condition: str | None = None,
        *,
        reason: str = "",
        message: str = "",
        at: str = NOW,
        **status: Any,
    ) -> None:
        """Set a Job's status, with a True condition if named."""
        self.jobs[name]["status"] = dict(status)
        if condition is not None:
            entry = {
                "type": condition,
                "status": "True",
                "reason": reason,
                "lastTransitionTime": at,
                "message": message,
            }
            self.jobs[name]["status"]["conditions"] = [entry]

    def settle_job(self, name: str, condition: str | None = None, **status: Any) -> None:
        """Set a Job's status, see `set_job`, and settle."""
        self.set_job(name, condition, **status)
        self.settle()

    def find_condition(self, kind: str) -> Mapping[str, Any] | None:
        """Return a condition of the JobSet; None where it has none of this type."""
        return next((found for found in self.status.get("conditions") or () if found["type"] == kind), None)

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition that the JobSet must have."""
        found = self.find_condition(kind)
        assert found is not None, f"expected a condition {kind}, saw {self.status.get('conditions')}"
        return found

    def _create(self, manifest: KubeObject) -> None:
        name = manifest["metadata"]["name"]
        assert name not in self.jobs, f"{name} exists"
        self._uid += 1
        metadata = manifest["metadata"] | {"uid": f"job-{self._uid}", "resourceVersion": str(self._uid)}
        self.jobs[name] = manifest | {"metadata": metadata}


def settled(manifest: KubeObject, **parts: Any) -> PlannerWorld:
    """Return the world of a JobSet in which nothing is left to do."""
    world = PlannerWorld(manifest, **parts)
    world.settle()
    return world


def settled_world(**spec: Any) -> PlannerWorld:
    """Return a world whose JobSet recreates its Jobs and has them all."""
    return settled(jobset(**({"strategy": "Recreate"} | spec)))
