"""The controller against the embedded API server: group restarts, limits, faults and bad input, under virtual time."""

import asyncio
import contextlib
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from common import wire
from common.kube.client import KubeObject
from common.kube.errors import Invalid, NotFound
from common.kube.http import Request, Response
from common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBS, JOBSETS, LEASES, PODS, SERVICES
from simulator.cluster.virtual_time import run
from tests.controller.crew import exists
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.rig import Rig
from tests.deploy.crd_cases import crd

TWO_BY_TWO = jobset(jobs=[replicated_job(replicas=2, pods=2)])


def refusal(code: int, reason: str) -> Response:
    """Return a Status."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "no",
    }
    return Response(code, {"content-type": "application/json"}, msgspec.json.encode(status))


def test_a_group_starts_restarts_in_place_and_completes() -> None:
    """One failure deprecates the epoch once, the last announcement syncs the next; no Pod and no Job is touched."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(TWO_BY_TWO)
            assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}
            assert await exists(rig.admin, SERVICES, "default", "train")
            await crew.make_pods()
            *others, last = crew.pods.values()
            for pod in others:
                await crew.announce(pod, 1)
            await rig.settle()
            assert await crew.epochs() == (0, 0)
            await crew.announce(last, 1)
            await rig.settle(0.01)
            assert await crew.epochs() == (1, 0)
            before = {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()}

            await crew.announce(last, 2)
            await rig.settle(0.01)
            assert await crew.epochs() == (1, 1)
            for pod in others:
                await crew.announce(pod, 2)
            await rig.settle(0.01)
            assert await crew.epochs() == (2, 1)
            status = await crew.status()
            assert status["currentInPlaceRestartAttempt"] == 1
            assert status["previousInPlaceRestartAttempt"] == 0
            await rig.settle(10.0)
            assert {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()} == before
            assert status["restarts"] == 0
            (started,) = await rig.events("GroupRestartStarted")
            assert started["note"] == "epoch 1 is deprecated: the group restarts in place, restart 1 of 3"
            (finished,) = await rig.events("GroupRestartFinished")
            assert finished["note"].startswith("all 4 pods are at epoch 2 in 0.0 s")

            for name in before:
                await crew.finish_job(name, "Complete")
            await rig.settle()
            assert (await crew.status())["terminalState"] == "Completed"

    run(scenario())


def test_a_restart_of_many_costs_two_status_writes() -> None:
    """400 announcements that arrive together are decided at once: one write deprecates, one syncs."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset(jobs=[replicated_job(replicas=4, pods=100)]))
            await rig.settle(10.0)
            before = rig.writes("/jobsets/train/status")
            first, *rest = crew.pods.values()
            await crew.announce(first, 2)
            await rig.settle(0.01)
            async with asyncio.TaskGroup() as group:
                for pod in rest:
                    group.create_task(crew.announce(pod, 2))
            await rig.settle(0.1)
            assert await crew.epochs() == (2, 1)
            assert rig.writes("/jobsets/train/status") - before == 2

    run(scenario())


def test_a_dead_worker_is_noticed_before_its_agent_is_back() -> None:
    """A worker of the running epoch that exits non-zero deprecates it at once; one that exits 0 does not."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(TWO_BY_TWO)
            done, broken, *_ = crew.pods.values()
            await crew.set_worker(done, exit_code=0)
            await rig.settle()
            assert await crew.epochs() == (1, 0)
            await crew.set_worker(broken, exit_code=1)
            await rig.settle(0.01)
            assert await crew.epochs() == (1, 1)
            await crew.announce_all(2)
            await crew.set_worker(broken, exit_code=1)
            await rig.settle()
            assert await crew.epochs() == (2, 1)

    run(scenario())


