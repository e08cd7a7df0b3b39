"""Whole lives of JobSets, with group restarts and limits, on the embedded API server under virtual time."""

import asyncio

import pytest

from inplace.common.kube.resources import PODS, SERVICES, KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import exists
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

TWO_BY_TWO = jobset(jobs=[replicated_job(replicas=2, pods=2)])


async def test_a_group_starts_restarts_in_place_and_completes(rig: Rig) -> None:
    """One failure deprecates the epoch once, the last announcement syncs the next; no Pod and no Job is touched."""
    crew = await rig.submit(TWO_BY_TWO)
    assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}
    assert await exists(rig.admin, SERVICES, "default", "train")
    await crew.make_pods()
    *others, last = crew.pods.values()
    await rig.meet(crew, 1, pods=others)
    assert await crew.epochs() == (0, 0)
    await rig.announce(crew, last, 1, 0.01)
    assert await crew.epochs() == (1, 0)
    before = await crew.job_uids()

    await rig.announce(crew, last, 2, 0.01)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.01, pods=others)
    assert await crew.epochs() == (2, 1)
    status = await crew.status()
    assert status["currentInPlaceRestartAttempt"] == 1
    assert status["previousInPlaceRestartAttempt"] == 0
    await rig.settle(10.0)
    assert await crew.job_uids() == before
    assert status["restarts"] == 0
    (started,) = await rig.events("GroupRestartStarted")
    assert started["note"].startswith(
        "epoch 1 is deprecated: the group restarts in place, restart 1 of 3; a worker exited: pod train-"
    )
    (finished,) = await rig.events("GroupRestartFinished")
    assert finished["note"].startswith("all 4 pods are at epoch 2 in 0.0 s")

    for name in before:
        await crew.finish_job(name, "Complete")
    await rig.settle()
    assert (await crew.status())["terminalState"] == "Completed"


async def test_a_restart_is_told_also_when_the_watch_beats_the_answer(rig: Rig) -> None:
    """Events and metrics of a restart are complete when the watch shows a status write before its answer."""
    rig.answer_latency_s = lambda request: 0.05 if request.path.split("?")[0].endswith("/status") else 0.0
    crew = await rig.started(jobset())
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert len(await rig.events("GroupRestartStarted")) == 1
    assert len(await rig.events("GroupRestartFinished")) == 1
    assert b'outcome="finished"' in rig.controllers[0].metrics.text()


async def test_a_restart_of_many_costs_two_status_writes(rig: Rig) -> None:
    """400 announcements that arrive together are decided at once: one write deprecates, one syncs."""
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=4, pods=100)]))
    await rig.settle(10.0)
    before = rig.writes("/jobsets/train/status")
    first, *rest = crew.pods.values()
    await rig.announce(crew, first, 2, 0.01)
    async with asyncio.TaskGroup() as group:
        for pod in rest:
            group.create_task(crew.announce(pod, 2))
    await rig.settle(0.1)
    assert await crew.epochs() == (2, 1)
    assert rig.writes("/jobsets/train/status") - before == 2


async def test_a_dead_worker_is_noticed_before_its_agent_is_back(rig: Rig) -> None:
    """A worker of the running epoch that exits non-zero deprecates it at once; one that exits 0 does not."""
    crew = await rig.started(TWO_BY_TWO)
    done, broken, *_ = crew.pods.values()
    await rig.set_worker(crew, done, exit_code=0)
    assert await crew.epochs() == (1, 0)
    await rig.set_worker(crew, broken, 0.01, exit_code=1)
    assert await crew.epochs() == (1, 1)
    await crew.announce_all(2)
    await rig.set_worker(crew, broken, exit_code=1)
    assert await crew.epochs() == (2, 1)


async def test_max_restarts(rig: Rig) -> None:
    """One restart too many fails the JobSet with upstream's message, deletes active Jobs and keeps S and D."""
    crew = await rig.started(jobset(restarts_max=2))
    for epoch in (2, 3):
        await rig.meet(crew, epoch)
        assert await crew.epochs() == (epoch, epoch - 1)
    await rig.meet(crew, 4)
    condition = await crew.condition("Failed")
    assert condition["reason"] == "ReachedMaxRestarts"
    assert condition["message"] == "jobset failed due to reaching max number of restarts"
    assert await crew.epochs() == (3, 2)
    jobs = await crew.jobs()
    assert all("deletionTimestamp" in job["metadata"] for job in jobs.values())


async def test_counters_wait_for_the_end_of_a_restart_but_not_for_ever(rig: Rig) -> None:
    """During a group restart counters are written after five seconds, or with the epoch, whichever comes first."""
    crew = await rig.started(jobset())
    await rig.announce(crew, next(iter(crew.pods.values())), 2, 0.5)
    before = rig.writes("/jobsets/train/status")
    for ready in (1, 2, 1):
        await crew.set_job("train-workers-0", active=2, ready=ready)
        await rig.settle(1.0)
    assert rig.writes("/jobsets/train/status") == before
    await rig.settle(5.0)
    assert rig.writes("/jobsets/train/status") == before + 1
    assert (await crew.status())["replicatedJobsStatus"][0]["active"] == 1


async def test_a_leaving_pod_holds_the_barrier_up(rig: Rig) -> None:
    """A slot's replacement Pod does not complete the group while the old Pod may still run."""
    crew = await rig.started(jobset())
    one, two = crew.pods.values()
    await rig.admin.patch(PODS, "default", one, {"metadata": {"finalizers": ["test/hold"]}})
    await rig.admin.delete(PODS, "default", one, grace_period_s=0)
    replacement = await crew.replace("train-workers-0", 0)
    await crew.announce(replacement, 2)
    await rig.announce(crew, two, 2)
    assert await crew.epochs() == (1, 1)
    await rig.admin.patch(PODS, "default", one, {"metadata": {"finalizers": None}})
    await rig.settle()
    assert await crew.epochs() == (2, 1)


