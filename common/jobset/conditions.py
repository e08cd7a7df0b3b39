"""
The conditions of a JobSet: the exact texts, and the rule for writing one.

Same type, status, reason and message: no write. Another status: a new transition time. Only another message: the old
transition time stays. A condition that is not True is not added if there was none. Source: jobset
pkg/controllers/jobset_controller.go; tools and people match on these texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.escalation import Escalation
from inplace.common.protocol.bounds import INT32_MAX

COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
RESTARTING: Final = "RestartingJobSet"
STARTUP_IN_PROGRESS: Final = "StartupPolicyInProgress"
STARTUP_COMPLETED: Final = "StartupPolicyCompleted"
LEFT_FAILED: Final = "JobsLeftFailed"  # ours: Jobs that failed, and the failure policy says FailJob
IN_PLACE_RESTARTING: Final = "InPlaceRestarting"  # ours: a group restart in place is under way
START_WAITING: Final = "StartWaiting"  # ours: replicatedJobs whose turn has not come
BARRIER_WAITING: Final = "BarrierWaiting"  # ours: Pods have waited for others, or lost ones, for 15 s
CONTAINERS_BLOCKED: Final = "ContainersBlocked"  # ours: containers that kubelet cannot start
IN_VAIN: Final = "RestartsInVain"  # ours: the same failure came back, and no restart helped
SPEC_PROBLEM: Final = "SpecProblem"  # ours: the spec asks for what cannot be done, and admission could not know

REASON_CHARS_MAX: Final = (
    128  # of what a user may put into a reason, upstream's webhook; the API has 1024 for the whole
)
_REASON: Final = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")  # the API refuses a status with another one
BEFORE_JOINING: Final = "before they joined"  # of a Failed condition's message; inplace explain looks for it
MESSAGE_CHARS_MAX: Final = 32768  # of a condition; the API refuses a longer one


@record
class Condition:
    """A condition to be set.

    Args:
        kind: its type.
        status: whether it is True.
        warning: whether the event about it is a Warning.
    """

    kind: str
    status: bool
    reason: str
    message: str
    warning: bool = False


ALL_JOBS_COMPLETED: Final = Condition(COMPLETED, True, "AllJobsCompleted", "jobset completed successfully")
IS_SUSPENDED: Final = Condition(SUSPENDED, True, "SuspendedJobs", "jobset is suspended")
IS_RESUMED: Final = Condition(SUSPENDED, False, "ResumeJobs", "jobset is resumed")
RESTART_JOBS_READY: Final = Condition(RESTARTING, False, "JobsReady", "all jobs are ready")
RESTART_FAILED: Final = Condition(RESTARTING, False, "JobSetFailed", "jobset failed")
RESTART_COMPLETED: Final = Condition(RESTARTING, False, "JobSetCompleted", "jobset completed successfully")
RESTART_SUSPENDED: Final = Condition(RESTARTING, False, "JobSetSuspended", "jobset is suspended")
IN_ORDER_IN_PROGRESS: Final = Condition(
    STARTUP_IN_PROGRESS, True, "InOrderStartupPolicyInProgress", "in order startup policy is in progress"
)
IN_ORDER_COMPLETED: Final = Condition(
    STARTUP_COMPLETED, True, "InOrderStartupPolicyCompleted", "in order startup policy has completed"
)


def is_reason(text: str) -> bool:
    """Say whether a reason can be, or hold, this text."""
    return len(text) <= REASON_CHARS_MAX and _REASON.fullmatch(text) is not None


def failed(reason: str, message: str, first_failed_job: str | None = None) -> Condition:
    """Return the Failed condition; restarts in place know no first failed Job."""
    suffix = f" (first failed job: {first_failed_job})" if first_failed_job is not None else ""
    return Condition(FAILED, True, reason, message + suffix, warning=True)


def failed_jobs(first_failed_job: str) -> Condition:
    """Return Failed for a Job that failed where there is no failure policy."""
    return failed("FailedJobs", "jobset failed due to one or more job failures", first_failed_job)


def reached_max_restarts(first_failed_job: str | None = None) -> Condition:
    """Return Failed for one restart too many."""
    return failed("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", first_failed_job)


def never_joined(words: str) -> Condition:
    """Return Failed for Pods that ended before they joined, more often than restarts are left."""
    message = f"jobset failed due to reaching max number of restarts: {words}"
    return failed("ReachedMaxRestarts", message[:MESSAGE_CHARS_MAX])


def deadline_exceeded(deadline_s: int) -> Condition:
    """Return Failed for a JobSet that ran for longer than spec.activeDeadlineSeconds."""
    message = f"JobSet was active for longer than the specified deadline of {deadline_s} seconds"
    return failed("DeadlineExceeded", message)


def restart_limit_exceeded(escalation: Escalation) -> Condition:
    """Return Failed for a failure for which no step of the escalation had room."""
    windows = ", ".join(map(str, escalation))
    return failed("RestartLimitExceeded", f"jobset failed: no step of its escalation had room: {windows}")


def no_progress(message: str) -> Condition:
    """Return Failed for epochs that ended without progress."""
    return failed("NoProgress", f"jobset failed: {message}"[:MESSAGE_CHARS_MAX])


def in_vain(message: str) -> Condition:
    """Return RestartsInVain: which failure came back, from where, and what helps."""
    return Condition(IN_VAIN, True, "RestartsDidNotHelp", message[:MESSAGE_CHARS_MAX], warning=True)


NO_EPOCH_LEFT: Final = failed(
    "NoEpochLeft",
    f"no group restart is possible: expected an epoch after status.syncedEpoch, saw it at {INT32_MAX}, the largest "
    "int32; no group gets there by itself, so a person wrote the status; recreate the JobSet",
)


def none_can_succeed(first_failed_job: str) -> Condition:
    """Return Failed for a JobSet all of whose Jobs were left failed."""
    message = "jobset failed: every job that its success policy counts failed under FailJob"
    return failed("FailedJobs", message, first_failed_job)


def left_failed(reason: str | None, first_failed_job: str, count: int) -> Condition:
    """Return JobsLeftFailed."""
    message = f"applying FailJob failure policy action to {count} of the jobs (first failed job: {first_failed_job})"
    return Condition(LEFT_FAILED, True, reason or "FailJobFailurePolicyAction", message, warning=True)


def in_place_restarting(reason: str, message: str) -> Condition:
    """Return InPlaceRestarting; words that stay the same until it ends."""
    return Condition(IN_PLACE_RESTARTING, True, reason, message)


def start_waiting(message: str) -> Condition:
    """Return StartWaiting: which replicatedJobs wait for which."""
    return Condition(START_WAITING, True, "ReplicatedJobsNotDue", message[:MESSAGE_CHARS_MAX])


ALL_DUE: Final = Condition(START_WAITING, False, "ReplicatedJobsDue", "the turn of every replicatedJob has come")


def barrier_waiting(message: str) -> Condition:
    """Return BarrierWaiting: who is there, and for whom they wait."""
    return Condition(BARRIER_WAITING, True, "PodsMissing", message[:MESSAGE_CHARS_MAX], warning=True)


NONE_LEFT_FAILED: Final = Condition(LEFT_FAILED, False, "NoJobLeftFailed", "no job is left failed any more")


def containers_blocked(message: str, *, image: bool) -> Condition:
    """Return ContainersBlocked: how many Pods, which container, and kubelet's words; `image`: of a pull."""
    reason = "ImageCannotBePulled" if image else "ContainerCannotBeCreated"
    return Condition(CONTAINERS_BLOCKED, True, reason, message[:MESSAGE_CHARS_MAX], warning=True)


