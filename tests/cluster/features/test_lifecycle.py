"""TTL, deletion, and the strategies that recreate Jobs."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import JOBS, JOBSETS, KubeObject
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"


async def is_leaving(stage: Stage) -> bool:
    """Return whether the JobSet is being deleted in the foreground."""
    metadata = (await stage.jobset())["metadata"]
    return "deletionTimestamp" in metadata and metadata["finalizers"] == ["foregroundDeletion"]


async def end(stage: Stage, how: str) -> None:
    """Let the one Job end."""
    if how == "Completed":
        await stage.succeed("train-workers-0")
    else:
        await stage.fail("train-workers-0")
    await stage.becomes_terminal(how)


@pytest.mark.parametrize("how", ["Completed", "Failed"])
@pytest.mark.parametrize("ttl_s", [0, 2])
async def test_ttl(stage: Stage, how: str, ttl_s: int) -> None:
    """A JobSet that completed or failed is deleted in the foreground after its TTL."""
    await stage.start(jobset(strategy=None, ttlSecondsAfterFinished=ttl_s))
    assert "deletionTimestamp" not in (await stage.jobset())["metadata"]
    await end(stage, how)
    await eventually(lambda: is_leaving(stage), True)


async def test_no_ttl(stage: Stage) -> None:
    """Without a TTL a finished JobSet stays, and its finished Jobs with it."""
    await stage.start(jobset(strategy=None))
    await end(stage, "Completed")
    await stage.edit({"metadata": {"labels": {"looked": "again"}}})
    await stage.counts_are("workers", succeeded=1)
    assert not await stage.leaving()
    assert "deletionTimestamp" not in (await stage.jobset())["metadata"]


async def test_ttl_set_after_the_end(stage: Stage) -> None:
    """A TTL that is set after the end counts from the end."""
    await stage.start(jobset(strategy=None, ttlSecondsAfterFinished=100_000))
    await end(stage, "Completed")
    await stage.edit({"spec": {"ttlSecondsAfterFinished": 0}})
    await eventually(lambda: is_leaving(stage), True)


@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
async def test_a_jobset_that_is_deleted_is_left_alone(stage: Stage, propagation: str) -> None:
    """For a JobSet that is being deleted nothing is created or changed; the garbage collector deletes its objects."""
    await stage.submit(jobset(strategy=None) | {})
    await stage.has_jobs("train-workers-0")
    await stage.client.patch(JOBSETS, stage.namespace, "train", {"metadata": {"finalizers": ["example.com/hold"]}})
    await stage.client.delete(JOBSETS, stage.namespace, "train", propagation=propagation)
    for number, name in enumerate(("first", "second")):  # what is made for them is made after the deletion was seen
        other = Stage(stage.client, stage.namespace, name)
        await other.start(jobset(name, strategy=None))
        if number == 0:
            await stage.client.delete(JOBS, stage.namespace, "train-workers-0")
    assert await stage.jobs() == {}
    await stage.client.patch(JOBSETS, stage.namespace, "train", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await stage.jobset()


async def test_a_namesake_comes_after_a_deletion(stage: Stage) -> None:
    """A new JobSet with a deleted one's name gets its Jobs as soon as the names are free."""
    first = (await stage.start(jobset(strategy=None)))["train-workers-0"]["metadata"]["uid"]
    await stage.client.delete(JOBSETS, stage.namespace, "train")
    await stage.submit(jobset(strategy=None))
    await stage.says_soon("JobCreationFailed")
    await stage.client.delete(JOBS, stage.namespace, "train-workers-0")

    async def is_new() -> bool:
        return all(job["metadata"]["uid"] != first for job in (await stage.jobs()).values())

    await stage.has_jobs("train-workers-0")
    await eventually(is_new, True)


def two(strategy: str) -> KubeObject:
    """Return a JobSet of two Jobs."""
    return jobset(strategy=strategy, jobs=[replicated_job(replicas=2)])


async def test_recreate_does_not_wait_for_others(stage: Stage) -> None:
    """Each Job is recreated as soon as its own name is free, beside old Jobs that still terminate."""
    await stage.start(two("Recreate"))
    await stage.fail("train-workers-1")
    await stage.shows(restarts=1)
    await eventually(stage.leaving, {"train-workers-0", "train-workers-1"})
    await stage.client.patch(JOBS, stage.namespace, "train-workers-1", {"metadata": {"finalizers": None}})

    async def attempts() -> dict[str, str]:
        return {name: job["metadata"]["labels"][RESTART_ATTEMPT] for name, job in (await stage.jobs()).items()}

    await eventually(attempts, {"train-workers-0": "0", "train-workers-1": "1"})


async def test_blocking_recreate_waits_for_all(stage: Stage) -> None:
    """No Job is recreated BEFORE the last old one is gone."""
    await stage.start(two("BlockingRecreate"))
    await stage.fail("train-workers-1")
    await stage.shows(restarts=1)
    await eventually(stage.leaving, {"train-workers-0", "train-workers-1"})
    await stage.client.patch(JOBS, stage.namespace, "train-workers-1", {"metadata": {"finalizers": None}})
    other = Stage(stage.client, stage.namespace, "other")  # the controller has had enough time to create it
    await other.start(jobset("other", strategy=None))
    assert set(await stage.jobs()) == {"train-workers-0"}
    await stage.has_jobs("train-workers-0", "train-workers-1")
    assert set((await stage.labels_of(RESTART_ATTEMPT)).values()) == {"1"}


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate", "InPlaceRestart"])
async def test_successful_jobs_are_recreated_too(stage: Stage, strategy: str) -> None:
    """After a Job's failure every strategy recreates all Jobs, succeeded ones too."""
    await stage.start(two(strategy))
    await stage.succeed("train-workers-0")
    await stage.counts_are("workers", succeeded=1)
    await stage.fail("train-workers-1")
    await eventually(lambda: stage.labels_of(RESTART_ATTEMPT), {"train-workers-0": "1", "train-workers-1": "1"})
    await stage.counts_are("workers")


async def test_a_job_deleted_by_hand_comes_back(stage: Stage) -> None:
    """A Job deleted by hand is recreated with the same restart-attempt, and no restart counts."""
    await stage.start(two("Recreate"))
    await stage.client.delete(JOBS, stage.namespace, "train-workers-0")
    await stage.has_jobs("train-workers-0", "train-workers-1")
    assert set((await stage.labels_of(RESTART_ATTEMPT)).values()) == {"0"}
    await stage.shows(restarts=0)


async def test_a_foreign_job_of_our_name_is_left_alone(stage: Stage) -> None:
    """A foreign Job with our name is neither adopted nor deleted; a Warning names it until the name is free."""
    template = replicated_job()["template"]["spec"]["template"]
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train-workers-0"},
        "spec": {"template": template},
    }
    stored = await stage.client.create(JOBS, stage.namespace, foreign)
    await stage.submit(two("Recreate"))
    await stage.has_jobs("train-workers-1")
    await stage.says_soon("JobCreationFailed")
    kept = await stage.client.get(JOBS, stage.namespace, "train-workers-0")
    assert kept["metadata"]["uid"] == stored["metadata"]["uid"]
    await stage.client.delete(JOBS, stage.namespace, "train-workers-0")
    await stage.has_jobs("train-workers-0", "train-workers-1")