async def test_a_completed_pod_is_recreated_when_the_group_restarts(rig: Rig) -> None:
    """A completed Pod's Job is recreated with the same restart-attempt at a group restart; other Jobs stay."""
    crew = await rig.started(TWO_BY_TWO)
    before = await crew.jobs()
    done = crew.pods["train-workers-0", 0]
    await crew.set_phase(done, "Succeeded")
    await rig.settle()
    assert await crew.epochs() == (1, 0)
    await rig.announce(crew, crew.pods["train-workers-1", 0], 2, 5.0)
    jobs = await crew.jobs()
    assert jobs["train-workers-0"]["metadata"]["uid"] != before["train-workers-0"]["metadata"]["uid"]
    assert jobs["train-workers-1"]["metadata"]["uid"] == before["train-workers-1"]["metadata"]["uid"]
    assert jobs["train-workers-0"]["metadata"]["labels"][wire.RESTART_ATTEMPT] == "0"
    crew.pods = {slot: pod for slot, pod in crew.pods.items() if slot[0] == "train-workers-1"}
    await crew.make_pods()
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)


@pytest.mark.parametrize("policy", [None, {"maxRestarts": 0, "restartStrategy": "Recreate"}])
async def test_the_annotation_is_a_failure_policy(rig: Rig, policy: KubeObject | None) -> None:
    """The group restarts in place as often as its number says, which may change while it runs; the spec stays."""
    annotations = {wire.FAILURES: "backoff=0", wire.RESTART_IN_PLACE: "1"}
    manifest = jobset(strategy=None, annotations=annotations)
    spec = manifest["spec"] | ({} if policy is None else {"failurePolicy": policy})
    crew = await rig.started(manifest | {"spec": spec})
    stored = (await crew.jobset())["spec"]
    await rig.meet(crew, 2)
    await rig.annotate({wire.RESTART_IN_PLACE: "2"}, 0.0)
    await rig.meet(crew, 3)
    assert await crew.epochs() == (3, 2)
    assert (await crew.jobset())["spec"] == stored
    await rig.meet(crew, 4)
    assert (await crew.condition("Failed"))["reason"] == "ReachedMaxRestarts"


async def test_without_the_annotation_the_group_is_none_any_more(rig: Rig) -> None:
    """Removed while it runs: nothing is deprecated, and a Job that fails is judged by the spec, which has no policy."""
    annotations = {wire.FAILURES: "backoff=0", wire.RESTART_IN_PLACE: "9"}
    crew = await rig.started(jobset(strategy=None, annotations=annotations))
    await rig.annotate({wire.RESTART_IN_PLACE: None}, 0.0)
    await rig.set_worker(crew, next(iter(crew.pods.values())), exit_code=1)
    assert await crew.epochs() == (1, 0)
    await rig.finish_job(crew, "train-workers-0", "Failed", reason="BackoffLimitExceeded")
    assert (await crew.condition("Failed"))["reason"] == "FailedJobs"


async def test_recreate_runs_through_its_restarts_in_the_cluster(rig: Rig) -> None:
    """A failed Job recreates all Jobs with the next restart-attempt, until maxRestarts."""
    crew = await rig.submit(jobset(strategy="Recreate", restarts_max=1))
    await rig.finish_job(crew, "train-workers-0", "Failed", 5.0, reason="BackoffLimitExceeded")
    (job,) = (await crew.jobs()).values()
    assert job["metadata"]["labels"][wire.RESTART_ATTEMPT] == "1"
    assert (await crew.status())["restarts"] == 1
    assert len(await rig.events("RestartJobSetFailurePolicyAction")) == 1
    await rig.finish_job(crew, "train-workers-0", "Failed", 5.0, reason="BackoffLimitExceeded")
    condition = await crew.condition("Failed")
    assert condition["reason"] == "ReachedMaxRestarts"
    assert "first failed job: train-workers-0" in condition["message"]


async def test_suspended_groups_do_not_sync(rig: Rig) -> None:
    """No epoch is written for a suspended group; after the resume the group starts."""
    crew = await rig.submit(jobset(suspend=True))
    (job,) = (await crew.jobs()).values()
    assert job["spec"]["suspend"] is True
    await crew.make_pods()
    await rig.meet(crew, 1)
    assert await crew.epochs() == (0, 0)
    await rig.edit({"spec": {"suspend": False}})
    assert await crew.epochs() == (1, 0)
    (job,) = (await crew.jobs()).values()
    assert job["spec"]["suspend"] is False


async def test_a_namespaced_controller_sees_no_other_namespace() -> None:
    """With --namespace every request names it."""
    rig = Rig()
    async with rig.running(rig.controller(namespace="default", leader_elect=False)):
        await rig.started(jobset())
    assert rig.requests
    assert all("/namespaces/default/" in request.path for request in rig.requests)


async def test_upstreams_agent_works_under_this_controller(rig: Rig) -> None:
    """A group of upstream's agents starts and restarts by attempts alone; the status has both encodings."""
    crew = await rig.with_pods(jobset())
    for attempt in (0, 1):
        for pod in crew.pods.values():
            await crew.annotate(pod, {wire.ATTEMPT: str(attempt)})
        await rig.settle()
        status = await crew.status()
        assert status["currentInPlaceRestartAttempt"] == attempt
        assert status["syncedEpoch"] == attempt + 1