NONE_BLOCKED: Final = Condition(CONTAINERS_BLOCKED, False, "ContainersStart", "kubelet can start every container again")


def spec_problem(message: str) -> Condition:
    """Return SpecProblem: what is wrong with the spec, in words."""
    return Condition(SPEC_PROBLEM, True, "InvalidSpec", message[:MESSAGE_CHARS_MAX], warning=True)


NO_SPEC_PROBLEM: Final = Condition(SPEC_PROBLEM, False, "SpecValid", "the spec has no problem any more")


def restarting(rule: str | None, message: str, reason: str | None = None) -> Condition:
    """Return RestartingJobSet for a restart that recreates every Job."""
    if reason is None:
        reason = "DefaultFailurePolicy" if rule is None else f"FailurePolicy_{rule}"
    return Condition(RESTARTING, True, reason, message, warning=True)


def set_condition(
    conditions: list[Mapping[str, Any]], wanted: Condition, now: str, generation: int | None = None
) -> list[Mapping[str, Any]] | None:
    """Return the conditions with `wanted` in them, or None when nothing changes.

    `generation` is that of the spec it was decided on; another one alone is no reason to write.
    """
    status = "True" if wanted.status else "False"
    new: dict[str, Any] = {
        "type": wanted.kind,
        "status": status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": now,
    }
    if generation is not None:
        new["observedGeneration"] = generation
    for position, old in enumerate(conditions):
        if old.get("type") != wanted.kind:
            continue
        if old.get("status") == status:
            if (old.get("reason"), old.get("message")) == (wanted.reason, wanted.message):
                return None
            new["lastTransitionTime"] = old.get("lastTransitionTime") or now
        return [*conditions[:position], dict(old) | new, *conditions[position + 1 :]]
    return [*conditions, new] if wanted.status else None


def is_true(conditions: Sequence[Mapping[str, Any]], kind: str) -> bool:
    """Say whether a condition is True."""
    return any(old.get("type") == kind and old.get("status") == "True" for old in conditions)
