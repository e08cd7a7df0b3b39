"""
Find the failure policy rule that a failed Job matches: reasons, message patterns, targets; the first match wins.

FailJob concerns one Job and not the JobSet, so its Jobs are taken out (`left_failed`) before the others are judged.
Patterns are RE2, as upstream's are: unanchored, and linear in the message's length. The author of a pattern decides its
cost per character: 10 us or 10 ms for a message. So all patterns of a policy together have a bound, and `Matches` looks
at each failed Job once, for a bounded time in one pass. A pattern that does not compile matches nothing; `patterns_of`
says why, and controller/plan/problems/report.py tells the user. Source: jobset pkg/controllers/failure_policy.go;
KEP-262.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

import re2

from inplace.common.jobset.conditions import is_reason
from inplace.common.jobset.fields import FailurePolicy
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Condition, Job

FAIL: Final = "FailJobSet"
RESTART: Final = "RestartJobSet"
RESTART_UNCOUNTED: Final = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB: Final = "RestartJob"
RESTART_JOB_UNCOUNTED: Final = "RestartJobAndIgnoreMaxRestarts"
# KEP-262's future work, docs/adr/0029.
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

PATTERN_MEMORY_BYTES: Final = 128 * 1024  # of one pattern; a plain one needs 10 KiB
PATTERNS_KEPT: Final = 512  # compiled: 64 MiB if all are hostile. A policy has at most 400
PROGRAM_MAX: Final = 5_000  # RE2 instructions of all patterns of a policy; a plain pattern has 20 to 100
REFUSED_PROGRAM: Final = 100  # what a pattern counts that does not compile: to find that out takes as long
MESSAGE_CHARACTERS_MAX: Final = 1_024  # that are searched; the Job controller's longest has some 300
LOOK_S_MAX: Final = 0.05  # of one pass; one Job with the worst patterns and the longest message takes 0.1 s by itself

Rules = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One message pattern: compiled, or why it matches nothing."""

    compiled: Any = None
    problem: str = ""


@dataclass(slots=True)
class Matches:
    """Which rule of a failure policy each failed Job matches, by UID; None for no rule.

    A Job that is absent was not looked at yet: see `LOOK_S_MAX`.
    """

    found: Mapping[str, int | None] = field(default_factory=dict)
    _rules: Rules = ()
    _conditions: Mapping[str, Condition | None] = field(default_factory=dict)

    def look(self, jobset: JobSet, failed: Sequence[Job], now_s: Callable[[], float]) -> Mapping[str, int | None]:
        """Find the rules of those failed Jobs that were not looked at before, and forget all that are gone."""
        rules = jobset.failure_policy.rules if jobset.failure_policy is not None else ()
        known = self._conditions if rules == self._rules else {}
        patterns, until_s = patterns_of(rules), now_s() + LOOK_S_MAX
        found: dict[str, int | None] = {}
        conditions: dict[str, Condition | None] = {}
        for job in failed:
            uid, condition = job.metadata.uid, job.condition("Failed")
            if uid in known and known[uid] == condition:
                found[uid] = self.found[uid]
            elif now_s() < until_s:
                found[uid] = _first_match(jobset, rules, patterns, job)
            else:
                continue
            conditions[uid] = condition
        self.found, self._rules, self._conditions = found, rules, conditions
        return found


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The decision of a failure policy.

    Args:
        action: one of the above.
        job: the failed Job that decided it.
        rule: the name of the rule; None for the default.
        reason: the condition's reason that the rule sets; None for the action's own.
    """

    action: str
    job: Job
    rule: str | None = None
    reason: str | None = None


def judge(policy: FailurePolicy, failed: Sequence[Job], matches: Mapping[str, int | None]) -> PolicyVerdict:
    """Find the first rule that matches a failed Job; of several matching Jobs the first to fail decides."""
    index = min((index for job in failed if (index := matches.get(job.metadata.uid)) is not None), default=None)
    if index is None:
        return PolicyVerdict(RESTART, first_failed(failed))
    rule = policy.rules[index]
    action = str(rule.get("action"))
    return PolicyVerdict(
        action if action in ACTIONS else RESTART,
        first_failed([job for job in failed if matches.get(job.metadata.uid) == index]),
        rule_name(rule, index),
        condition_reason(rule),
    )


def left_failed(jobset: JobSet, failed: Sequence[Job], matches: Mapping[str, int | None]) -> Sequence[Job]:
    """Return the failed Jobs that FailJob leaves as they are: each by the first rule that matches it.

    A Job for whose completion other replicatedJobs wait is none of them: those could never start.
    """
    rules = jobset.failure_policy.rules if jobset.failure_policy is not None else ()
    leaving = {index for index, rule in enumerate(rules) if rule.get("action") == LEAVE_FAILED}
    waits = jobset.awaited_to_complete
    return tuple(
        job
        for job in failed
        if matches.get(job.metadata.uid) in leaving and jobset.places[job.metadata.name][0] not in waits
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


def patterns_of(rules: Rules) -> Sequence[Sequence[Pattern]]:
    """Compile the message patterns of each rule, in order, as long as all together are not too large."""
    left = PROGRAM_MAX
    patterns: list[list[Pattern]] = []
    for rule in rules:
        patterns.append([])
        for text in rule.get("onJobFailureMessagePatterns") or ():
            if left > 0:
                pattern = _compile(str(text))
                left -= pattern.compiled.programsize if pattern.compiled is not None else REFUSED_PROGRAM
            else:
                pattern = Pattern(
                    problem=f"the patterns before it use up the {PROGRAM_MAX:,} RE2 instructions of a policy"
                )
            patterns[-1].append(pattern)
    return patterns


@lru_cache(maxsize=PATTERNS_KEPT)
def _compile(text: str) -> Pattern:
    try:
        return Pattern(re2.compile(text, _options()))
    except re2.error as error:
        (why,) = error.args
        return Pattern(problem=why.decode(errors="replace") if isinstance(why, bytes) else str(why))


def _first_match(jobset: JobSet, rules: Rules, patterns: Sequence[Sequence[Pattern]], job: Job) -> int | None:
    """Return the first rule that matches a failed Job: every part that is given must match."""
    condition = job.condition("Failed")
    reason, message = (condition.reason, condition.message) if condition is not None else (None, None)
    searched = (message or "")[:MESSAGE_CHARACTERS_MAX]
    for index, rule in enumerate(rules):
        reasons = rule.get("onJobFailureReasons") or ()
        targets = rule.get("targetReplicatedJobs") or ()
        if (
            (not reasons or reason in reasons)
            and (not targets or jobset.places[job.metadata.name][0] in targets)
            and (not patterns[index] or any(_finds(pattern, searched) for pattern in patterns[index]))
        ):
            return index
    return None


def _finds(pattern: Pattern, message: str) -> bool:
    return pattern.compiled is not None and pattern.compiled.search(message) is not None


@cache
def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    return options


def _failed_at(job: Job) -> str:
    condition = job.condition("Failed")
    return (condition.last_transition_time or "") if condition is not None else ""