def test_max_restarts() -> None:
    """One restart too many fails the JobSet: upstream's message, active Jobs deleted, S and D kept."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset(restarts_max=2))
            for epoch in (2, 3):
                await crew.announce_all(epoch)
                await rig.settle()
                assert await crew.epochs() == (epoch, epoch - 1)
            await crew.announce_all(4)
            await rig.settle()
            condition = await crew.condition("Failed")
            assert condition is not None
            assert condition["reason"] == "ReachedMaxRestarts"
            assert condition["message"] == "jobset failed due to reaching max number of restarts"
            assert await crew.epochs() == (3, 2)
            jobs = await crew.jobs()
            assert all("deletionTimestamp" in job["metadata"] for job in jobs.values())

    run(scenario())


def test_counters_wait_for_the_end_of_a_restart_but_not_for_ever() -> None:
    """During a group restart counters are written after five seconds, or with the epoch, whichever comes first."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset())
            await crew.announce(next(iter(crew.pods.values())), 2)
            await rig.settle(0.5)
            before = rig.writes("/jobsets/train/status")
            for ready in (1, 2, 1):
                status = {"status": {"active": 2, "ready": ready}}
                await rig.admin.patch(JOBS, "default", "train-workers-0", status, subresource="status")
                await rig.settle(1.0)
            assert rig.writes("/jobsets/train/status") == before
            await rig.settle(5.0)
            assert rig.writes("/jobsets/train/status") == before + 1
            assert (await crew.status())["replicatedJobsStatus"][0]["active"] == 1

    run(scenario())


def test_a_controller_that_starts_anew_continues_in_every_state() -> None:
    """Killed before the first sync, while running, while deprecated, when all announced: the next one goes on."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running(rig.controller(leader_elect=False)):
            crew = await rig.submit(jobset())
            await crew.make_pods()
        one, two = crew.pods.values()
        steps: tuple[tuple[str, int, tuple[int, int]], ...] = (
            (one, 1, (0, 0)),
            (two, 1, (1, 0)),
            (two, 2, (1, 1)),
            (one, 2, (2, 1)),
        )
        for pod, epoch, expected in steps:
            await crew.announce(pod, epoch)  # while nobody watches
            async with rig.running(rig.controller(leader_elect=False)):
                assert await crew.epochs() == expected

    run(scenario())


@pytest.mark.parametrize("text", ["2147483648", "-1", "abc", "", "1e3", "0"])
def test_a_broken_annotation_holds_up_its_own_group_and_tells_why(text: str) -> None:
    """A Pod with an unreadable epoch counts as one that announced nothing; a good one cures it; others go on."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            other = await rig.started(jobset("other"))
            crew = await rig.submit(jobset())
            await crew.make_pods()
            good, bad = crew.pods.values()
            await crew.announce(good, 1)
            await crew.annotate(bad, {wire.EPOCH: text})
            await rig.settle()
            assert await crew.epochs() == (0, 0)
            (event,) = await rig.events("UnreadablePod")
            assert event["type"] == "Warning"
            assert bad in event["note"]
            assert "expected an integer from 1 to 2147483647" in event["note"]
            await crew.announce(bad, 1)
            await other.announce_all(2)
            await rig.settle()
            assert await crew.epochs() == (1, 0)
            assert await other.epochs() == (2, 1)

    run(scenario())


def test_garbage_in_labels_stops_nobody() -> None:
    """Labels of Jobs and Pods are not what membership follows from: owner, name and index are."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset())
            garbage = {wire.JOB_INDEX: "x", wire.REPLICATED_JOB_NAME: "y", wire.RESTART_ATTEMPT: "z"}
            await rig.admin.patch(JOBS, "default", "train-workers-0", {"metadata": {"labels": garbage}})
            await crew.make_pods()
            one, _ = crew.pods.values()
            broken = {wire.JOB_COMPLETION_INDEX: "x", wire.JOB_INDEX: "y", wire.JOBSET_UID: "z"}
            await rig.admin.patch(PODS, "default", one, {"metadata": {"labels": broken}})
            await crew.announce_all(1)
            await rig.settle()
            assert await crew.epochs() == (1, 0)

    run(scenario())


def test_foreign_pods_do_not_count() -> None:
    """A Pod with our labels that another JobSet's Job controls, or nobody does, changes nothing."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset())
            other = await rig.submit(jobset("other"))
            (ours,) = (await crew.jobs()).values()
            (theirs,) = (await other.jobs()).values()
            labels = ours["spec"]["template"]["metadata"]["labels"] | {wire.JOB_COMPLETION_INDEX: "0"}
            await other.make_pod(theirs, 0, labels=labels, annotations=wire.epoch_annotations(2))
            alone = {"name": "alone", "labels": labels, "annotations": wire.epoch_annotations(2), "ownerReferences": []}
            await other.make_pod(theirs, 1, **alone)
            await rig.settle()
            assert await crew.epochs() == (1, 0)

    run(scenario())


