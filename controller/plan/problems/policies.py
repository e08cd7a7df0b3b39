"""Find success and failure policies that refer to unknown names: V13 and V15 to V21 of upstream's webhook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from inplace.common.jobset.conditions import REASON_CHARS_MAX, is_reason
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.rules import ACTIONS, RESTART, Pattern, patterns_of, rule_name
from inplace.common.wire import names as wire
from inplace.controller.plan.executions import JOB_COUNTERS_MAX
from inplace.controller.plan.failure import WIDER

STRATEGIES: Final = ("Recreate", "BlockingRecreate", wire.IN_PLACE_RESTART)
OPERATORS: Final = ("All", "Any")
# Source: k8s.io/api batch/v1, the JobReason constants of a Failed condition.
JOB_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
CURE: Final = "recreate the jobset with"  # both policies are immutable


def bad_success_policy(jobset: JobSet) -> Iterator[str]:
    """Yield an unknown operator or unknown targets."""
    policy = jobset.success_policy
    if policy.operator not in OPERATORS:
        yield (
            f"spec.successPolicy.operator: expected {_either(OPERATORS)}, saw {policy.operator!r}; All is applied; "
            f"{CURE} one of them"
        )
    if unknown := _unknown(jobset, sorted(policy.targets)):
        none = len(unknown) == len(policy.targets)
        yield (
            f"spec.successPolicy.targetReplicatedJobs: {unknown} does not appear in .spec.ReplicatedJobs; "
            f"{'the first job that succeeds completes the jobset' if none else 'it is ignored'}; {CURE} names that do"
        )


def bad_failure_policy(jobset: JobSet) -> Iterator[str]:
    """Yield an unknown strategy, and the problems of each rule."""
    policy = jobset.failure_policy
    if policy is None:
        return
    where = "spec.failurePolicy"
    if policy.strategy not in STRATEGIES:
        yield (
            f"{where}.restartStrategy: expected {_either(STRATEGIES)}, saw {policy.strategy!r}; Recreate is applied; "
            f"{CURE} one of them"
        )
    names = Counter(rule_name(rule, index) for index, rule in enumerate(policy.rules))
    for name, count in names.items():
        if count > 1:
            yield (
                f"{where}.rules: rule names are not unique, {count} rules have the same name {name!r}; conditions do "
                f"not tell them apart; {CURE} other names"
            )
    for index, (rule, patterns) in enumerate(zip(policy.rules, patterns_of(policy.rules), strict=True)):
        yield from _bad_rule(jobset, rule, index, f"{where}.rules[{index}]")
        yield from _bad_patterns(rule, patterns, index, f"{where}.rules[{index}]")


def _bad_rule(jobset: JobSet, rule: Mapping[str, Any], index: int, where: str) -> Iterator[str]:
    name, action = rule.get("name"), rule.get("action")
    if name and not is_reason(name):
        yield (
            f"{where}.name: invalid failure policy rule name {_cut(name)!r}: expected at most {REASON_CHARS_MAX} "
            "letters, digits, '_', ',' and ':', beginning with a letter, as in a condition's reason; conditions say "
            f"{rule_name(rule, index)}; {CURE} such a name"
        )
    if (reason := rule.get("setConditionReason")) and not is_reason(reason):
        yield (
            f"{where}.setConditionReason: expected at most {REASON_CHARS_MAX} letters, digits, '_', ',' and ':', "
            f"beginning with a letter, saw {_cut(reason)!r}; conditions have the action's own reason; {CURE} such a "
            "reason"
        )
    if action not in ACTIONS:
        yield f"{where}.action: expected {_either(ACTIONS)}, saw {action!r}; {RESTART} is applied; {CURE} one of them"
    if action in WIDER:
        for job in jobset.replicated_jobs:
            if job.replicas > JOB_COUNTERS_MAX:
                yield (
                    f"{where}.action: {action} cannot be used with a replicated job with replicas > "
                    f"{JOB_COUNTERS_MAX}: found {job.replicas} in replicatedJob {job.name}; beyond that index "
                    f"{WIDER[action]} is applied; {CURE} fewer replicas or another action"
                )
    for reason in rule.get("onJobFailureReasons") or ():
        if reason not in JOB_FAILURE_REASONS:
            yield (
                f"{where}.onJobFailureReasons: invalid job failure reason {reason!r} is not a recognized job failure "
                f"reason: expected {_either(JOB_FAILURE_REASONS)}; no job fails with it; {CURE} one of them"
            )
    if unknown := _unknown(jobset, rule.get("targetReplicatedJobs") or ()):
        yield (
            f"{where}.targetReplicatedJobs: {unknown} does not appear in .spec.ReplicatedJobs; no job of it fails; "
            f"{CURE} names that do"
        )


def _bad_patterns(rule: Mapping[str, Any], patterns: Sequence[Pattern], index: int, where: str) -> Iterator[str]:
    texts = rule.get("onJobFailureMessagePatterns") or ()
    for position, (text, pattern) in enumerate(zip(texts, patterns, strict=True)):
        if pattern.problem:
            yield (
                f"{where}.onJobFailureMessagePatterns[{position}] of rule {rule_name(rule, index)}: expected an RE2 "
                f"regular expression, saw {_cut(text)!r} ({_cut(pattern.problem)}); it matches no failure; {CURE} a "
                "pattern that compiles"
            )


def _unknown(jobset: JobSet, names: Iterable[str]) -> list[str]:
    known = {job.name for job in jobset.replicated_jobs}
    return [name for name in names if name not in known]


def _either(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}"


def _cut(text: str) -> str:
    """Shorten what a user wrote, so that one long field does not push the other problems out of the message."""
    return text if len(text) <= REASON_CHARS_MAX else f"{text[:REASON_CHARS_MAX]}..."
