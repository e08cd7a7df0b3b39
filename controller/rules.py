"""
Which rule of a failure policy a failed Job matches: reasons, message patterns, targets; the first match wins.

FailJob is about one Job and not about the JobSet, so what it leaves alone is taken out (`left_failed`) before the rest
is judged. Patterns are RE2, as upstream's are: unanchored, and linear in the message's length whatever the pattern.
One that does not compile matches nothing; `pattern_problem` says why, and controller/problems.py tells the user.
Source: jobset pkg/controllers/failure_policy.go; KEP-262.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import re2

from controller.conditions import is_reason
from controller.jobset import JobSet
from controller.jobset_spec import FailurePolicy
from controller.kinds import Job

FAIL: Final = "FailJobSet"
RESTART: Final = "RestartJobSet"
RESTART_UNCOUNTED: Final = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB: Final = "RestartJob"
RESTART_JOB_UNCOUNTED: Final = "RestartJobAndIgnoreMaxRestarts"
# KEP-262's future work, docs/adr/0026.
RESTART_REPLICATED_JOB: Final = "RestartReplicatedJob"
RESTART_REPLICATED_JOB_UNCOUNTED: Final = "RestartReplicatedJobAndIgnoreMaxRestarts"
LEAVE_FAILED: Final = "FailJob"
ACTIONS: Final = (
    FAIL,
    RESTART,
    RESTART_UNCOUNTED,
    RESTART_JOB,
    RESTART_JOB_UNCOUNTED,
    RESTART_REPLICATED_JOB,
    RESTART_REPLICATED_JOB_UNCOUNTED,
    LEAVE_FAILED,
)

# re2 keeps the 128 patterns used last, so 128 MiB is the most that hostile ones can take; a plain one needs 10 KiB.
PATTERN_MEMORY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure policy says.

    Args:
        action: one of the above.
        job: the failed Job that decided it.
        rule: the name of the rule; None for the default.
        reason: what the rule wants as the reason of the condition; None for the action's own.
    """

    action: str
    job: Job
    rule: str | None = None
    reason: str | None = None


def judge(jobset: JobSet, policy: FailurePolicy, failed: Sequence[Job]) -> Verdict:
    """Find the first rule that matches a failed Job; of several matching Jobs the first to fail decides."""
    for index, rule in enumerate(policy.rules):
        matching = [job for job in failed if _applies(jobset, rule, job)]
        if matching:
            action = str(rule.get("action"))
            return Verdict(
                action if action in ACTIONS else RESTART,
                first_failed(matching),
                rule_name(rule, index),
                condition_reason(rule),
            )
    return Verdict(RESTART, first_failed(failed))


def left_failed(jobset: JobSet, failed: Sequence[Job]) -> Sequence[Job]:
    """Return the failed Jobs that FailJob leaves as they are: each by the first rule that matches it.

    A Job for whose completion other replicatedJobs wait is none of them: those could never start.
    """
    policy = jobset.failure_policy
    if policy is None or all(rule.get("action") != LEAVE_FAILED for rule in policy.rules):
        return ()
    waits = jobset.awaited_to_complete
    return tuple(
        job
        for job in failed
        if jobset.places[job.metadata.name][0] not in waits and judge(jobset, policy, (job,)).action == LEAVE_FAILED
    )


def rule_name(rule: Mapping[str, Any], index: int) -> str:
    """Return the name of a rule, which becomes part of a condition's reason.

    Upstream's webhook names those that have no name; one that cannot be part of a reason is named in the same way,
    or the API would refuse every status that says which rule was applied.
    """
    name = str(rule.get("name") or "")
    return name if is_reason(name) else f"failurePolicyRule{index}"


def condition_reason(rule: Mapping[str, Any]) -> str | None:
    """Return what the rule wants as the reason of the condition; None where it says nothing that can be one."""
    reason = str(rule.get("setConditionReason") or "")
    return reason if is_reason(reason) else None


def first_failed(failed: Sequence[Job]) -> Job:
    """Return the Job that failed first; of several in one second, the first in spec order."""
    return min(failed, key=_failed_at)


def pattern_problem(pattern: str) -> str | None:
    """Say why a pattern is not RE2; None when it is."""
    try:
        re2.compile(pattern, _options())
    except re2.error as error:
        (why,) = error.args
        return why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    return None


def _applies(jobset: JobSet, rule: Mapping[str, Any], job: Job) -> bool:
    """Say whether a rule matches a failed Job: every part that is given must match."""
    condition = job.condition("Failed")
    reason, message = (condition.reason, condition.message) if condition is not None else (None, None)
    reasons = rule.get("onJobFailureReasons") or ()
    patterns = rule.get("onJobFailureMessagePatterns") or ()
    targets = rule.get("targetReplicatedJobs") or ()
    return (
        (not reasons or reason in reasons)
        and (not targets or jobset.places[job.metadata.name][0] in targets)
        and (not patterns or any(_finds(pattern, message or "") for pattern in patterns))
    )


def _finds(pattern: str, message: str) -> bool:
    try:
        return re2.search(pattern, message, _options()) is not None
    except re2.error:
        return False


@cache
def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


def _failed_at(job: Job) -> str:
    condition = job.condition("Failed")
    return (condition.last_transition_time or "") if condition is not None else ""