def test_a_leaving_pod_holds_the_barrier_up() -> None:
    """While the old Pod of a slot may still run, its replacement does not complete the group."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset())
            one, two = crew.pods.values()
            await rig.admin.patch(PODS, "default", one, {"metadata": {"finalizers": ["test/hold"]}})
            await rig.admin.delete(PODS, "default", one, grace_period_s=0)
            (job,) = (await crew.jobs()).values()
            replacement = await crew.make_pod(job, 0)
            await crew.announce(replacement, 2)
            await crew.announce(two, 2)
            await rig.settle()
            assert await crew.epochs() == (1, 1)
            await rig.admin.patch(PODS, "default", one, {"metadata": {"finalizers": None}})
            await rig.settle()
            assert await crew.epochs() == (2, 1)

    run(scenario())


def test_a_completed_pod_is_recreated_when_the_group_restarts() -> None:
    """Its Job is deleted and created anew, under the same restart-attempt; the others keep their Jobs."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(TWO_BY_TWO)
            before = await crew.jobs()
            done = crew.pods["train-workers-0", 0]
            await crew.set_phase(done, "Succeeded")
            await rig.settle()
            assert await crew.epochs() == (1, 0)
            await crew.announce(crew.pods["train-workers-1", 0], 2)
            await rig.settle(5.0)
            jobs = await crew.jobs()
            assert jobs["train-workers-0"]["metadata"]["uid"] != before["train-workers-0"]["metadata"]["uid"]
            assert jobs["train-workers-1"]["metadata"]["uid"] == before["train-workers-1"]["metadata"]["uid"]
            assert jobs["train-workers-0"]["metadata"]["labels"][wire.RESTART_ATTEMPT] == "0"
            crew.pods = {slot: pod for slot, pod in crew.pods.items() if slot[0] == "train-workers-1"}
            await crew.make_pods()
            await crew.announce_all(2)
            await rig.settle()
            assert await crew.epochs() == (2, 1)

    run(scenario())


