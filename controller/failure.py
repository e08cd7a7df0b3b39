"""
What a failed Job means for its JobSet.

Rules are tried in order; the first that matches a failed Job decides. Without a match, every Job is
recreated. Source: jobset pkg/controllers/failure_policy.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller import conditions
from controller.draft import Draft
from controller.finish import fail
from controller.jobset import FailurePolicy, JobSet
from controller.kinds import Job

FAIL: Final = "FailJobSet"
RESTART: Final = "RestartJobSet"
RESTART_UNCOUNTED: Final = "RestartJobSetAndIgnoreMaxRestarts"
# Until single Jobs can be recreated, the whole JobSet is: more than asked for, never less.
WIDER_ACTIONS: Final = {"RestartJob": RESTART, "RestartJobAndIgnoreMaxRestarts": RESTART_UNCOUNTED}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure policy says.

    Args:
        action: one of FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts.
        job: the failed Job that decided it.
        rule: the name of the rule; None for the default.
    """

    action: str
    job: str
    rule: str | None = None


def fail_or_restart(draft: Draft) -> bool:
    """Apply the failure policy when a Job failed; ends the pass."""
    failed = draft.buckets.failed
    if not failed:
        return False
    policy = draft.jobset.failure_policy
    if policy is None:
        fail(draft, conditions.failed_jobs(_first(failed).metadata.name))
        return True
    verdict = judge(draft.jobset, policy, failed)
    message = f"applying {verdict.action} failure policy action"
    if verdict.action == FAIL:
        fail(draft, conditions.failed("FailJobSetFailurePolicyAction", message, verdict.job))
    elif verdict.action == RESTART and counted_restarts(draft.jobset) >= policy.restarts_max:
        fail(draft, conditions.reached_max_restarts(verdict.job))
    else:
        _restart(draft, verdict, f"{message} (first failed job: {verdict.job})")
    return True


def judge(jobset: JobSet, policy: FailurePolicy, failed: Sequence[Job]) -> Verdict:
    """Find the first rule that matches a failed Job; of several matching Jobs the first to fail decides."""
    for index, rule in enumerate(policy.rules):
        matching = [job for job in failed if _applies(jobset, rule, job)]
        if matching:
            action = str(rule.get("action"))
            name = str(rule.get("name") or f"failurePolicyRule{index}")
            return Verdict(WIDER_ACTIONS.get(action, action), _first(matching).metadata.name, name)
    return Verdict(RESTART, _first(failed).metadata.name)


def counted_restarts(jobset: JobSet) -> int:
    """Return how many restarts were counted so far, those in place included."""
    if not jobset.is_in_place:
        return jobset.restarts_counted
    synced, _ = jobset.epochs
    return max(jobset.restarts_counted, synced - 1 - jobset.uncounted_epochs)


def _restart(draft: Draft, verdict: Verdict, message: str) -> None:
    """Recreate every Job: they belong to an earlier restart from the moment the status says so."""
    draft.status["restarts"] = draft.jobset.restarts + 1
    if verdict.action == RESTART:
        draft.status["restartsCountTowardsMax"] = draft.jobset.restarts_counted + 1
    draft.set(conditions.restarting(verdict.rule, message))
    draft.note(f"{verdict.action}FailurePolicyAction", message, warning=True)


def _applies(jobset: JobSet, rule: Mapping[str, Any], job: Job) -> bool:
    """Say whether a rule matches a failed Job; one with message patterns never does (not supported yet)."""
    condition = job.condition("Failed")
    reasons = rule.get("onJobFailureReasons") or ()
    targets = rule.get("targetReplicatedJobs") or ()
    if rule.get("onJobFailureMessagePatterns"):
        return False
    if reasons and (condition is None or condition.reason not in reasons):
        return False
    return not targets or jobset.places[job.metadata.name][0] in targets


def _first(failed: Sequence[Job]) -> Job:
    """Return the Job that failed first; of several in one second, the first in spec order."""
    return min(failed, key=_failed_at)


def _failed_at(job: Job) -> str:
    condition = job.condition("Failed")
    return (condition.last_transition_time or "") if condition is not None else ""
