"""spec.activeDeadlineSeconds: the end of a JobSet that is active for too long."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import JOBS
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")


def message(deadline_s: int) -> str:
    """Return upstream's words."""
    return f"JobSet was active for longer than the specified deadline of {deadline_s} seconds"


@pytest.mark.parametrize("strategy", [None, "Recreate", "InPlaceRestart"])
async def test_the_time_is_over(stage: Stage, controller: ServedController, strategy: str | None) -> None:
    """The JobSet fails with upstream's words, what ran is deleted, what succeeded stays, and the metrics count it."""
    jobs = [replicated_job("a"), replicated_job("b")]
    await stage.start(jobset(strategy=strategy, jobs=jobs, activeDeadlineSeconds=2))
    await stage.be_ready("train-a-0")
    await stage.succeed("train-b-0")
    await stage.becomes("Failed", "True", "DeadlineExceeded", message(2))
    await stage.becomes_terminal("Failed")
    await stage.says("DeadlineExceeded", "Warning", message(2))
    await stage.has_jobs("train-b-0")
    labels = f'{{jobset_name="train",namespace="{stage.namespace}"}} 1.0'
    lines = {f"{name}{labels}" for name in ("jobset_failed_total", "jobset_active_deadline_exceeded_total")}
    await eventually(lambda: lines <= set(controller.metrics().splitlines()), True)


async def test_it_may_change_while_it_runs(stage: Stage) -> None:
    """Added, raised and removed it ends nothing; lowered below the time that has passed, it ends the JobSet."""
    await stage.start(jobset(strategy=None))
    await stage.shows(executionAttempts=0)
    began = (await stage.status())["startTime"]
    values: tuple[Any, ...] = (3600, 7200, None)
    for value in values:
        await stage.edit({"spec": {"activeDeadlineSeconds": value}})
    await stage.be_ready("train-workers-0")
    await stage.counts_are("workers", ready=1, active=1)
    assert (await stage.status())["startTime"] == began
    await stage.edit({"spec": {"activeDeadlineSeconds": 1}})
    await stage.becomes("Failed", "True", "DeadlineExceeded", message(1))


async def test_a_suspended_jobset_has_time(stage: Stage) -> None:
    """While it is suspended no time passes, and after a resume it has all of it again."""
    await stage.start(jobset(strategy=None, suspend=True, activeDeadlineSeconds=1))
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    other = Stage(stage.client, stage.namespace, "other")
    await other.start(jobset("other", strategy=None, activeDeadlineSeconds=2))
    await other.becomes("Failed", "True", "DeadlineExceeded", message(2))
    assert await stage.words("Failed") is None
    assert "startTime" not in await stage.status()
    await stage.edit({"spec": {"suspend": False}})
    await stage.becomes("Failed", "True", "DeadlineExceeded", message(1))
    assert (await stage.status())["startTime"]


async def test_a_success_in_time(stage: Stage) -> None:
    """A JobSet that completed is left alone when its time is over."""
    await stage.start(jobset(strategy=None, activeDeadlineSeconds=2))
    await stage.succeed("train-workers-0")
    await stage.becomes_terminal("Completed")
    other = Stage(stage.client, stage.namespace, "other")
    await other.start(jobset("other", strategy=None, activeDeadlineSeconds=2))
    await other.becomes("Failed", "True", "DeadlineExceeded", message(2))
    assert await stage.words("Failed") is None
    assert (await stage.client.get(JOBS, stage.namespace, "train-workers-0"))["metadata"].get(
        "deletionTimestamp"
    ) is None
