"""
What a failed Job means for its JobSet: the failure policy's verdict, carried into the status.

One verdict a pass: a Job that alone is restarted leaves the failed ones with the status that says so, and the next
pass judges what is left. A Job of an earlier attempt is deleted by the pass after. Source: jobset
pkg/controllers/failure_policy.go; KEP-262.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller import conditions
from controller.budget import exempt_next_epoch, restarts_so_far
from controller.draft import COUNTERS, Draft
from controller.finish import fail
from controller.rules import (
    FAIL,
    RESTART,
    RESTART_JOB,
    RESTART_JOB_UNCOUNTED,
    RESTART_UNCOUNTED,
    Verdict,
    first_failed,
    judge,
)

COUNTED: Final = (RESTART, RESTART_JOB)
# The API's limit on the two lists of replicatedJobsStatus; a replicatedJob of more Jobs restarts as a whole JobSet.
JOB_COUNTERS_MAX: Final = 1024
WIDER: Final = {RESTART_JOB: RESTART, RESTART_JOB_UNCOUNTED: RESTART_UNCOUNTED}


def fail_or_restart(draft: Draft) -> bool:
    """Apply the failure policy when a Job failed; ends the pass."""
    failed = draft.buckets.failed
    if not failed:
        return False
    policy = draft.jobset.failure_policy
    if policy is None:
        fail(draft, conditions.failed_jobs(first_failed(failed).metadata.name))
        return True
    verdict = judge(draft.jobset, policy, failed)
    action, job = verdict.action, verdict.job.metadata.name
    message = f"applying {action} failure policy action"
    if action == FAIL:
        fail(draft, conditions.failed("FailJobSetFailurePolicyAction", message, job))
    elif action in COUNTED and restarts_so_far(draft.jobset) >= policy.restarts_max:
        fail(draft, conditions.reached_max_restarts(job))
    else:
        _restart(draft, verdict, f"{message} (first failed job: {job})")
    return True


def _restart(draft: Draft, verdict: Verdict, message: str) -> None:
    """Recreate all Jobs or one: they are of an earlier attempt from the moment the status says so."""
    replicated_job, index = draft.jobset.places[verdict.job.metadata.name]
    action = verdict.action
    if action in WIDER and index >= JOB_COUNTERS_MAX:
        wider = WIDER[action]
        message += f": job index {index} is beyond {JOB_COUNTERS_MAX - 1}, the last that can restart alone, so {wider}"
        action = wider
    if action not in WIDER or replicated_job not in draft.jobset.opted_out:
        exempt_next_epoch(draft)
    if action in WIDER:
        _restart_job(draft, replicated_job, index, counted=action == RESTART_JOB)
    else:
        draft.status["restarts"] = draft.jobset.restarts + 1
        if action == RESTART:
            draft.status["restartsCountTowardsMax"] = draft.jobset.restarts_counted + 1
        draft.set(conditions.restarting(verdict.rule, message))
    draft.note(f"{verdict.action}FailurePolicyAction", message, warning=True)


def _restart_job(draft: Draft, replicated_job: str, index: int, *, counted: bool) -> None:
    """Count a restart of one Job in the entry of its replicatedJob."""
    names = ("jobRestarts", "jobRestartsCountTowardsMax") if counted else ("jobRestarts",)
    draft.status[COUNTERS] = [
        dict(entry) | {name: _bumped(draft, entry, name, index) for name in names}
        if entry.get("name") == replicated_job
        else entry
        for entry in draft.status[COUNTERS]
    ]
    draft.is_urgent = True


def _bumped(draft: Draft, entry: Mapping[str, Any], name: str, index: int) -> list[int]:
    """Return one list of counters, a zero for each Job where there was none, with one of them raised."""
    replicas = next(job.replicas for job in draft.jobset.replicated_jobs if job.name == entry["name"])
    old = list(entry.get(name) or ())[:JOB_COUNTERS_MAX]
    new = old + [0] * (min(replicas, JOB_COUNTERS_MAX) - len(old))
    new[index] += 1
    return new
