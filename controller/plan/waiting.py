"""
Report the slots that a barrier waits for, and apply the barrier's deadline.

If a barrier waits longer than a restart takes, the condition BarrierWaiting says how many Pods are there, and names up
to ten missing ones with the reason. It is written when the wait begins and then at most once in `REWORD_S`, because
every status write reaches all waiting agents. The annotations of docs/adr/0039 set a deadline: then an Event is sent,
and with RecreateJobs the Jobs of the missing Pods are recreated; see controller/plan/budget.py for how often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.blocked import IMAGE
from inplace.common.jobset.scopes import Scope
from inplace.controller.plan.actions import DeleteJob
from inplace.controller.plan.budget import AGAIN_S, recreate
from inplace.controller.plan.draft import REWORD_S, Draft
from inplace.controller.plan.observed import NAMES_MAX, PATIENCE_S, WaitingBarrier

REASON_TEXT: Final = {
    "ghost": "in no slot of the group, may still run a worker; if it does not end, delete it",
    "ahead": "announced an epoch that the group has not reached; if this stays, delete it",
    "intruder": "announced an epoch that had begun without it; the group restarts",
}


def watch_barriers(draft: Draft) -> bool:
    """Set BarrierWaiting, do what the deadlines ask for, and look again in time."""
    barriers = _waiting(draft)
    for name, barrier in barriers.items():
        if barrier.is_late:
            _end_patience(draft, name, barrier)
    is_told = draft.is_true(conditions.BARRIER_WAITING)
    told = {name: barrier for name, barrier in barriers.items() if barrier.is_worth_telling or is_told}
    if not told:
        draft.turn_false(conditions.BARRIER_WAITING)
    elif not is_told or draft.may_reword():
        message = "; ".join(_words(told))
        draft.set(conditions.barrier_waiting(message), quietly=is_told)
    for barrier in barriers.values():
        draft.look_again(PATIENCE_S - barrier.waited_s if not barrier.is_worth_telling else REWORD_S)
        if barrier.deadline_in_s is not None and not barrier.is_late:
            draft.look_again(barrier.deadline_in_s)
    return False


def _waiting(draft: Draft) -> Mapping[str, WaitingBarrier]:
    """Return the barriers that still wait after this pass."""
    if draft.jobset.suspended:
        return {}
    scopes = draft.jobset.scopes_in(draft.status)
    barriers = draft.observed.barriers.items()
    waiting = {name: barrier for name, barrier in barriers if name in scopes and name not in draft.paused}
    return {name: barrier for name, barrier in waiting.items() if _still_waits(barrier, scopes[name])}


def _still_waits(barrier: WaitingBarrier, scope: Scope) -> bool:
    """Say whether this pass has not let it begin; one whose epoch runs waits until that is over."""
    return scope.is_running and scope.synced == barrier.epoch if barrier.runs else scope.synced < barrier.epoch


def _words(barriers: Mapping[str, WaitingBarrier]) -> Iterator[str]:
    """Yield a sentence for each barrier; ten names in all."""
    names_left = NAMES_MAX
    for scope, barrier in barriers.items():
        head = f"scope {scope}: " if scope else ""
        head += f"{barrier.arrived:,}/{barrier.expected:,} at epoch {barrier.epoch}"
        shown = [str(missing) for missing in barrier.missing[:names_left]]
        names_left -= len(shown)
        more = barrier.expected - barrier.arrived - len(shown)
        shown += [f"{more:,} more"] if more > 0 else []
        shown += [_in_the_way(names, REASON_TEXT[why]) for why, names in barrier.in_the_way.items() if names]
        yield f"{head}; waiting for {', '.join(shown)}" if shown else head


def _in_the_way(names: Sequence[str], why: str) -> str:
    """Name the Pods that hold a barrier up beside those that are missing, and say what to do; ten names."""
    more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    pods = "pod" if len(names) == 1 else "pods"
    return f"{pods} {' '.join(names[:NAMES_MAX])}{more} ({why})"


def _end_patience(draft: Draft, scope: str, barrier: WaitingBarrier) -> None:
    """Tell that a deadline is over, and recreate the Jobs that hold the barrier up where that is wanted."""
    deadline = draft.jobset.barrier_deadline
    assert deadline is not None, "a barrier is late by a deadline"
    jobs = [job for job in draft.buckets.current if job.metadata.name in barrier.late] if deadline.recreates else []
    (sentence,) = _words({scope: barrier})
    recreated, left_s = recreate(draft, draft.jobset.scopes_in(draft.status)[scope], jobs, DeleteJob.LATE)
    done = f"{recreated} of its jobs are recreated" if deadline.recreates else "nothing is done about it"
    if left_s:
        done += (
            f"; once recreated, a job is left alone for {AGAIN_S:.0f} s or more, because its pods may still be starting"
        )
    draft.warn("BarrierDeadlineExceeded", f"no sync within {deadline.seconds} s: {sentence}; {done}")
    draft.overdue[scope] = recreated


# Report containers that kubelet cannot start: an image that cannot be pulled, a Secret that is missing.
#
# The condition ContainersBlocked has the Pods' number, the container, its image and kubelet's words. It is written some
# seconds after the first Pod, so that it counts them all, and a passing fault is not told. An Event tells of each cause
# once. Other numbers are written rarely, because every status write reaches all agents. docs/adr/0089
HOLD_S: Final = 4.0  # kubelet tells of a Pod's containers within a second or two; who looks wants it within 10 s
CAUSES_MAX: Final = 3  # that are told; an Event has room for as many


def tell_blocked(draft: Draft) -> bool:
    """Set ContainersBlocked to what blocks containers now."""
    causes = draft.observed.blocked
    is_told = draft.is_true(conditions.CONTAINERS_BLOCKED)
    if not causes:
        draft.set(conditions.NONE_BLOCKED)
        return False
    if not is_told and draft.observed.blocked_s < HOLD_S:
        draft.look_again(HOLD_S - draft.observed.blocked_s)
        return False
    told = draft.message_of(conditions.CONTAINERS_BLOCKED)
    is_news = any(f"{cause.sample.cause}:" not in told for cause in causes[:CAUSES_MAX])
    every_s = HOLD_S if is_news else REWORD_S
    if not is_told or draft.may_reword(every_s):
        words = [*map(str, causes[:CAUSES_MAX])]
        words += [f"{len(causes) - CAUSES_MAX} causes more"] if len(causes) > CAUSES_MAX else []
        wanted = conditions.containers_blocked("; ".join(words), image=causes[0].sample.what == IMAGE)
        draft.set(wanted, quietly=not is_news)
    draft.look_again(every_s)
    return False
