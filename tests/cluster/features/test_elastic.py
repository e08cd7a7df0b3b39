"""Elastic Indexed Jobs: parallelism and completions that change while the JobSet lives."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.errors import Invalid
from inplace.common.kube.resources import KubeObject
from tests.cluster.features.stage import START, Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"


async def resize(stage: Stage, pods: int, **spec: Any) -> None:
    """Give the one replicatedJob another size."""
    await stage.edit({"spec": {"replicatedJobs": [replicated_job(pods=pods, **spec)]}})


async def size(stage: Stage, name: str = JOB) -> tuple[int, int]:
    """Return (parallelism, completions) of a Job."""
    spec = (await stage.jobs())[name]["spec"]
    return spec["parallelism"], spec["completions"]


async def test_a_finished_jobset_is_not_resized(stage: Stage) -> None:
    """The write is refused in upstream's words; its Jobs have ended and keep their size."""
    await stage.start(jobset(strategy=None))
    await stage.succeed(JOB)
    await stage.becomes_terminal("Completed")
    with pytest.raises(Invalid, match="Cannot mutate parallelism or completions when JobSet is in a terminal state"):
        await resize(stage, 4)
    await stage.edit({"metadata": {"labels": {"looked": "again"}}})
    await stage.counts_are("workers", succeeded=1)
    assert await size(stage) == (2, 2)


def queued(pods: int) -> KubeObject:
    """Return a Job status with this number of ready Pods."""
    return {"startTime": START, "active": pods, "ready": pods}


async def test_counters_follow_the_size(stage: Stage) -> None:
    """The counter `ready` compares with the current size."""
    await stage.start(jobset(strategy=None))
    await stage.report(JOB, **queued(2))
    await stage.counts_are("workers", active=1, ready=1)
    await resize(stage, 3)
    await stage.counts_are("workers", active=1)
    await stage.report(JOB, **queued(3))
    await stage.counts_are("workers", active=1, ready=1)