def test_recreate_runs_through_its_restarts_in_the_cluster() -> None:
    """A failed Job recreates all Jobs with the next restart-attempt, until maxRestarts."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset(strategy="Recreate", restarts_max=1))
            await crew.finish_job("train-workers-0", "Failed", reason="BackoffLimitExceeded")
            await rig.settle(5.0)
            (job,) = (await crew.jobs()).values()
            assert job["metadata"]["labels"][wire.RESTART_ATTEMPT] == "1"
            assert (await crew.status())["restarts"] == 1
            assert len(await rig.events("RestartJobSetFailurePolicyAction")) == 1
            await crew.finish_job("train-workers-0", "Failed", reason="BackoffLimitExceeded")
            await rig.settle(5.0)
            condition = await crew.condition("Failed")
            assert condition is not None
            assert condition["reason"] == "ReachedMaxRestarts"
            assert "first failed job: train-workers-0" in condition["message"]

    run(scenario())


def test_a_foreign_job_with_our_name_is_reported_and_waited_for() -> None:
    """The other places are filled; a Warning names the Job; retries back off; freeing the name cures it."""

    async def scenario() -> None:
        rig = Rig()
        foreign: KubeObject = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train-workers-0"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        }
        await rig.admin.create(JOBS, "default", foreign)
        async with rig.running():
            crew = await rig.submit(TWO_BY_TWO)
            await rig.settle(300.0)
            assert "train-workers-1" in await crew.jobs()
            assert (await crew.status())["replicatedJobsStatus"]
            attempts = rig.writes("/jobs", "POST")
            assert attempts < 30
            (event,) = await rig.events("JobCreationFailed")
            assert "train-workers-0 exists and is not of this jobset" in event["note"]
            assert event["series"]["count"] > 1
            await rig.admin.delete(JOBS, "default", "train-workers-0")
            await rig.settle(120.0)
            assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}

    run(scenario())


def test_an_own_job_that_exists_counts_as_created() -> None:
    """A lost reply to a creation costs one look, not an error."""

    async def scenario() -> None:
        rig = Rig()
        lost = [True]

        async def create_behind_our_back(request: Request) -> None:
            await rig.server.handle(request, user="admin")

        def fault(request: Request) -> Response | None:
            if request.method == "POST" and "/jobs" in request.path and lost:
                lost.clear()
                task = asyncio.ensure_future(create_behind_our_back(request))
                tasks.append(task)
                return refusal(500, "InternalError")
            return None

        tasks: list[Any] = []
        rig.fault = fault
        async with rig.running():
            crew = await rig.submit(jobset())
            await rig.settle(5.0)
            assert set(await crew.jobs()) == {"train-workers-0"}

    run(scenario())


def test_a_jobset_that_vanishes_in_the_middle_leaves_nothing_behind() -> None:
    """Deleted while its Jobs are being created and its Pods announce: no error survives it, no series, no Job."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(jobset(jobs=[replicated_job(replicas=20, pods=1)]))
            assert b'jobset="train"' in rig.controllers[0].metrics.text()
            await rig.admin.delete(JOBSETS, "default", "train")
            for pod in list(crew.pods.values())[:5]:
                with contextlib.suppress(NotFound):
                    await crew.announce(pod, 2)
            await rig.settle(30.0)
            assert await crew.jobs() == {}
            assert b'jobset="train"' not in rig.controllers[0].metrics.text()
            again = await rig.started(jobset())
            assert await again.epochs() == (1, 0)

    run(scenario())


def test_a_conflict_is_decided_again_on_fresh_state() -> None:
    """Somebody writes between our look and our write: the next try works on what they wrote, and nothing is lost."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset())
            await crew.make_pods()
            conflicts = [True, True]

            def fault(request: Request) -> Response | None:
                if request.method == "PATCH" and "/status" in request.path and conflicts:
                    conflicts.pop()
                    return refusal(409, "Conflict")
                return None

            rig.fault = fault
            with capture_logs() as logs:
                await crew.announce_all(1)
                await rig.settle(0.5)
            assert await crew.epochs() == (1, 0)
            assert not [entry for entry in logs if entry["log_level"] in ("error", "warning")]
        assert b"inplace_api_conflicts_total 2.0" in rig.controllers[0].metrics.text()

    run(scenario())


def test_a_status_write_that_fails_is_tried_again() -> None:
    """A server error or a throttled write delays the epoch, and does not lose it."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset())
            await crew.make_pods()
            answers = [refusal(500, "InternalError"), refusal(429, "TooManyRequests")]

            def fault(request: Request) -> Response | None:
                return answers.pop() if request.path.split("?")[0].endswith("/status") and answers else None

            rig.fault = fault
            await crew.announce_all(1)
            await rig.settle(1.0)
            assert await crew.epochs() == (1, 0)

    run(scenario())


def test_one_bad_jobset_does_not_stop_the_others() -> None:
    """A JobSet that no CRD validated is reported and left alone; the next one is served."""

    async def scenario() -> None:
        rig = Rig()
        definition = crd_without_validation()
        rig.server.load([])
        await rig.admin.patch(
            CUSTOM_RESOURCE_DEFINITIONS,
            None,
            "jobsets.jobset.x-k8s.io",
            {"spec": {"versions": definition["spec"]["versions"]}},
        )
        async with rig.running():
            broken = jobset("broken", strategy=None)
            broken["spec"]["replicatedJobs"] = [{"replicas": "many"}]
            odd = jobset("odd", strategy=None)
            odd["spec"]["replicatedJobs"][0]["template"] = {"spec": "text"}
            await rig.submit(broken)
            await rig.submit(odd)
            good = await rig.started(jobset("good"))
            assert await good.epochs() == (1, 0)
            assert len(await rig.events("UnreadableJobSet")) == 1

    run(scenario())


