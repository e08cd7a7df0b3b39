"""
Find the waiting barriers of a JobSet, and the slots that they wait for. An epoch that runs without a slot waits, too.

A barrier that has just begun to wait is counted in O(1). The missing slots are looked up only if it waits longer than a
restart takes, in each pass over the JobSet. That costs O(Jobs + existing Pods), however many slots a spec asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from inplace.common.injection.index_backoff import next_pod_words
from inplace.common.jobset.conditions import BARRIER_WAITING
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.places import Place
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.slot import Slot
from inplace.controller.plan.observed import NAMES_MAX, PATIENCE_S, Missing, WaitingBarrier
from inplace.controller.tracking.group import Group
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.pods import announced, epoch_of, known_epoch
from inplace.controller.tracking.scope_ledger import ScopeLedger


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
        arrived=min(_arrived(scope_ledger, epoch), scope_ledger.expected),  # more, where spares are there
        expected=scope_ledger.expected,
        waited_s=waited_s,
        missing=tuple(islice(_missing(membership, group, scope_ledger, epoch, arrived), NAMES_MAX)) if is_told else (),
        in_the_way=ledger.names_in_the_way() if is_told else {},
        deadline_in_s=left_s,
        runs=runs,
        late=frozenset(_late(membership, group, scope_ledger, arrived)) if is_late else frozenset(),
    )


def _arrived(scope_ledger: ScopeLedger, epoch: int) -> int:
    """Return how many slots are at an epoch; where whole Jobs are members, of Jobs that lack no Pod."""
    members, ledger = scope_ledger.members, scope_ledger.ledger
    if members is not None and ledger.shape.pods and epoch == ledger.next_epoch:
        return members.gathered()
    return ledger.arrived(epoch)


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
        pods = [pod for uid in uids if (pod := membership.pod_of(job, uid)) is not None]
        members = scope_ledger.members
        if members is not None and slot in members.doubted:
            words = "a worker of it may still run, for at most"
            yield Missing(
                _job_name(group, slot),
                slot.completion_index,
                f"{words} {group.promised_s():.0f} s: its pod's end was not seen",
            )
            continue
        ends = next((one for pod in pods if (one := scope_ledger.early_ends.of(pod.metadata.uid)) is not None), None)
        why = str(ends) if ends is not None else why_absent(job, pods, scope_ledger.fences.promises)
        if (
            members is not None
            and len(pods) == 1
            and known_epoch(pods[0])
            and announced(pods[0], known_epoch(pods[0])) is None
        ):
            why = "its agent reads no members: give it the agent's image of this controller"
        yield Missing(_job_name(group, slot), slot.completion_index, why, pods[0] if len(pods) == 1 else None)


def _job_name(group: Group, slot: Slot) -> str:
    return group.jobset.job_name(slot.replicated_job, slot.job_index)


# Find why a slot is not at the barrier, from its Job and its Pods.
NO_POD: Final = "no pod"  # its Job made none, and none is left of it
WORDS_MAX: Final = 120  # of one reason; ten of them and a headline stay readable


def why_absent(job: Job | None, pods: Sequence[Pod], promises: Mapping[str, int]) -> str:
    """Return the reason why a slot's Pod is not at the barrier, in words.

    Args:
        job: of the slot.
        pods: in the slot.
        promises: within how many seconds workers end, by the UID of their Pod (`controller.tracking.memories`).
    """
    if not pods:
        if job is None:
            return "its job does not exist"
        return "no pod: its job is being deleted" if job.is_leaving else NO_POD
    for pod in pods:
        if (promised := promises.get(pod.metadata.uid)) is not None:
            where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
            return f"waits at most {promised} s for the fence of pod {pod.metadata.name}{where}"[:WORDS_MAX]
    if len(pods) > 1:
        return f"{len(pods)} pods, of which one must go first"
    (pod,) = pods
    is_of_job = job is not None and pod.job_uid == job.metadata.uid
    words = "" if is_of_job else f"its job is gone, but not yet pod {pod.metadata.name}: "
    return f"{words}{_of_pod(pod)}"[:WORDS_MAX]


def _of_pod(pod: Pod) -> str:
    phase, where = pod.status.phase or "Pending", f" on {pod.spec.node_name}" if pod.spec.node_name else ""
    if pod.metadata.deletion_timestamp is not None and phase != "Failed":
        return f"Terminating{where}"
    if phase == "Pending":
        return f"Pending: {_pending(pod)}{where}"
    if phase in ("Failed", "Succeeded"):
        next_pod = f"; {words}" if phase == "Failed" and (words := _next_pod(pod)) else ""
        return (f"{phase}: {pod.status.reason}{where}" if pod.status.reason else f"{phase}{where}") + next_pod
    return f"{phase}{where}: {_announced(pod)}"


def _next_pod(pod: Pod) -> str:
    keys = pod.metadata.annotations
    ended = [one.state.terminated.finished_at for one in pod.status.all_statuses if one.state.terminated is not None]
    return "" if keys is None else next_pod_words(keys.index_failures, keys.index_failures_ignored, ended)


def _pending(pod: Pod) -> str:
    """Say what a Pod waits for that does not run yet: a gate, a node, an image."""
    if gates := pod.spec.scheduling_gates:
        return "scheduling gate " + ", ".join(gate.name for gate in gates)
    if (condition := pod.status.condition("PodScheduled")) is not None:
        return shortened(condition.message or condition.reason or "not scheduled")
    if (waiting := pod.status.waiting_reason) is not None:
        return waiting
    return _announced(pod) if pod.spec.node_name else "not scheduled yet"


def _announced(pod: Pod) -> str:
    try:
        epoch = epoch_of(pod)
    except RemoteProtocolError:
        return "its announcement cannot be read"
    return "has announced nothing" if epoch is None else f"announced epoch {epoch}"


def shortened(message: str) -> str:
    """Return what a scheduler's message is about.

    "0/8 nodes are available: 8 Insufficient google.com/tpu. preemption: ..." -> "8 Insufficient google.com/tpu"
    """
    head, found, rest = message.partition(" nodes are available: ")
    return (rest if found else head).partition(". ")[0].rstrip(".")
