"""Users choose the cost of their message patterns, so a pass spends a bounded time on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat

from inplace.common.jobset.rules import (
    LOOK_S_MAX,
    PROGRAM_MAX,
    REFUSED_PROGRAM,
    RESTART_JOB,
    RESTART_UNCOUNTED,
    Matches,
    patterns_of,
)
from inplace.controller.plan.steps import plan
from tests.controller.plan.policies import started


def test_a_bad_pattern_is_a_condition() -> None:
    """A pattern that does not compile is named in SpecProblem, with the reason, once; others still match."""
    world = started({"action": "FailJobSet", "onJobFailureMessagePatterns": ["fine", "a(b"]})
    condition = world.condition("SpecProblem")
    assert condition["status"] == "True"
    assert "rules[0].onJobFailureMessagePatterns[1] of rule r0" in condition["message"]
    assert "'a(b' (missing ): a(b)" in condition["message"]
    assert world.plan().notes == ()


def test_hostile_patterns_are_cheap_or_refused() -> None:
    """Patterns of exponential time elsewhere are linear here; patterns that need much memory do not compile."""
    world = started({"action": "FailJobSet", "onJobFailureMessagePatterns": ["(a*)*(a*)*(a*)*b"]})
    world.set_job("train-a-0", "Failed", message="a" * 30_000)
    assert world.plan().status["restarts"] == 1
    assert patterns_of([{"onJobFailureMessagePatterns": [r"((\w{100}){10}){10}"]}])[0][0].problem


def test_patterns_have_a_bound_together() -> None:
    """Patterns beyond the common bound match nothing and are named; earlier ones match as usual."""
    slow = [f"(?:[ -z]?){{{900 + number}}}!" for number in range(20)]  # some 1,800 instructions each
    world = started(
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["first", *slow]},
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["last"]},
    )
    condition = world.condition("SpecProblem")
    assert "rules[0].onJobFailureMessagePatterns[4] of rule r0" in condition["message"]
    assert "rules[0].onJobFailureMessagePatterns[3]" not in condition["message"]
    assert "use up the 5,000 RE2 instructions" in condition["message"]
    compiled = [
        pattern.compiled
        for pattern in chain(*patterns_of(world.manifest["spec"]["failurePolicy"]["rules"]))
        if pattern.compiled
    ]
    assert sum(pattern.programsize for pattern in compiled[:-1]) <= PROGRAM_MAX
    world.set_job("train-a-0", "Failed", message="the last")
    assert world.plan().status["restarts"] == 1
    world.set_job("train-a-0", "Failed", message="the first")
    assert world.plan().status["terminalState"] == "Failed"


def test_patterns_that_do_not_compile_have_the_same_bound() -> None:
    """A bounded number of patterns that fail to compile is tried, because each try takes a compilation's time."""
    texts = [f"((\\w{{100}}){{10}}){{10}}{number}" for number in range(400)]
    (patterns,) = patterns_of([{"onJobFailureMessagePatterns": texts}])
    assert not any(pattern.compiled for pattern in patterns)
    tried = [pattern for pattern in patterns if "before it" not in pattern.problem]
    assert len(tried) == PROGRAM_MAX // REFUSED_PROGRAM


def test_a_pass_looks_at_failed_jobs_for_a_bounded_time() -> None:
    """A pass looks at a bounded number of failed Jobs, and decides when all were looked at: any may match rule 1."""
    world = started({"action": "FailJobSet", "onJobFailureMessagePatterns": ["xid 79"]}, {"action": RESTART_UNCOUNTED})
    for name in sorted(world.jobs):
        world.set_job(name, "Failed", message="xid 79" if name == "train-b-1" else "xid 13")
    observed, matches = world.observed(), Matches()
    failed = [observed.jobs[name] for name in sorted(observed.jobs)]
    for looked_at in (1, 2, 3):
        found = matches.look(observed.jobset, failed, chain([0.0], repeat(LOOK_S_MAX / 2, 1), repeat(1.0)).__next__)
        assert len(found) == looked_at
        planned = plan(replace(observed, matches=found))
        assert planned.status.keys().isdisjoint({"restarts", "terminalState"})
        assert planned.requeue_after_s is not None
    found = matches.look(observed.jobset, failed, lambda: 0.0)
    assert plan(replace(observed, matches=found)).status["terminalState"] == "Failed"


def test_a_failed_job_is_looked_at_once() -> None:
    """A failed Job is matched once, also over versions of the JobSet; a deleted Job is forgotten."""
    world = started({"action": RESTART_JOB, "onJobFailureMessagePatterns": ["a"]})
    world.set_job("train-a-0", "Failed", message="a")
    world.set_job("train-b-0", "Failed", message="b")
    matches, no_time = Matches(), chain([0.0], repeat(1.0)).__next__
    jobs = world.observed().jobs
    failed = [jobs["train-a-0"], jobs["train-b-0"]]
    found = matches.look(world.jobset, failed, lambda: 0.0)
    assert [found[job.metadata.uid] for job in failed] == [0, None]
    assert matches.look(world.jobset, failed, no_time) == found
    assert matches.look(world.jobset, failed[:1], lambda: 0.0) == {failed[0].metadata.uid: 0}
    world.set_job("train-a-0", "Failed", message="something else")
    assert matches.look(world.jobset, [world.observed().jobs["train-a-0"]], chain([0.0], repeat(1.0)).__next__) == {}
