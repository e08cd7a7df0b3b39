"""spec.failurePolicy: the rule that a failed Job matches, its effect, and its count against maxRestarts."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job
from tests.deploy.spec_cases import rule

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"


def with_policy(*rules: KubeObject, restarts_max: int = 2) -> KubeObject:
    """Return a JobSet of a (2 Jobs) and b (1 Job)."""
    policy = {"maxRestarts": restarts_max, "rules": list(rules)}
    return jobset(strategy=None, jobs=[replicated_job("a", replicas=2), replicated_job("b")], failurePolicy=policy)


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
    message = "applying FailJobSet failure policy action (first failed job: train-b-0)"
    await stage.becomes("Failed", "True", "FailJobSetFailurePolicyAction", message)


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


async def test_a_failure_comes_before_a_success(stage: Stage) -> None:
    """When one Job failed and another succeeded, the failure decides, although Any is met."""
    jobs = [replicated_job("a", replicas=2)]
    await stage.start(jobset(strategy=None, jobs=jobs, successPolicy={"operator": "Any"}))
    await stage.fail("train-a-0")
    await stage.becomes_terminal("Failed")
    await stage.succeed("train-a-1")
    await stage.counts_are("a", failed=1)
    assert await stage.words("Completed") is None
