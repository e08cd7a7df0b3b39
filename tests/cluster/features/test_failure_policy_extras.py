"""Parts of KEP-262 that upstream leaves for later and this controller has: docs/adr/0029."""

from __future__ import annotations

from typing import Final

import pytest

from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.cluster.features.test_failure_policy import JOB_RESTART_ATTEMPT, with_policy
from tests.deploy.spec_cases import rule

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACTIONS: Final = {"RestartReplicatedJob": [0, 1], "RestartReplicatedJobAndIgnoreMaxRestarts": None}


@pytest.mark.parametrize("action", ACTIONS)
async def test_one_replicated_job_is_restarted(stage: Stage, action: str) -> None:
    """All Jobs of the replicatedJob are recreated, succeeded ones too; other Jobs stay; the failure counts once."""
    before = await stage.start(with_policy(rule("mine", action)))
    await stage.succeed("train-a-0")
    await stage.counts_are("a", succeeded=1)
    await stage.fail("train-a-1")
    await eventually(
        lambda: stage.labels_of(JOB_RESTART_ATTEMPT), {"train-a-0": "1", "train-a-1": "1", "train-b-0": "0"}
    )
    after = await stage.jobs()
    assert after["train-b-0"]["metadata"]["uid"] == before["train-b-0"]["metadata"]["uid"]
    entry = await stage.counts("a")
    assert (entry["jobRestarts"], entry.get("jobRestartsCountTowardsMax")) == ([1, 1], ACTIONS[action])
    message = f"applying {action} failure policy action (first failed job: train-a-1)"
    await stage.says(f"{action}FailurePolicyAction", "Warning", message)


async def test_a_job_is_left_failed(stage: Stage) -> None:
    """FailJob leaves the Job as it is; the JobSet goes on and completes without it."""
    await stage.start(with_policy(rule("mine", "FailJob", setConditionReason="BadInput")))
    await stage.fail("train-a-1")
    await stage.says_soon("BadInput")
    condition = await stage.condition("JobsLeftFailed")
    assert (condition["status"], condition["reason"]) == ("True", "BadInput")
    await stage.succeed("train-a-0", "train-b-0")
    await stage.becomes("Completed", "True", "AllJobsCompleted", "jobset completed successfully")
    assert (await stage.status())["restarts"] == 0


async def test_everything_left_failed_is_a_failure(stage: Stage) -> None:
    """The JobSet fails when every Job was left failed."""
    await stage.start(with_policy(rule("mine", "FailJob")))
    for name in ("train-a-0", "train-a-1", "train-b-0"):
        await stage.fail(name)
    await stage.becomes_terminal("Failed")


async def test_a_reason_of_ones_own(stage: Stage) -> None:
    """`setConditionReason` becomes the reason of the condition Failed; upstream uses the action's name."""
    await stage.start(with_policy(rule("mine", setConditionReason="OutOfQuota")))
    await stage.fail("train-a-1")
    message = "applying FailJobSet failure policy action (first failed job: train-a-1)"
    await stage.becomes("Failed", "True", "OutOfQuota", message)
    await stage.says("OutOfQuota", "Warning", message)