def crd_without_validation() -> KubeObject:
    """Return the CRD with an opaque schema, as somebody else's could be."""
    definition = crd()
    opaque = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": opaque}
    return definition


def test_a_manifest_that_cannot_work_is_refused_at_the_door() -> None:
    """The API server refuses it with the path and the value; the controller never sees it."""

    async def scenario() -> None:
        rig = Rig()
        manifest = changed(jobset(), "spec.replicatedJobs.0.template.spec.backoffLimit", 6)
        with pytest.raises(Invalid, match="backoffLimit must be set to 2147483647"):
            await rig.admin.create(JOBSETS, "default", manifest)

    run(scenario())


def test_another_managers_jobset_is_never_touched() -> None:
    """managedBy: no Jobs, no status, no Event, not even for Pods that look like ours."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset(managedBy="example.com/other"))
            await rig.settle(30.0)
            assert await crew.jobs() == {}
            assert "status" not in await crew.jobset()

    run(scenario())


def test_a_deleted_service_comes_back() -> None:
    """The headless Service is restored when somebody deletes it."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            await rig.submit(jobset())
            await rig.admin.delete(SERVICES, "default", "train")
            await rig.settle(1.0)
            assert await exists(rig.admin, SERVICES, "default", "train")

    run(scenario())


def test_a_job_deleted_by_hand_comes_back() -> None:
    """A place whose Job vanished is filled again; the group waits for the new Pods."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(TWO_BY_TWO)
            await rig.admin.delete(JOBS, "default", "train-workers-0")
            await rig.settle(5.0)
            assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}
            crew.pods = {slot: pod for slot, pod in crew.pods.items() if slot[0] == "train-workers-1"}
            await crew.make_pods()
            await crew.announce(crew.pods["train-workers-0", 0], 2)
            await rig.settle()
            assert await crew.epochs() == (1, 1)
            await crew.announce_all(2)
            await rig.settle()
            assert await crew.epochs() == (2, 1)

    run(scenario())


def test_suspended_groups_do_not_sync() -> None:
    """While suspended no epoch is written; after the resume the group starts."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.submit(jobset(suspend=True))
            (job,) = (await crew.jobs()).values()
            assert job["spec"]["suspend"] is True
            await crew.make_pods()
            await crew.announce_all(1)
            await rig.settle()
            assert await crew.epochs() == (0, 0)
            await rig.admin.patch(JOBSETS, "default", "train", {"spec": {"suspend": False}})
            await rig.settle()
            assert await crew.epochs() == (1, 0)
            (job,) = (await crew.jobs()).values()
            assert job["spec"]["suspend"] is False

    run(scenario())


def test_an_unreachable_server_is_waited_for() -> None:
    """At start the server refuses everything: clear lines in the log, and work begins when it is back."""

    async def scenario() -> None:
        rig = Rig()
        rig.fault = lambda _: refusal(503, "ServiceUnavailable")
        with capture_logs() as logs:
            async with rig.running():
                await rig.settle(60.0)
                assert any(entry["event"] == "lease not acquired, retrying" for entry in logs)
                rig.fault = lambda _: None
                await rig.settle(30.0)
                crew = await rig.started(jobset())
                assert await crew.epochs() == (1, 0)

    run(scenario())


