"""
A JobSet as the planner reads it: parsed once per version, with facts that follow from spec and status together.

The CRD has validated the types. A value that our CRD would refuse (but upstream's CRD or another version accepts)
raises RemoteProtocolError, which affects this JobSet only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from inplace.common.jobset import conditions
from inplace.common.jobset.bad_nodes import BadNodes, bad_nodes_of, suspects_of
from inplace.common.jobset.escalation import FAIL, Escalation, Use, escalation_of, use_of_restart, uses_of
from inplace.common.jobset.fields import (
    Claim,
    Coordinator,
    FailurePolicy,
    Network,
    ReplicatedJob,
    SuccessPolicy,
    oversize,
    read_claims,
    read_coordinator,
    read_failure_policy,
    read_network,
    read_replicated_job,
    read_success_policy,
)
from inplace.common.jobset.form import check_form, in_words
from inplace.common.jobset.marked_nodes import leaves_marked_nodes
from inplace.common.jobset.members import MemberPolicy, MemberRequests, everyone, units_of
from inplace.common.jobset.places import Numbers, Places
from inplace.common.jobset.requests import BarrierDeadline, RestartRequest, deadline_of, fence_after_s, read_request
from inplace.common.jobset.scopes import BY_GROUP, BY_JOBSET, BY_REPLICATED_JOB, WHOLE, Scope, read_scopes
from inplace.common.jobset.stored import as_value
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.slot import Shape
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of

COMPLETE = "Complete"  # of dependsOn[].status
COUNTERS = "replicatedJobsStatus"
COUNTERS_HOLD_S = 0.2  # Jobs change in bursts; one status write for a burst


@dataclass(frozen=True)
class JobSet:
    """One version of a JobSet.

    Args:
        raw: the object as `common.jobset.stored` keeps it.
    """

    raw: KubeObject
    namespace: str
    name: str
    uid: str
    replicated_jobs: tuple[ReplicatedJob, ...]
    failure_policy: FailurePolicy | None
    success_policy: SuccessPolicy
    network: Network
    suspended: bool
    starts_in_order: bool
    managed_by: str | None
    coordinator: Coordinator | None
    ttl_s: int | None
    claims: tuple[Claim, ...]
    status: Mapping[str, Any]

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self.raw["metadata"]
        return metadata

    @property
    def resource_version(self) -> str:
        return str(self.metadata["resourceVersion"])

    @property
    def generation(self) -> int | None:
        """Return the generation: which version of the spec this is; None where they are not counted."""
        value = self.metadata.get("generation")
        return int(value) if value is not None else None

    @cached_property
    def is_leaving(self) -> bool:
        """Say whether the JobSet is being deleted; the garbage collector does the rest."""
        return "deletionTimestamp" in self.metadata

    @property
    def is_ours(self) -> bool:
        """Say whether this controller manages the JobSet (spec.managedBy)."""
        return self.managed_by in (None, wire.MANAGED_BY_BUILT_IN, wire.MANAGED_BY_US)

    @property
    def is_in_place(self) -> bool:
        """Say whether groups restart in place."""
        return self.failure_policy is not None and self.failure_policy.strategy == wire.IN_PLACE_RESTART

    @cached_property
    def oversize(self) -> tuple[str, ...]:
        """Return why this JobSet is too large; then nothing is done for it, and nothing of it is counted."""
        return tuple(oversize(self.replicated_jobs, in_place=self.is_in_place))

    @cached_property
    def is_placed_exclusively(self) -> bool:
        """Say whether the Pods of some replicatedJob get a topology domain of their own."""
        parts = (self.annotations, *(job.form.annotations for job in self.replicated_jobs))
        return any(wire.EXCLUSIVE_TOPOLOGY in annotations for annotations in parts)

    @property
    def has_order(self) -> bool:
        """Say whether some replicatedJob starts after another."""
        return self.starts_in_order or any(job.depends_on for job in self.replicated_jobs)

    @cached_property
    def awaited_to_complete(self) -> frozenset[str]:
        """Return the names of the replicatedJobs for whose completion others wait."""
        entries = (entry for job in self.replicated_jobs for entry in job.depends_on)
        return frozenset(str(entry.get("name")) for entry in entries if entry.get("status") == COMPLETE)

    @cached_property
    def is_finished(self) -> bool:
        """Say whether a terminal condition is True."""
        return self.is_true(conditions.COMPLETED) or self.is_true(conditions.FAILED)

    @property
    def startup_completed(self) -> bool:
        """Say whether the startup policy was carried out."""
        return self.is_true(conditions.STARTUP_COMPLETED)

    def is_true(self, kind: str) -> bool:
        """Say whether a condition of the status is True."""
        return conditions.is_true(self.status.get("conditions") or (), kind)

    @property
    def restarts(self) -> int:
        """Return status.restarts: how often all Jobs were recreated."""
        return int(self.status.get("restarts") or 0)

    @property
    def restarts_counted(self) -> int:
        """Return status.restartsCountTowardsMax."""
        return int(self.status.get("restartsCountTowardsMax") or 0)

    @property
    def epochs(self) -> tuple[int, int]:
        """Return (S, D) of a JobSet that is one scope."""
        return wire.epochs_of_status(self.status)

    @cached_property
    def job_restarts(self) -> Mapping[str, Sequence[int]]:
        """Return by replicatedJob how often each of its Jobs alone was recreated; absent for never."""
        return self._job_counters("jobRestarts")

    @cached_property
    def job_restarts_counted(self) -> Mapping[str, Sequence[int]]:
        """Return the same for those that count towards maxRestarts."""
        return self._job_counters("jobRestartsCountTowardsMax")

    @cached_property
    def recreations_counted(self) -> int:
        """Return how many recreations, of all Jobs or of one, count towards maxRestarts."""
        return self.restarts_counted + sum(sum(counters) for counters in self.job_restarts_counted.values())

    @property
    def restarts_so_far(self) -> int:
        """Return how many restarts used up maxRestarts so far; one that is under way in place is not over yet."""
        if not self.is_in_place:
            return self.recreations_counted
        return self.recreations_counted + sum(scope.restarts_at(scope.synced) for scope in self.scopes.values())

    @property
    def restarts_begun(self) -> int:
        """Return the same together with those that are under way in place."""
        restarting = [scope for scope in self.scopes.values() if scope.is_restarting]
        under_way = sum(scope.restarts_at(scope.synced + 1) - scope.restarts_at(scope.synced) for scope in restarting)
        return self.restarts_so_far + under_way

    @property
    def annotations(self) -> Mapping[str, Any]:
        annotations: Mapping[str, Any] = self.metadata.get("annotations") or {}
        return annotations

    @cached_property
    def restart_request(self) -> RestartRequest | None:
        """Return the restart that a person asks for; None for none, or an invalid one."""
        try:
            return read_request(self.annotations)
        except RemoteProtocolError:
            return None

    @cached_property
    def barrier_deadline(self) -> BarrierDeadline | None:
        """Return how long barriers may wait; None for ever."""
        return deadline_of(self.annotations)

    @cached_property
    def bad_nodes(self) -> BadNodes | None:
        """Return when replaced Pods avoid a node; None for never, or what cannot be read."""
        return bad_nodes_of(self.annotations) if self.is_in_place else None

    @cached_property
    def suspects(self) -> BadNodes | None:
        """Return when a node is told of as bad, where replaced Pods do not avoid it; None for never."""
        return suspects_of(self.annotations) if self.is_in_place else None

    @property
    def leaves_marked_nodes(self) -> bool:
        """Say whether a Pod that failed first, or is waited for, leaves a marked node; also if that cannot be read."""
        return self.is_in_place and leaves_marked_nodes(self.annotations)

    @cached_property
    def escalation(self) -> Escalation:
        """Return the steps of the escalation; none where there is no escalation, or it cannot be read."""
        return escalation_of(self.annotations) if self.is_in_place else ()

    @cached_property
    def fence_after_s(self) -> int | None:
        """Return the length of its workers' leases; None where there are none, or it cannot be read."""
        return fence_after_s(self.annotations) if self.is_in_place else None

    def has_no_step_left(self, scope: Scope) -> bool:
        """Say whether the status says that no step had room for the restart to a scope's next epoch."""
        use = use_of_restart(self.escalation_uses, scope.name, scope.synced + 1) if self.escalation else None
        return use is not None and use.step == FAIL

    @cached_property
    def escalation_uses(self) -> tuple[Use, ...]:
        """Return which step was used when, the oldest first."""
        return uses_of(self.status)

    @property
    def replaces_pods(self) -> bool:
        """Say whether a restart in place may replace a Pod."""
        return bool(self.escalation) or self.bad_nodes is not None or self.leaves_marked_nodes

    @cached_property
    def replaced_pods(self) -> frozenset[str]:
        """Return the UIDs of the Pods that are being replaced in restarts that are under way."""
        next_epochs = {name: scope.synced + 1 for name, scope in self.scopes.items()}
        uses = self.escalation_uses if self.replaces_pods else ()
        return frozenset(use.pod_uid for use in uses if use.pod_uid and use.epoch == next_epochs.get(use.scope))

    @property
    def wanted_scope(self) -> str:
        """Return what should restart together; nothing decides from it but the first pass."""
        return str(
            self.annotations.get(wire.RESTART_SCOPE) or (BY_REPLICATED_JOB if self.member_policies else BY_JOBSET)
        )

    @cached_property
    def member_policies(self) -> Mapping[str, MemberPolicy]:
        """Return how many members each replicatedJob has that should have spares."""
        return self.member_requests.policies() if self.is_in_place else {}

    @cached_property
    def member_requests(self) -> MemberRequests:
        """Return what it says of members."""
        return MemberRequests(self.replicated_jobs, self.annotations, self.coordinator, self.awaited_to_complete)

    def member_policy(self, scope: Scope) -> MemberPolicy:
        """Return how many members a scope with spares has."""
        units = sum(units_of(self.replicated_job(name)) for name in scope.members)
        return self.member_policies.get(scope.name) or everyone(units)

    @property
    def restart_scope(self) -> str:
        """Return what restarts together."""
        return str(self.status.get(wire.RESTART_SCOPE_FIELD) or BY_JOBSET)

    @cached_property
    def scopes(self) -> Mapping[str, Scope]:
        """Return the scopes by name.

        Raises:
            RemoteProtocolError: a field of the status is not an int32.
        """
        return self.scopes_in(self.status)

    def scopes_in(self, status: Mapping[str, Any]) -> Mapping[str, Scope]:
        """Return the scopes as a status of this JobSet has them."""
        members = [(self.scope_name(job), job.name) for job in self.replicated_jobs if not job.has_opted_out]
        recreations = self.restarts + sum(sum(self.job_restarts.get(name, ())) for _, name in members)
        return read_scopes(members, status, exempt_default=recreations)

    def scope_name(self, job: ReplicatedJob, by: str | None = None) -> str:
        """Return the name of a replicatedJob's scope; `by` is another division than the status has."""
        names = {BY_GROUP: job.group_name, BY_REPLICATED_JOB: job.name}
        return names.get(by if by is not None else self.restart_scope, WHOLE)

    def scope_of(self, replicated_job: str) -> Scope:
        """Return the scope of a replicatedJob that did not opt out."""
        return self.scopes[self.scope_name(self.replicated_job(replicated_job))]

    @cached_property
    def shape(self) -> Shape:
        """Return the slots of the group; a replicatedJob that opted out has none."""
        members = [job for job in self.replicated_jobs if not job.has_opted_out]
        return Shape({job.name: (job.replicas, job.parallelism) for job in members})

    @cached_property
    def opted_out(self) -> frozenset[str]:
        """Return the names of the replicatedJobs that are not part of the group."""
        return frozenset(job.name for job in self.replicated_jobs if job.has_opted_out)

    @cached_property
    def places(self) -> Places:
        """Return every expected Job name with its (replicatedJob, job index), in spec order."""
        return Places(self.name, self.replicated_jobs)

    @cached_property
    def numbers(self) -> Numbers:
        """Return how Jobs and slots are counted."""
        return Numbers.of((self.scope_name(job), job) for job in self.replicated_jobs)

    @cached_property
    def judged(self) -> dict[str, tuple[Any, Any]]:
        """Return what `common.jobset.buckets.bucket_of` remembers of this version: by UID, a Job and its bucket."""
        return {}

    @cached_property
    def known_problems(self) -> list[tuple[str, ...]]:
        """Return all problems of this version, which `known_problems` in controller/plan/problems remembers here."""
        return []

    def replicated_job(self, name: str) -> ReplicatedJob:
        """Return one replicatedJob by name.

        Raises:
            KeyError: there is none of that name.
        """
        return self._by_name[name]

    def find_replicated_job(self, name: str) -> ReplicatedJob | None:
        """Return one replicatedJob by name; None when there is none of that name."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> Mapping[str, ReplicatedJob]:
        return {job.name: job for job in self.replicated_jobs}

    @property
    def subdomain(self) -> str:
        """Return the name of the headless Service."""
        return self.network.subdomain or self.name

    def _job_counters(self, name: str) -> Mapping[str, Sequence[int]]:
        entries = self.status.get(COUNTERS) or ()
        return {str(entry.get("name")): tuple(entry.get(name) or ()) for entry in entries}

    def job_restarts_of(self, replicated_job: str, index: int) -> int:
        """Return how often one Job alone was recreated."""
        counters = self.job_restarts.get(replicated_job, ())
        return int(counters[index]) if index < len(counters) else 0

    def claim_name(self, claim: Claim) -> str:
        """Return the name of one PersistentVolumeClaim."""
        return f"{claim.name}-{self.name}"

    def job_name(self, replicated_job: str, index: int) -> str:
        """Return the name of one Job."""
        return f"{self.name}-{replicated_job}-{index}"


def parse_jobset(raw: KubeObject) -> JobSet:
    """Read a JobSet.

    Raises:
        RemoteProtocolError: the object does not have a JobSet's form.
    """
    try:
        forms = check_form(raw)
        spec, metadata = raw.get("spec") or {}, raw["metadata"]
        return JobSet(
            raw=raw,
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            uid=str(metadata["uid"]),
            replicated_jobs=tuple(map(read_replicated_job, spec.get("replicatedJobs") or (), forms)),
            failure_policy=read_failure_policy(failure_policy_of(raw)),
            success_policy=read_success_policy(spec.get("successPolicy") or {}),
            network=read_network(spec.get("network") or {}),
            suspended=bool(spec.get("suspend")),
            starts_in_order=(spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder",
            managed_by=spec.get("managedBy"),
            coordinator=read_coordinator(spec.get("coordinator")),
            ttl_s=None if spec.get("ttlSecondsAfterFinished") is None else int(spec["ttlSecondsAfterFinished"]),
            claims=tuple(read_claims(as_value(spec.get("volumeClaimPolicies")) or ())),
            status=raw.get("status") or {},
        )
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"expected the form of a JobSet, saw another: {in_words(error)}") from error
