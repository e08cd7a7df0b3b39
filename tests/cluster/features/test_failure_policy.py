"""spec.failurePolicy: the rule that a failed Job matches, its effect, and its count against maxRestarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job
from tests.deploy.spec_cases import rule

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACTIONS: Final = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"
FAILED_ON_42: Final = "Container main for pod ns/train-a-1-0 failed with exit code 42 matching FailJob rule at index 0"


def with_policy(*rules: KubeObject, restarts_max: int = 2) -> KubeObject:
    """Return a JobSet of a (2 Jobs) and b (1 Job)."""
    policy = {"maxRestarts": restarts_max, "rules": list(rules)}
    return jobset(strategy=None, jobs=[replicated_job("a", replicas=2), replicated_job("b")], failurePolicy=policy)


def is_alone(action: str) -> bool:
    """Return whether an action concerns one Job."""
    return action in ("RestartJob", "RestartJobAndIgnoreMaxRestarts")


async def applied(stage: Stage, action: str, name: str | None, job: str) -> None:
    """Wait for all effects of an action after a first failure."""
    message = f"applying {action} failure policy action (first failed job: {job})"
    if action == "FailJobSet":
        await stage.becomes("Failed", "True", "FailJobSetFailurePolicyAction", message)
        await stage.says("FailJobSetFailurePolicyAction", "Warning", message)
        await stage.shows(restarts=0, terminalState="Failed")
        return
    await stage.says(f"{action}FailurePolicyAction", "Warning", message)
    counted = int(not action.endswith("IgnoreMaxRestarts"))
    if is_alone(action):
        entry = await stage.counts("a")
        assert (entry["jobRestarts"], entry.get("jobRestartsCountTowardsMax")) == ([0, 1], [0, 1] if counted else None)
        assert await stage.words("RestartingJobSet") is None
        await stage.has_jobs("train-a-0", "train-a-1", "train-b-0")
        attempts = {"train-a-0": "0", "train-a-1": "1", "train-b-0": "0"}
        await eventually(lambda: stage.labels_of(JOB_RESTART_ATTEMPT), attempts)
        return
    reason = "DefaultFailurePolicy" if name is None else f"FailurePolicy_{name}"
    await stage.becomes("RestartingJobSet", "True", reason, message)
    await stage.says(reason, "Warning", message)
    status = await stage.status()
    assert (status["restarts"], status.get("restartsCountTowardsMax") or 0) == (1, counted)
    await restarted(stage, "1")


async def restarted(stage: Stage, attempt: str) -> None:
    """Wait until every Job has this restart-attempt."""
    await eventually(
        lambda: stage.labels_of(RESTART_ATTEMPT),
        {"train-a-0": attempt, "train-a-1": attempt, "train-b-0": attempt},
    )


@pytest.mark.parametrize("action", ACTIONS)
async def test_actions(stage: Stage, action: str) -> None:
    """Each action has its effects, with upstream's messages."""
    await stage.start(with_policy(rule("mine", action)))
    await stage.fail("train-a-1")
    await applied(stage, action, "mine", "train-a-1")


@pytest.mark.parametrize("reason", REASONS)
async def test_reasons(stage: Stage, reason: str) -> None:
    """A rule for one failure reason matches a Job with this reason and no Job with another."""
    other = next(one for one in REASONS if one != reason)
    rules = (rule("other", onJobFailureReasons=[other]), rule("mine", "RestartJobSet", onJobFailureReasons=[reason]))
    await stage.start(with_policy(*rules))
    await stage.fail("train-a-1", reason)
    await applied(stage, "RestartJobSet", "mine", "train-a-1")


@dataclass(frozen=True)
class Match:
    """Conditions of a FailJobSet rule, and whether a Job `train-a-1` that failed on exit code 42 meets it."""

    claim: str
    matches: bool
    reasons: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


