"""
The parts of a JobSet's spec as the planner reads them, with the defaults that upstream's webhook fills in.

Templates stay bytes: fields that this code does not know survive, and a large template costs its size once. The fields
that decide something are read once, when the form is checked (common/jobset/form.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inplace.common.bare.record import record
from inplace.common.jobset.form import TemplateForm
from inplace.common.jobset.stored import as_raw
from inplace.common.wire import names as wire


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One entry of spec.replicatedJobs.

    Args:
        form: what of the template decides something.
        template_json: the JobTemplateSpec, as JSON.
        depends_on: entries of dependsOn, raw.
    """

    name: str
    replicas: int
    group_name: str
    form: TemplateForm = field(default_factory=TemplateForm)
    template_json: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"), repr=False)
    depends_on: tuple[Mapping[str, Any], ...] = ()

    def template(self) -> dict[str, Any]:
        """Decode the JobTemplateSpec: the caller's own copy; as dictionaries it is ten times its JSON."""
        template: dict[str, Any] = msgspec.json.decode(self.template_json) or {}
        return template

    @property
    def parallelism(self) -> int:
        """Return how many Pods of one Job run at once; 1 when unset, as the Job API has it."""
        return 1 if self.form.parallelism is None else self.form.parallelism

    @property
    def has_opted_out(self) -> bool:
        """Say whether its Pods are no part of the group: no barrier waits for them and no restart reaches them."""
        return wire.DISABLE in self.form.annotations

    @property
    def completions(self) -> int:
        """Return how many Pods of one Job must succeed; parallelism when unset, as our Jobs have it."""
        return self.parallelism if self.form.completions is None else self.form.completions


@record
class Coordinator:
    """spec.coordinator: the one Pod whose address every Pod gets."""

    replicated_job: str
    job_index: int = 0
    pod_index: int = 0


@record
class FailurePolicy:
    """spec.failurePolicy, with what `common.wire.in_place` says of it."""

    restarts_max: int = 0
    strategy: str = "Recreate"
    rules: tuple[Mapping[str, Any], ...] = ()


@record
class SuccessPolicy:
    """spec.successPolicy; the webhook's default is All of everything."""

    operator: str = "All"
    targets: frozenset[str] = frozenset()


@record
class Network:
    """spec.network with the webhook's defaults."""

    dns_hostnames: bool = True
    publish_not_ready: bool = True
    subdomain: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """One template of spec.volumeClaimPolicies.

    Args:
        template_json: the PersistentVolumeClaim, as JSON.
        retained: it outlives the JobSet.
    """

    name: str
    template_json: msgspec.Raw = field(repr=False)
    retained: bool = False

    def template(self) -> dict[str, Any]:
        """Decode the PersistentVolumeClaim."""
        template: dict[str, Any] = msgspec.json.decode(self.template_json)
        return template


def read_replicated_job(entry: Mapping[str, Any], form: TemplateForm) -> ReplicatedJob:
    """Read one entry of spec.replicatedJobs; `form` is of its template."""
    replicas = entry.get("replicas")
    group = entry.get("groupName")
    return ReplicatedJob(
        name=str(entry["name"]),
        replicas=1 if replicas is None else int(replicas),
        group_name="default" if group is None else str(group),
        form=form,
        template_json=as_raw(entry.get("template")),
        depends_on=tuple(entry.get("dependsOn") or ()),
    )


def read_coordinator(coordinator: Mapping[str, Any] | None) -> Coordinator | None:
    """Read spec.coordinator."""
    if not coordinator:
        return None
    return Coordinator(
        replicated_job=str(coordinator["replicatedJob"]),
        job_index=int(coordinator.get("jobIndex") or 0),
        pod_index=int(coordinator.get("podIndex") or 0),
    )


def read_claims(policies: Sequence[Mapping[str, Any]]) -> Iterator[Claim]:
    """Yield the templates, of several with one name the first; the webhook's default for whenDeleted is Delete."""
    names: set[str] = set()
    for policy in policies:
        retained = (policy.get("retentionPolicy") or {}).get("whenDeleted") == "Retain"
        for template in policy.get("templates") or ():
            name = str(template["metadata"]["name"])
            if name not in names:
                names.add(name)
                yield Claim(name, as_raw(template), retained)


