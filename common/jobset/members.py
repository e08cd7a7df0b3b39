"""
Say how many Pods of a replicatedJob train, and how many are spares: the annotation `inplace.dev/members`. Pure.

Its numbers count units: the Pods of a replicatedJob with one Job, the Jobs of one with several.

It stands on the JobSet, or on the template.metadata of a replicatedJob, which wins. A replicatedJob with spares is a
scope of its own (`common.jobset.scopes`), so that upstream's agents, which know no members, never start in it. Whether
a scope has spares is fixed with the first status; the numbers may change while it runs. docs/adr/0107
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from inplace.common.bare.record import record
from inplace.common.jobset.fields import Coordinator, ReplicatedJob
from inplace.common.jobset.scopes import BY_REPLICATED_JOB
from inplace.common.jobset.settings import MEMBERS, WAIT_S
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.members import SLOTS_MAX, Members, Sizes
from inplace.common.wire import names as wire


@record
class MemberPolicy:
    """How many members a scope has.

    Args:
        sizes: the numbers of members that it may have.
        wait_s: for so long its barrier waits for the most.
    """

    sizes: Sizes
    wait_s: int = WAIT_S


def everyone(units: int) -> MemberPolicy:
    """Return the policy under which all Pods train; what holds where the annotation cannot be read any more."""
    return MemberPolicy(Sizes(units, units))


def has_jobs_as_units(job: ReplicatedJob) -> bool:
    """Say whether its whole Jobs play ranks, because it has several."""
    return job.replicas > 1


def units_of(job: ReplicatedJob) -> int:
    """Return how many units it has."""
    return job.replicas if has_jobs_as_units(job) else job.parallelism


@record
class MemberRequests:
    """What a JobSet says of members, and what that depends on.

    Args:
        jobs: its replicatedJobs.
        annotations: its own.
        awaited: names of the replicatedJobs for whose completion others wait.
    """

    jobs: Sequence[ReplicatedJob]
    annotations: Mapping[str, Any]
    coordinator: Coordinator | None
    awaited: Collection[str]

    def policies(self) -> dict[str, MemberPolicy]:
        """Return the policy of each replicatedJob that has a good one, by its name."""
        found = {}
        for job in self.jobs:
            try:
                policy = self.policy(job)
            except RemoteProtocolError:
                continue
            if policy is not None:
                found[job.name] = policy
        return found

    def policy(self, job: ReplicatedJob) -> MemberPolicy | None:
        """Return the policy of one replicatedJob; None where it has none.

        Raises:
            RemoteProtocolError: the annotation cannot be followed (its author is at fault).
        """
        own = job.form.annotations
        given = MEMBERS.read(own if wire.MEMBERS in own else {} if job.has_opted_out else self.annotations)
        if not given:
            return None
        most = given.get("max", units_of(job))
        sizes = Sizes(given.get("min", most), most, given.get("step", 1))
        if (expected := self._expected(job, sizes, given)) is not None:
            raise RemoteProtocolError(f"{where_of(job)}: expected {expected}; {MEMBERS.effect}; correct it")
        return MemberPolicy(sizes, given.get("wait", WAIT_S))

    def _expected(self, job: ReplicatedJob, sizes: Sizes, given: Collection[str]) -> str | None:
        """Return what was expected and what was seen instead; None where all is well."""
        slots, others = job.parallelism, [one.name for one in self.jobs if not one.has_opted_out]
        pods, units = job.replicas * slots, units_of(job)
        if job.has_opted_out:
            return f"a replicatedJob that restarts in place, saw {wire.DISABLE}"
        is_alone = self.annotations.get(wire.RESTART_SCOPE) == BY_REPLICATED_JOB
        if len(others) > 1 and (wire.MEMBERS not in job.form.annotations or not is_alone):
            divided = "" if is_alone else f"set {wire.RESTART_SCOPE}: {BY_REPLICATED_JOB} on the jobset, and "
            return (
                f"one replicatedJob that restarts in place, saw {', '.join(others[:5])}; "
                f"{divided}write the annotation in the template.metadata of each that has spares"
            )
        if job.replicas < 1:
            return f"a Job at least, saw replicas {job.replicas}"
        if job.form.completion_mode == "NonIndexed" or job.completions != slots:
            seen = "NonIndexed" if job.form.completion_mode == "NonIndexed" else f"completions {job.completions:,}"
            return f"an Indexed Job with completions {slots:,}, as its parallelism, saw {seen}"
        if pods > SLOTS_MAX:
            return f"at most {SLOTS_MAX:,} pods, saw {pods:,}"
        if not sizes.least <= sizes.most <= units:
            least, seen = ("min <= ", f"min {sizes.least} and ") if "min" in given else ("", "")
            noun = "Jobs" if has_jobs_as_units(job) else "pods"
            return f"{least}max <= {units}, the {noun} of {job.name}, saw {seen}max {sizes.most}"
        if (sizes.most - sizes.least) % sizes.step:
            between = sizes.most - sizes.least
            return f"a step that divides max {sizes.most} - min {sizes.least} = {between}, saw step {sizes.step}"
        if job.name in self.awaited:
            return f"no dependsOn with status Complete on {job.name}, whose spares end with the jobset, saw one"
        if self.coordinator is not None and self.coordinator.replicated_job != job.name:
            return f"a spec.coordinator in {job.name}, where rank 0 is, saw {self.coordinator.replicated_job}"
        return None


def noun_of(members: Members, count: int) -> str:
    """Return what an epoch's members are: Jobs, or simply members."""
    return ("Job" if members.pods else "member") + ("" if count == 1 else "s")


def where_of(job: ReplicatedJob) -> str:
    """Return where a replicatedJob's annotation stands."""
    if wire.MEMBERS in job.form.annotations:
        return f'spec.replicatedJobs[name="{job.name}"].template.{MEMBERS.where}'
    return MEMBERS.where