MATCHES: Final = (
    Match("nothing_asked", True),
    Match("one_of_two_reasons", True, reasons=("DeadlineExceeded", "PodFailurePolicy")),
    Match("none_of_two_reasons", False, reasons=("DeadlineExceeded", "FailedIndexes")),
    Match("pattern_in_the_middle", True, patterns=("exit code 42",)),
    Match("pattern_with_alternatives", True, patterns=(r"exit code (41|42)\b",)),
    Match("pattern_anchored_at_the_start", True, patterns=("^Container main",)),
    Match("pattern_anchored_elsewhere", False, patterns=("^exit code 42",)),
    Match("pattern_at_the_end", True, patterns=("at index 0$",)),
    Match("pattern_of_another_code", False, patterns=("exit code 43",)),
    Match("pattern_minds_the_case", False, patterns=("EXIT CODE 42",)),
    Match("pattern_with_a_flag", True, patterns=("(?i)EXIT CODE 42",)),
    Match("pattern_class_of_re2", True, patterns=(r"code [[:digit:]]{2} ",)),
    Match("one_of_two_patterns", True, patterns=("OOM", "42")),
    Match("none_of_two_patterns", False, patterns=("OOM", "137")),
    Match("pattern_that_would_backtrack", False, patterns=("(C*)*x$",)),
    Match("its_target", True, targets=("a",)),
    Match("another_target", False, targets=("b",)),
    Match("one_of_two_targets", True, targets=("b", "a")),
    Match("all_three", True, ("PodFailurePolicy",), ("42",), ("a",)),
    Match("all_but_the_reason", False, ("DeadlineExceeded",), ("42",), ("a",)),
    Match("all_but_the_pattern", False, ("PodFailurePolicy",), ("43",), ("a",)),
    Match("all_but_the_target", False, ("PodFailurePolicy",), ("42",), ("b",)),
)


@pytest.mark.parametrize("case", MATCHES, ids=lambda case: case.claim)
async def test_matches(stage: Stage, case: Match) -> None:
    """A rule applies when all its parts match; otherwise the default restarts all Jobs."""
    parts: dict[str, Any] = {
        "onJobFailureReasons": list(case.reasons),
        "onJobFailureMessagePatterns": list(case.patterns),
        "targetReplicatedJobs": list(case.targets),
    }
    await stage.start(with_policy(rule("mine", **{name: value for name, value in parts.items() if value})))
    await stage.fail("train-a-1", "PodFailurePolicy", FAILED_ON_42)
    if case.matches:
        await applied(stage, "FailJobSet", "mine", "train-a-1")
    else:
        await applied(stage, "RestartJobSet", None, "train-a-1")


async def test_the_first_rule_that_matches_decides(stage: Stage) -> None:
    """The first matching rule applies, although a later one matches too."""
    first = rule("first", "RestartJobSetAndIgnoreMaxRestarts", targetReplicatedJobs=["a"])
    await stage.start(with_policy(rule("not", onJobFailureReasons=["DeadlineExceeded"]), first, rule("later")))
    await stage.fail("train-a-1")
    await applied(stage, "RestartJobSetAndIgnoreMaxRestarts", "first", "train-a-1")


async def test_of_several_the_first_to_fail_decides(stage: Stage, controller: ServedController) -> None:
    """Of several failed Jobs the one that failed first is named, although it is last in the spec."""
    await stage.start(with_policy(restarts_max=0))
    async with controller.replaced():
        await stage.fail("train-a-0", at="2026-01-01T00:00:03Z")
        await stage.fail("train-a-1", at="2026-01-01T00:00:02Z")
        await stage.fail("train-b-0", at="2026-01-01T00:00:01Z")
    message = "jobset failed due to reaching max number of restarts (first failed job: train-b-0)"
    await stage.becomes("Failed", "True", "ReachedMaxRestarts", message)


async def test_an_earlier_rule_beats_an_earlier_failure(stage: Stage, controller: ServedController) -> None:
    """An earlier rule decides, although a later rule's Job failed earlier."""
    rules = (rule("b_first", targetReplicatedJobs=["b"]), rule("all", "RestartJobSet"))
    await stage.start(with_policy(*rules))
    async with controller.replaced():
        await stage.fail("train-a-0", at="2026-01-01T00:00:01Z")
        await stage.fail("train-b-0", at="2026-01-01T00:00:09Z")
    await applied(stage, "FailJobSet", "b_first", "train-b-0")


