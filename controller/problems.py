"""
What is wrong with a spec although admission let it pass: one condition, SpecProblem, and an Event when it changes.

Admission rules cannot compile a regular expression, and an object may be older than the rules. Nothing here stops
anything: each feature says in its own module what it does with a spec that it cannot follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller import conditions
from controller.draft import Draft
from controller.jobset import JobSet
from controller.order import broken_dependencies
from controller.rules import pattern_problem, rule_name


def report_problems(draft: Draft) -> bool:
    """Set SpecProblem to what is wrong now."""
    problems = list(problems_of(draft.jobset))
    draft.set(conditions.spec_problem("; ".join(problems)) if problems else conditions.NO_SPEC_PROBLEM)
    return False


def problems_of(jobset: JobSet) -> Iterator[str]:
    """Yield each problem: where it is, what is expected, what happens until it is cured."""
    yield from _bad_patterns(jobset)
    for name, dependency in broken_dependencies(jobset):
        yield (
            f"dependsOn of replicatedJob {name}: expected the name of a replicatedJob before it, saw {dependency!r}; "
            f"{name} never starts; create the jobset anew with the replicatedJobs in the order of their start"
        )


def _bad_patterns(jobset: JobSet) -> Iterator[str]:
    for index, rule in enumerate(jobset.failure_policy.rules if jobset.failure_policy is not None else ()):
        for position, pattern in enumerate(rule.get("onJobFailureMessagePatterns") or ()):
            if (why := pattern_problem(pattern)) is not None:
                yield (
                    f"spec.failurePolicy.rules[{index}].onJobFailureMessagePatterns[{position}] of rule "
                    f"{rule_name(rule, index)}: expected an RE2 regular expression, saw {pattern!r} ({why}); "
                    "it matches no failure; create the jobset anew with a pattern that compiles"
                )
