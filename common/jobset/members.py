"""
Say how many Pods of a replicatedJob train, and how many are spares: the annotation `inplace.dev/members`. Pure.

It stands on the JobSet, or on the template.metadata of a replicatedJob, which wins. A replicatedJob with spares is a
scope of its own (`common.jobset.scopes`), so that upstream's agents, which know no members, never start in it. Whether
a scope has spares is fixed with the first status; the numbers may change while it runs. docs/adr/0107
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inplace.common.bare.record import record
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.scopes import BY_REPLICATED_JOB
from inplace.common.jobset.settings import MEMBERS, WAIT_S
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.members import SLOTS_MAX, Sizes
from inplace.common.wire import names as wire

if TYPE_CHECKING:
    from inplace.common.jobset.jobset import JobSet


@record
class MemberPolicy:
    """How many members a scope has.

    Args:
        sizes: the numbers of members that it may have.
        wait_s: for so long its barrier waits for the most.
    """

    sizes: Sizes
    wait_s: int = WAIT_S


def everyone(slots: int) -> MemberPolicy:
    """Return the policy under which all Pods train; what holds where the annotation cannot be read any more."""
    return MemberPolicy(Sizes(slots, slots))


def member_policies(jobset: JobSet) -> dict[str, MemberPolicy]:
    """Return the policy of each replicatedJob that has a good one, by its name."""
    found = {}
    for job in jobset.replicated_jobs if jobset.is_in_place else ():
        try:
            policy = _read(jobset, job)
        except RemoteProtocolError:
            continue
        if policy is not None:
            found[job.name] = policy
    return found


def bad_members(jobset: JobSet) -> Iterator[str]:
    """Yield each annotation that has no effect, and why."""
    for job in jobset.replicated_jobs if jobset.is_in_place else ():
        try:
            policy = _read(jobset, job)
        except RemoteProtocolError as error:
            yield str(error)
            continue
        has_spares = not job.has_opted_out and jobset.scope_of(job.name).has_spares
        if policy is not None and not has_spares and "restarts" in jobset.status:
            yield f"{_where(job)}: expected none, as when the jobset began, saw one: no effect; recreate the jobset"
        elif policy is None and has_spares:
            yield f"{_where(job)}: expected one, as when the jobset began, saw none: {MEMBERS.effect}; write it again"


def _read(jobset: JobSet, job: ReplicatedJob) -> MemberPolicy | None:
    """Return the policy of one replicatedJob; None where it has none.

    Raises:
        RemoteProtocolError: the annotation cannot be followed (its author is at fault).
    """
    own = job.form.annotations
    given = MEMBERS.read(own if wire.MEMBERS in own else {} if job.has_opted_out else jobset.annotations)
    if not given:
        return None
    slots = job.parallelism
    most = given.get("max", slots)
    sizes = Sizes(given.get("min", most), most, given.get("step", 1))
    if (expected := _expected(jobset, job, sizes)) is not None:
        raise RemoteProtocolError(f"{_where(job)}: expected {expected}; {MEMBERS.effect}; correct it")
    return MemberPolicy(sizes, given.get("wait", WAIT_S))


def _expected(jobset: JobSet, job: ReplicatedJob, sizes: Sizes) -> str | None:
    """Return what was expected and what was seen instead; None where all is well."""
    slots, others = job.parallelism, [one.name for one in jobset.replicated_jobs if not one.has_opted_out]
    coordinator = jobset.coordinator
    if job.has_opted_out:
        return f"a replicatedJob that restarts in place, saw {wire.DISABLE}"
    if len(others) > 1 and (wire.MEMBERS not in job.form.annotations or not _is_alone(jobset)):
        return (
            f"one replicatedJob that restarts in place, saw {', '.join(others[:5])}; with {wire.RESTART_SCOPE}: "
            f"{BY_REPLICATED_JOB} beside it the template.metadata of each may have one"
        )
    if job.replicas != 1:
        return f"one Job whose pods stand in for each other (replicas 1), saw replicas {job.replicas}"
    if job.form.completion_mode == "NonIndexed" or job.completions != slots:
        return "an Indexed Job with completions like parallelism, saw another"
    if slots > SLOTS_MAX:
        return f"at most {SLOTS_MAX:,} pods, saw {slots:,}"
    if not sizes.least <= sizes.most <= slots:
        return f"min <= max <= {slots}, the pods of {job.name}, saw min {sizes.least} and max {sizes.most}"
    if (sizes.most - sizes.least) % sizes.step:
        return f"a step that leads from max {sizes.most} to min {sizes.least}, saw {sizes.step}"
    if job.name in jobset.awaited_to_complete:
        return (
            f"no replicatedJob that waits for {job.name} to complete, saw one (dependsOn): spares end with the jobset"
        )
    if coordinator is not None and coordinator.replicated_job != job.name:
        return f"a spec.coordinator in {job.name}, which moves with rank 0, saw {coordinator.replicated_job}"
    return None


def _is_alone(jobset: JobSet) -> bool:
    """Say whether each replicatedJob restarts alone."""
    return bool(jobset.annotations.get(wire.RESTART_SCOPE) == BY_REPLICATED_JOB)


def _where(job: ReplicatedJob) -> str:
    if wire.MEMBERS in job.form.annotations:
        return f'spec.replicatedJobs[name="{job.name}"].template.{MEMBERS.where}'
    return MEMBERS.where


def hosts_of(jobset: JobSet, job: ReplicatedJob) -> str:
    """Return the host names of a replicatedJob's Pods as one text, with "*" for a Pod's number; "*" if they have none.

    Pods carry it as the annotation MEMBERS: their agents find in it where rank 0 is.
    """
    return f"{jobset.job_name(job.name, 0)}-*.{jobset.subdomain}" if jobset.network.dns_hostnames else "*"