async def test_two_jobs_restart_alone_one_pass_each(stage: Stage, controller: ServedController) -> None:
    """Both are restarted and counted, and the third Job is left alone."""
    jobs = await stage.start(with_policy(rule("one", "RestartJob"), restarts_max=2))
    async with controller.replaced():
        await stage.fail("train-a-0")
        await stage.fail("train-a-1")
    await eventually(
        lambda: stage.labels_of(JOB_RESTART_ATTEMPT), {"train-a-0": "1", "train-a-1": "1", "train-b-0": "0"}
    )
    entry = await stage.counts("a")
    assert (entry["jobRestarts"], entry["jobRestartsCountTowardsMax"]) == ([1, 1], [1, 1])
    assert (await stage.jobs())["train-b-0"]["metadata"]["uid"] == jobs["train-b-0"]["metadata"]["uid"]


async def test_no_policy(stage: Stage) -> None:
    """Without a failurePolicy the first failure fails the JobSet."""
    await stage.start(jobset(strategy=None, jobs=[replicated_job("a", replicas=2)]))
    await stage.fail("train-a-1", "DeadlineExceeded")
    message = "jobset failed due to one or more job failures (first failed job: train-a-1)"
    await stage.becomes("Failed", "True", "FailedJobs", message)
    await stage.says("FailedJobs", "Warning", message)
    await stage.shows(terminalState="Failed", restarts=0)
    await stage.has_jobs("train-a-1")  # the failed Job stays for its logs; the running one is deleted


@pytest.mark.parametrize("restarts_max", [0, 1, 2])
async def test_max_restarts(stage: Stage, restarts_max: int) -> None:
    """`maxRestarts` counted restarts happen; the next failure fails the JobSet."""
    await stage.start(with_policy(restarts_max=restarts_max))
    for attempt in range(1, restarts_max + 1):
        await stage.fail("train-b-0")
        await restarted(stage, str(attempt))
        await stage.shows(restarts=attempt, restartsCountTowardsMax=attempt)
    await stage.fail("train-b-0")
    message = "jobset failed due to reaching max number of restarts (first failed job: train-b-0)"
    await stage.becomes("Failed", "True", "ReachedMaxRestarts", message)
    await stage.says("ReachedMaxRestarts", "Warning", message)
    assert (await stage.status())["restarts"] == restarts_max


@pytest.mark.parametrize("action", ["RestartJobSet", "RestartJob"])
async def test_the_budget_is_shared(stage: Stage, action: str) -> None:
    """Restarts of all Jobs and of one count towards the same maximum; those that ignore it do not count."""
    rules = (
        rule("free", "RestartJobAndIgnoreMaxRestarts", onJobFailureReasons=["DeadlineExceeded"]),
        rule("alone", "RestartJob", targetReplicatedJobs=["b"]),
        rule("mine", action),
    )
    await stage.start(with_policy(*rules, restarts_max=1))
    await stage.fail("train-b-0")
    await stage.has_jobs("train-a-0", "train-a-1", "train-b-0")
    await stage.fail("train-a-1", "DeadlineExceeded")
    await stage.says(
        "RestartJobAndIgnoreMaxRestartsFailurePolicyAction",
        "Warning",
        "applying RestartJobAndIgnoreMaxRestarts failure policy action (first failed job: train-a-1)",
    )
    await stage.has_jobs("train-a-0", "train-a-1", "train-b-0")
    await stage.fail("train-a-0")
    message = "jobset failed due to reaching max number of restarts (first failed job: train-a-0)"
    await stage.becomes("Failed", "True", "ReachedMaxRestarts", message)


async def test_names_left_empty(stage: Stage) -> None:
    """A rule without a name gets its index as name."""
    await stage.start(with_policy(rule("x", onJobFailureReasons=["FailedIndexes"]), rule("", "RestartJobSet")))
    await stage.fail("train-a-1")
    await applied(stage, "RestartJobSet", "failurePolicyRule1", "train-a-1")