def read_failure_policy(policy: Mapping[str, Any] | None) -> FailurePolicy | None:
    """Read a failure policy."""
    if policy is None:
        return None
    return FailurePolicy(
        restarts_max=int(policy.get("maxRestarts") or 0),
        strategy=str(policy.get("restartStrategy") or "Recreate"),
        rules=tuple(policy.get("rules") or ()),
    )


def read_success_policy(policy: Mapping[str, Any]) -> SuccessPolicy:
    """Read spec.successPolicy."""
    return SuccessPolicy(str(policy.get("operator") or "All"), frozenset(policy.get("targetReplicatedJobs") or ()))


def read_network(network: Mapping[str, Any]) -> Network:
    """Read spec.network."""
    return Network(
        dns_hostnames=network.get("enableDNSHostnames") is not False,
        publish_not_ready=network.get("publishNotReadyAddresses") is not False,
        subdomain=str(network.get("subdomain") or ""),
    )


# Bound the size of a JobSet: beyond these bounds the controller only sets the condition SpecProblem.
#
# A spec of 500 bytes can ask for 2^31 Pods. The controller's cost for a JobSet follows the Jobs and Pods that exist,
# with two exceptions: a pass looks at the place of each Job, and a barrier counts slots that can be filled.
# docs/adr/0056
REPLICATED_JOBS_MAX: Final = 100  # our CRD's; some steps compare each of them with each, which is 10,000 looks
JOBS_MAX: Final = 10_000  # of one JobSet: a pass takes 10 us for each, and nothing else runs meanwhile
SLOTS_MAX: Final = 100_000  # of the groups of one JobSet: what Kubernetes allows one Indexed Job; a cluster has 150,000
ANNOTATION_BYTES_MAX: Final = 252 * 1024  # of a template: the API takes 256 KiB, and ours are up to 4 KiB of them
ETCD_BYTES_MAX: Final = 1_536 * 1024  # of one object, by etcd's default; a JobSet of the user's is below it
TEMPLATE_BYTES_MAX: Final = ETCD_BYTES_MAX - 48 * 1024  # of JSON; labels, annotations and an agent are added to the Job
CURE: Final = "nothing is done for this jobset; recreate it smaller, or divide it into several"


def oversize(replicated_jobs: Sequence[ReplicatedJob], *, in_place: bool) -> Iterator[str]:
    """Yield why a JobSet is larger than this controller takes; only groups that restart in place have slots."""
    where = "spec.replicatedJobs"
    if (count := len(replicated_jobs)) > REPLICATED_JOBS_MAX:
        yield f"{where}: expected at most {REPLICATED_JOBS_MAX} of them, saw {count}; {CURE}"
    if (jobs := sum(job.replicas for job in replicated_jobs)) > JOBS_MAX:
        yield f"{where}: expected replicas of at most {JOBS_MAX:,} in all of them together, saw {jobs:,}; {CURE}"
    for job in replicated_jobs:
        if (size := job.form.annotation_bytes) > ANNOTATION_BYTES_MAX:
            yield (
                f'{where}[name="{job.name}"].template: expected annotations of at most {ANNOTATION_BYTES_MAX:,} bytes, '
                f"saw {size:,}: the API refuses a job whose annotations, ours included, exceed 262,144; {CURE}"
            )
    members = [job for job in replicated_jobs if in_place and not job.has_opted_out]
    if (slots := sum(job.replicas * job.parallelism for job in members)) > SLOTS_MAX:
        yield (
            f"{where}: expected replicas * parallelism of at most {SLOTS_MAX:,} pods that restart together in place, "
            f"saw {slots:,}; {CURE}"
        )


def heavy_templates(replicated_jobs: Sequence[ReplicatedJob]) -> Iterator[str]:
    """Yield which templates leave too little room for what a Job gets beside them; a server may take larger ones."""
    for job in replicated_jobs:
        if (size := len(job.template_json)) > TEMPLATE_BYTES_MAX:
            yield (
                f'spec.replicatedJobs[name="{job.name}"].template: expected at most {TEMPLATE_BYTES_MAX:,} bytes of '
                f"JSON, saw {size:,}: with what its jobs get beside it they may exceed the {ETCD_BYTES_MAX:,} bytes "
                "that etcd takes, and the API refuses them; move data into a ConfigMap or a volume, in a new jobset"
            )
