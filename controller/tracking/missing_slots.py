"""
Find the waiting barriers of a JobSet, and the slots that they wait for. An epoch that runs without a slot waits, too.

A barrier that has just begun to wait is counted in O(1). The missing slots are looked up only if it waits longer than a
restart takes, in each pass over the JobSet. That costs O(Jobs + existing Pods), however many slots a spec asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from inplace.common.jobset.conditions import BARRIER_WAITING
from inplace.common.jobset.places import Place
from inplace.common.protocol.slot import Slot
from inplace.controller.plan.barrier import NAMES_MAX, PATIENCE_S, Missing, WaitingBarrier
from inplace.controller.tracking.absent import why_absent
from inplace.controller.tracking.group import Group, ScopeLedger
from inplace.controller.tracking.membership import Membership


def find_missing_slots(membership: Membership, group: Group, now_s: float) -> Mapping[str, WaitingBarrier]:
    """Return the barriers that wait, by scope."""
    found = {name: _barrier(membership, group, scope_ledger, now_s) for name, scope_ledger in group.ledgers.items()}
    return {name: barrier for name, barrier in found.items() if barrier is not None}


def _barrier(membership: Membership, group: Group, scope_ledger: ScopeLedger, now_s: float) -> WaitingBarrier | None:
    if scope_ledger.waits_since_s is None or scope_ledger.deadline_from_s is None:
        return None
    deadline, ledger = group.jobset.barrier_deadline, scope_ledger.ledger
    runs = scope_ledger.slots().runs and ledger.announced <= ledger.synced
    epoch = ledger.synced if runs else ledger.next_epoch
    waited_s = now_s - scope_ledger.waits_since_s
    left_s = None if deadline is None else max(0.0, scope_ledger.deadline_from_s + deadline.seconds - now_s)
    is_late = left_s == 0.0
    is_told = waited_s >= PATIENCE_S or is_late or group.jobset.is_true(BARRIER_WAITING)
    arrived = ledger.arrived_by_job(epoch) if is_told else {}
    return WaitingBarrier(
        epoch=epoch,
        arrived=ledger.arrived(epoch),
        expected=ledger.shape.size,
        waited_s=waited_s,
        missing=tuple(islice(_missing(membership, group, scope_ledger, epoch, arrived), NAMES_MAX)) if is_told else (),
        in_the_way=ledger.names_in_the_way() if is_told else {},
        deadline_in_s=left_s,
        runs=runs,
        late=frozenset(_late(membership, group, scope_ledger, arrived)) if is_late else frozenset(),
    )


def _late(
    membership: Membership, group: Group, scope_ledger: ScopeLedger, arrived: Mapping[Place, int]
) -> Iterator[str]:
    """Yield the names of existing Jobs with a Pod that is not at the barrier."""
    places = group.jobset.places
    for name in membership.jobs_of(group.jobset):
        place = places.get(name)
        if place is not None and arrived.get(place, 0) < scope_ledger.ledger.shape.size_of(*place):
            yield name


def _missing(
    membership: Membership, group: Group, scope_ledger: ScopeLedger, epoch: int, arrived: Mapping[Place, int]
) -> Iterator[Missing]:
    jobs = membership.jobs_of(group.jobset)
    for slot, uids in scope_ledger.ledger.absent(epoch, arrived):
        job = jobs.get(_job_name(group, slot))
        pods = [pod for uid in uids if job is not None and (pod := membership.pod_of(job, uid)) is not None]
        ends = next((one for pod in pods if (one := scope_ledger.early_ends.of(pod.metadata.uid)) is not None), None)
        why = str(ends) if ends is not None else why_absent(job, pods, scope_ledger.fences.promises)
        yield Missing(_job_name(group, slot), slot.completion_index, why, pods[0] if len(pods) == 1 else None)


def _job_name(group: Group, slot: Slot) -> str:
    return group.jobset.job_name(slot.replicated_job, slot.job_index)