def test_a_namespaced_controller_sees_no_other_namespace() -> None:
    """With --namespace every request names it."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running(rig.controller(namespace="default", leader_elect=False)):
            await rig.started(jobset())
        assert rig.requests
        assert all("/namespaces/default/" in request.path for request in rig.requests)

    run(scenario())


def test_stopping_finishes_and_releases_the_lease() -> None:
    """After `stop` the run ends at once, the Lease has no holder, and a successor leads without waiting."""

    async def scenario() -> None:
        rig = Rig()
        first, second = rig.controller(), rig.controller()
        async with asyncio.TaskGroup() as group:
            server = group.create_task(rig.server.run())
            running = group.create_task(first.run())
            await rig.settle()
            crew = await rig.submit(jobset())
            await crew.make_pods()
            stopped_s = rig.clock.monotonic_s()
            first.stop()
            await running
            assert rig.clock.monotonic_s() - stopped_s < 0.1
            lease = await rig.admin.get(LEASES, "default", "inplace-controller")
            assert lease["spec"]["holderIdentity"] == ""
            successor = group.create_task(second.run())
            await crew.announce_all(1)
            await rig.settle(0.5)
            assert await crew.epochs() == (1, 0)
            successor.cancel()
            server.cancel()

    run(scenario())


def test_two_controllers_take_turns() -> None:
    """Of two, one leads; when it is gone without a word the other continues the very restart that was under way."""

    async def scenario() -> None:
        rig = Rig()
        first, second = rig.controller(), rig.controller()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in (rig.server.run(), first.run(), second.run())]
            await rig.settle()
            assert (first.is_leader, second.is_leader) == (True, False)
            crew = await rig.started(jobset())
            await crew.announce(next(iter(crew.pods.values())), 2)
            await rig.settle(0.1)
            assert await crew.epochs() == (1, 1)
            await _vanish(rig, tasks[1])
            await crew.announce_all(2)
            await rig.settle(30.0)
            assert second.is_leader
            assert await crew.epochs() == (2, 1)
            for task in tasks:
                task.cancel()

    async def _vanish(rig: Rig, task: asyncio.Task[None]) -> None:
        rig.fault = lambda _: refusal(503, "ServiceUnavailable")
        task.cancel()
        await rig.settle(0.1)
        rig.fault = lambda _: None

    run(scenario())


@pytest.mark.parametrize("seed", range(12))
def test_lagging_caches_and_other_schedules_change_nothing(seed: int) -> None:
    """With each kind's watch trailing by its own lag and callbacks in any order: no Job twice, no epoch lost."""
    rng = Random(seed)
    lags = {plural: rng.choice([0.0, 0.05, 0.5]) for plural in ("jobsets", "jobs", "pods", "services")}

    async def scenario() -> None:
        rig = Rig(watch_cache_lag_s=lambda plural: lags.get(plural, 0.0))
        async with rig.running():
            crew = await rig.submit(TWO_BY_TWO)
            await rig.settle(2.0)
            await crew.make_pods()
            pods = list(crew.pods.values())
            for epoch in (1, 2, 3):
                rng.shuffle(pods)
                for pod in pods:
                    await crew.announce(pod, epoch)
                    await rig.settle(rng.choice([0.0, 0.01, 0.7]))
                await rig.settle(3.0)
                synced, _ = await crew.epochs()
                assert synced == epoch
            assert rig.writes("/jobs", "POST") == 2
            assert rig.writes("/services", "POST") == 1
            assert rig.writes("/jobsets/train/status") <= 1 + 2 * 3 + 4

    run(scenario(), shuffle_seed=seed)


def test_a_relist_of_every_kind_in_the_middle_of_a_restart_loses_nothing() -> None:
    """History is compacted and all watches end while Pods announce: the caches are made right from lists."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            crew = await rig.started(TWO_BY_TWO)
            first, *rest = crew.pods.values()
            await crew.announce(first, 2)
            for group, plural in (("jobset.x-k8s.io", "jobsets"), ("batch", "jobs"), ("", "pods"), ("", "services")):
                rig.server.drop_watches(group, plural)
            for pod in rest:
                await crew.announce(pod, 2)
            rig.server.compact()
            await rig.settle(5.0)
            assert await crew.epochs() in [(2, 0), (2, 1)]

    run(scenario())
