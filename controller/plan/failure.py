"""
Apply the failure policy to failed Jobs: its verdict goes into the status.

One verdict a pass: the status that restarts single Jobs takes them off the failed Jobs, and the next pass judges the
others. The pass after deletes Jobs of an earlier attempt. Source: jobset pkg/controllers/failure_policy.go; KEP-262.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.escalation import FAIL as FAIL_STEP
from inplace.common.jobset.escalation import RECREATE_JOBS
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.rules import (
    FAIL,
    LEAVE_FAILED,
    RESTART,
    RESTART_JOB,
    RESTART_JOB_UNCOUNTED,
    RESTART_REPLICATED_JOB,
    RESTART_REPLICATED_JOB_UNCOUNTED,
    RESTART_UNCOUNTED,
    PolicyVerdict,
    first_failed,
    judge,
)
from inplace.controller.plan.actions import ResetIndexBackoff
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.escalation import count_recreation
from inplace.controller.plan.executions import JOB_COUNTERS_MAX, recreate_all_jobs, recreate_jobs
from inplace.controller.plan.finish import fail

COUNTED: Final = (RESTART, RESTART_JOB, RESTART_REPLICATED_JOB)
ALONE: Final = (RESTART_JOB, RESTART_JOB_UNCOUNTED)  # one Job; the other restarts of WIDER are of one replicatedJob
WIDER: Final = {
    RESTART_JOB: RESTART,
    RESTART_JOB_UNCOUNTED: RESTART_UNCOUNTED,
    RESTART_REPLICATED_JOB: RESTART,
    RESTART_REPLICATED_JOB_UNCOUNTED: RESTART_UNCOUNTED,
}


def fail_or_restart(draft: Draft) -> bool:
    """Apply the failure policy when a Job failed; ends the pass, unless the Job is left as it is."""
    _note_left(draft)
    failed = draft.buckets.failed
    if not failed:
        return False
    policy = draft.jobset.failure_policy
    if policy is None:
        first = first_failed(failed)
        fail(draft, conditions.failed_jobs(first.metadata.name), _failure_of(first))
        return True
    matches = draft.observed.matches
    if policy.rules and any(job.metadata.uid not in matches for job in failed):
        draft.look_again(0.0)  # a rule that nobody looked at may come before those that match
        return True
    verdict = judge(policy, failed, matches)
    action, job = verdict.action, verdict.job.metadata.name
    message = f"applying {action} failure policy action"
    if action == LEAVE_FAILED:  # otherwise it would be among `left`
        message += ": replicatedJobs that wait for its completion can never start"
    if action in (FAIL, LEAVE_FAILED):
        condition = conditions.failed(verdict.reason or f"{action}FailurePolicyAction", message, job)
        fail(draft, condition, _failure_of(verdict.job))
    elif action in COUNTED and draft.jobset.restarts_so_far >= policy.restarts_max:
        fail(draft, conditions.reached_max_restarts(job), _failure_of(verdict.job))
    elif (step := _step_of(draft, verdict)) == FAIL_STEP:
        fail(draft, conditions.restart_limit_exceeded(draft.jobset.escalation), _failure_of(verdict.job))
    elif step == RECREATE_JOBS and action in WIDER:
        wider = replace(verdict, action=WIDER[action])
        _restart(draft, wider, f"{message}, escalation step {step}: all jobs (first failed job: {job})")
    else:
        _restart(draft, verdict, f"{message} (first failed job: {job})")
    return True


def _step_of(draft: Draft, verdict: PolicyVerdict) -> str:
    """Return the step of the escalation that a recreation takes; "" for none."""
    if verdict.action not in COUNTED:
        return ""
    replicated_job = draft.jobset.places[verdict.job.metadata.name][0]
    has_scope = draft.jobset.is_in_place and replicated_job not in draft.jobset.opted_out
    return count_recreation(draft, draft.jobset.scope_of(replicated_job) if has_scope else None)


def _note_left(draft: Draft) -> None:
    """Say which Jobs stay failed; follows from them and the rules alone, so a new controller says the same."""
    left, policy = draft.buckets.left, draft.jobset.failure_policy
    if not left or policy is None:
        draft.set(conditions.NONE_LEFT_FAILED)
        return
    verdict = judge(policy, left, draft.observed.matches)
    draft.set(conditions.left_failed(verdict.reason, verdict.job.metadata.name, len(left)))


def _restart(draft: Draft, verdict: PolicyVerdict, message: str) -> None:
    """Recreate all Jobs, those of a replicatedJob, or one: the status says that they are of an earlier attempt."""
    replicated_job, index = draft.jobset.places[verdict.job.metadata.name]
    action = verdict.action
    indexes = (index,) if action in ALONE else tuple(range(draft.jobset.replicated_job(replicated_job).replicas))
    if action in WIDER and indexes[-1] >= JOB_COUNTERS_MAX:
        wider, last = WIDER[action], JOB_COUNTERS_MAX - 1
        message += f": job index {indexes[-1]} is beyond {last}, the last that can restart alone, so {wider}"
        action = wider
    if action not in WIDER:
        scopes = tuple(draft.jobset.scopes.values())
    else:
        scopes = (draft.jobset.scope_of(replicated_job),) if replicated_job not in draft.jobset.opted_out else ()
    exempt_next_epoch(draft, scopes, Trigger.JOB_FAILED, _failure_of(verdict.job))
    if action in WIDER:
        recreate_jobs(draft, replicated_job, indexes, (index,) if action in COUNTED else ())
    else:
        recreate_all_jobs(draft, counted=action == RESTART)
        draft.set(conditions.restarting(verdict.rule, message, verdict.reason))
    draft.note(f"{verdict.action}FailurePolicyAction", message, warning=True)


def _failure_of(job: Job) -> Failure:
    """Return what a failed Job says of itself, where no Pod of it was seen to fail."""
    condition = job.condition("Failed")
    reason, message = (condition.reason, condition.message) if condition is not None else (None, None)
    return Failure(reason=reason or "", message=f"job {job.metadata.name}: {message or 'failed'}")


# Forget how often the indexes of a group failed before, once their Pods have joined.
#
# The Job controller counts each Pod that an index loses, for as long as the Job lives, and waits 10 s x 2^(n-1) for the
# next. A group that trains for weeks loses Pods to drains now and then, and would wait minutes for one in the end. A
# Pod that joined has shown that its index can work. If it fails again, maxRestarts counts that restart. docs/adr/0091


def reset_index_backoff(draft: Draft) -> bool:
    """Let the Pods that joined say no more of those before them."""
    for pod in draft.observed.index_failures:
        draft.add(ResetIndexBackoff(pod))
    return False
