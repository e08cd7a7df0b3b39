"""The numbers of one group that the metrics show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.headline import Slots, SlotState
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.verdict import Verdict
from inplace.common.protocol.decision import PodCounts
from inplace.common.protocol.members import Sizes
from inplace.common.wire import names as wire

SCOPES_SHOWN_MAX: Final = 8  # of a JobSet, each with 18 series; a spec of 10 kB may have 100 scopes


@dataclass(frozen=True, slots=True)
class JobSetCount:
    """What is said once of each JobSet.

    Args:
        restarts_max: maxRestarts.
        restarts_left: how many more of them it has.
        synced_at_s: when the last group restart ended, Unix time; None for never.
        verdict: on the failure of the last group restart; None without one.
        first_silent: in the epoch before it; None if no Pod told.
        is_in_vain: restarts did not help.
    """

    namespace: str
    jobset: str
    restarts_max: int
    restarts_left: int
    synced_at_s: float | None
    verdict: Verdict | None
    first_silent: FurthestBehind | None = None
    is_in_vain: bool = False


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How one group stands, counted by its ledger.

    Args:
        scope: what restarts together; "" is the whole JobSet.
        expected: N.
        standing: what their Pods do.
        synced: S.
        deprecated: D.
        waited_s: how long the present barrier has waited; 0 when none does.
        whole: what is said once of the JobSet, by one of its scopes.
        goodput: what its restarts cost in training time; None where no Pod ever told its steps.
        is_at_rest: its JobSet is suspended or being deleted, so that its Pods are gone on purpose.
        sizes: how many Pods of a group with spares may train; None for one without, where every slot trains.
        spares_max: so many spare Pods it has at full strength.
    """

    namespace: str
    jobset: str
    scope: str
    expected: int
    standing: PodCounts
    synced: int
    deprecated: int
    waited_s: float = 0.0
    whole: JobSetCount | None = None
    goodput: Goodput | None = None
    is_at_rest: bool = False
    sizes: Sizes | None = None
    spares_max: int = 0

    @property
    def is_restarting(self) -> bool:
        """Say whether a group restart is under way, or must come."""
        return self.slots.is_restarting and not self.is_at_rest

    @property
    def slots(self) -> Slots:
        """Return what is known of its slots."""
        pods = self.standing
        done = self.expected - pods.running - pods.waiting - pods.restarting - pods.missing
        counts = {SlotState.RUNS: pods.running, SlotState.WAITING: pods.waiting, SlotState.PENDING: pods.restarting}
        counts |= {SlotState.VACANT: pods.missing, SlotState.COMPLETED: max(0, done), SlotState.SPARE: pods.spares}
        return Slots(counts, self.synced, self.deprecated, self.scope)


def summed(counts: Sequence[GroupCount]) -> GroupCount:
    """Return how the scopes of one JobSet stand together.

    Pods and costs are sums. S is 1 more than all their restarts; while one of them restarts, D is S.
    """
    synced = [count.synced for count in counts if count.synced]
    epoch = 1 + sum(synced) - len(synced) if synced else 0
    restarts = any(0 < count.synced <= count.deprecated for count in counts)
    standing = [count.standing for count in counts]
    costs = [count.goodput for count in counts if count.goodput is not None]
    sizes = [count.sizes or Sizes(count.expected, count.expected) for count in counts]
    return replace(
        counts[0],
        scope="",
        expected=sum(count.expected for count in counts),
        standing=PodCounts(
            running=sum(pods.running for pods in standing),
            waiting=sum(pods.waiting for pods in standing),
            restarting=sum(pods.restarting for pods in standing),
            missing=sum(pods.missing for pods in standing),
            spares=sum(pods.spares for pods in standing),
        ),
        synced=epoch,
        deprecated=epoch if restarts else max(0, epoch - 1),
        waited_s=max(count.waited_s for count in counts),
        goodput=Goodput(
            restarts=sum(cost.restarts for cost in costs),
            useful_s=sum(cost.useful_s for cost in costs),
            lost_s=sum(cost.lost_s for cost in costs),
            restart_s=sum(cost.restart_s for cost in costs),
            lost_steps=sum(cost.lost_steps for cost in costs),
        ),
        sizes=Sizes(sum(one.least for one in sizes), sum(one.most for one in sizes))
        if any(count.sizes is not None for count in counts)
        else None,
        spares_max=sum(count.spares_max for count in counts),
    )


# What of a JobSet, a Job or a Pod decides how Pods are counted: if it has changed, they are read again.


def division(jobset: JobSet) -> tuple[object, ...]:
    """Return what decides how many ledgers there are."""
    return jobset.is_in_place, jobset.is_ours, not jobset.oversize, jobset.scopes.keys()


def current(jobset: JobSet) -> tuple[object, ...]:
    """Return what decides which Pods are current, and which of their notices are failures."""
    restart_on = jobset.annotations.get(wire.RESTART_ON)
    return jobset.restarts, jobset.job_restarts, jobset.replaced_pods, restart_on


def side(job: Job) -> tuple[object, ...]:
    """Return what decides where a Job stands; the rest are counters."""
    finished = job.condition("Failed") is not None, job.condition("Complete") is not None
    meta = job.metadata
    return job.owner_uid, job.is_leaving, finished, meta.labels, meta.annotations, job.spec.suspend


def readable(pod: Pod) -> tuple[object, object]:
    """Return what may be unreadable in a Pod."""
    return pod.metadata.labels, pod.metadata.annotations
