"""The JobSet's status: counters that are exact, conditions that are written once, Events that are folded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import EVENTS, JOBS, JOBSETS, KubeObject
from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.audited import requests_of, right_of
from tests.cluster.features.served import USER, ServedController
from tests.cluster.features.stage import START, Stage
from tests.controller.manifests import jobset, replicated_job

TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"
pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Standing:
    """The Job controller's status of one of two Jobs, and its counters."""

    claim: str
    status: KubeObject
    counted: KubeObject
    parallelism: int = 2
    completions: int = 2


STANDINGS: Final = (
    Standing("no_pods_yet", {}, {}),
    Standing("pods_start", {"active": 1}, {"active": 1}),
    Standing("half_ready", {"active": 2, "ready": 1}, {"active": 1}),
    Standing("all_ready", {"active": 2, "ready": 2}, {"active": 1, "ready": 1}),
    Standing("one_done_one_ready", {"active": 1, "ready": 1, "succeeded": 1}, {"active": 1, "ready": 1}),
    Standing("one_done_one_starting", {"active": 1, "succeeded": 1}, {"active": 1}),
    Standing("all_done_not_complete", {"succeeded": 2}, {"ready": 1}),
    Standing("a_failed_pod", {"active": 1, "failed": 1}, {"active": 1}),
    Standing("wave_is_ready", {"active": 2, "ready": 2}, {"active": 1, "ready": 1}, 2, 4),
    Standing("fewer_completions", {"active": 1, "ready": 1}, {"active": 1, "ready": 1}, 3, 1),
    Standing("terminating", {"active": 1, "ready": 1, "terminating": 1}, {"active": 1}),
)


@pytest.mark.parametrize("case", STANDINGS, ids=lambda case: case.claim)
async def test_counters_of_an_active_job(stage: Stage, case: Standing) -> None:
    """Ready counts Jobs whose ready and succeeded Pods are enough; active counts Jobs that have active Pods."""
    job = replicated_job("a", replicas=2, parallelism=case.parallelism, completions=case.completions)
    await stage.start(jobset(strategy=None, jobs=[job]))
    if case.status:
        await stage.report("train-a-1", startTime=START, **case.status)
    await stage.counts_are("a", **case.counted)


async def test_counters_of_ended_and_suspended_jobs(stage: Stage) -> None:
    """Each replicatedJob has an entry with all five counters, zeros too; entries go by name from Z to A."""
    jobs = [replicated_job("a", replicas=3), replicated_job("c"), replicated_job("b"), replicated_job("d", replicas=0)]
    targets = {"operator": "All", "targetReplicatedJobs": ["c"]}
    await stage.start(jobset(strategy=None, jobs=jobs, successPolicy=targets))
    await stage.be_ready("train-a-0")
    await stage.succeed("train-a-1")
    await stage.counts_are("a", ready=1, active=1, succeeded=1)
    await stage.edit({"spec": {"suspend": True}})
    await stage.counts_are("a", ready=1, active=1, succeeded=1, suspended=2)
    await stage.counts_are("b", suspended=1)
    entries = (await stage.status())["replicatedJobsStatus"]
    zeros = {"active": 0, "failed": 0, "ready": 0, "succeeded": 0}
    assert entries == [
        {"name": "d", "suspended": 0} | zeros,
        {"name": "c", "suspended": 1} | zeros,
        {"name": "b", "suspended": 1} | zeros,
        {"name": "a", "suspended": 2, "active": 1, "failed": 0, "ready": 1, "succeeded": 1},
    ]


async def test_failed_jobs_are_counted(stage: Stage) -> None:
    """A failed Job counts as neither active nor ready."""
    await stage.start(jobset(strategy=None, jobs=[replicated_job("a", replicas=2)]))
    await stage.be_ready("train-a-0", "train-a-1")
    await stage.counts_are("a", ready=2, active=2)
    await stage.fail("train-a-0")
    await stage.has_jobs("train-a-0")  # the other one is deleted
    await stage.counts_are("a", failed=1)


async def test_restarts_is_there_from_the_start(stage: Stage) -> None:
    """status.restarts is 0, not absent: kubectl prints it."""
    await stage.start(jobset(strategy=None))
    await stage.shows(restarts=0)


async def test_columns(stage: Stage) -> None:
    """`kubectl` prints the columns of upstream's v0.12 at their positions; ours and the newer StartTime follow."""
    await stage.start(jobset(strategy=None))
    await stage.shows(executionAttempts=0)
    request = Request("GET", JOBSETS.path(stage.namespace), {"accept": TABLE})
    table = msgspec.json.decode((await stage.client.send(request, timeout_s=10.0)).body)
    titles = [column["name"] for column in table["columnDefinitions"] if not column.get("priority")]
    assert titles == ["Name", "TerminalState", "Recreations", "Completed", "Suspended", "Age", "Epoch", "StartTime"]
    cells = dict(zip(titles, table["rows"][0]["cells"], strict=False))
    assert (cells["Name"], cells["Recreations"], cells["Suspended"]) == ("train", 0, None)
    assert cells["StartTime"].endswith("s")


async def test_a_condition_says_for_which_generation(stage: Stage) -> None:
    """A condition's observedGeneration is the generation of the spec that it was decided on; upstream omits it."""
    await stage.start(jobset(strategy=None))
    await stage.edit({"spec": {"suspend": True}})
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    condition = await stage.condition("Suspended")
    assert condition["observedGeneration"] == (await stage.jobset())["metadata"]["generation"] == 2


async def test_the_end_is_final(stage: Stage) -> None:
    """A failed JobSet stays failed and its condition keeps its transition time, whatever its Jobs do."""
    await stage.start(jobset(strategy=None, jobs=[replicated_job("a", replicas=2)]))
    await stage.fail("train-a-0")
    await stage.becomes_terminal("Failed")
    before = await stage.find_condition("Failed")
    await stage.has_jobs("train-a-0")
    patch = {"metadata": {"labels": {"seen": "again"}}}
    await stage.client.patch(JOBS, stage.namespace, "train-a-0", patch)
    await stage.client.delete(JOBS, stage.namespace, "train-a-0")
    await stage.counts_are("a")
    assert await stage.find_condition("Failed") == before
    assert (await stage.status())["terminalState"] == "Failed"


async def restart_once(stage: Stage) -> None:
    """Bring a JobSet of two Jobs to its first restart."""
    await stage.start(jobset(strategy="Recreate", restarts_max=1, jobs=[replicated_job("a", replicas=2)]))
    await stage.fail("train-a-0")
    message = "applying RestartJobSet failure policy action (first failed job: train-a-0)"
    await stage.becomes("RestartingJobSet", "True", "DefaultFailurePolicy", message)
    await eventually(
        lambda: stage.labels_of("jobset.sigs.k8s.io/restart-attempt"), {"train-a-0": "1", "train-a-1": "1"}
    )


ENDS_OF_A_RESTART: Final = {
    "ready": ("JobsReady", "all jobs are ready"),
    "failed": ("JobSetFailed", "jobset failed"),
    "completed": ("JobSetCompleted", "jobset completed successfully"),
    "suspended": ("JobSetSuspended", "jobset is suspended"),
}


@pytest.mark.parametrize("end", ENDS_OF_A_RESTART)
async def test_the_end_of_a_restart(stage: Stage, end: str) -> None:
    """RestartingJobSet turns False with the reason of its end, and an Event has the same reason."""
    await restart_once(stage)
    match end:
        case "ready":
            await stage.be_ready("train-a-0", "train-a-1")
        case "failed":
            await stage.fail("train-a-1")
        case "completed":
            await stage.succeed("train-a-0", "train-a-1")
        case "suspended":
            await stage.edit({"spec": {"suspend": True}})
    reason, message = ENDS_OF_A_RESTART[end]
    if end == "completed":
        await stage.becomes_terminal("Completed")
        seen = await stage.words("RestartingJobSet")
        assert seen in [("False", *ENDS_OF_A_RESTART[one]) for one in ("ready", "completed")]
        return
    await stage.becomes("RestartingJobSet", "False", reason, message)
    await stage.says(reason, "Normal", message)


EVENT_FIELDS: Final = {"action": "Reconciling", "reportingController": "inplace-controller", "type": "Normal"}


async def test_an_event(stage: Stage) -> None:
    """One Event per change of a condition, about the JobSet, with the condition's words."""
    created = await stage.submit(jobset(strategy=None, suspend=True))
    await stage.says("SuspendedJobs", "Normal", "jobset is suspended")
    (event,) = (await stage.client.list(EVENTS, stage.namespace))["items"]
    assert {name: event[name] for name in EVENT_FIELDS} == EVENT_FIELDS
    assert event["metadata"]["name"].startswith("train.")
    about = event["regarding"]
    assert (about["kind"], about["name"], about["uid"]) == ("JobSet", "train", created["metadata"]["uid"])
    assert event["reportingInstance"]


async def test_repeats_are_one_event_with_a_series(stage: Stage) -> None:
    """A Job that cannot be created gives one Event; repeats raise its count."""
    foreign = {
        "metadata": {"name": "train-workers-0"},
        "spec": {"template": replicated_job()["template"]["spec"]["template"]},
    }
    await stage.client.create(JOBS, stage.namespace, {"apiVersion": "batch/v1", "kind": "Job"} | foreign)
    await stage.submit(jobset(strategy=None))

    async def folded() -> Any:
        events = [
            event
            for event in (await stage.client.list(EVENTS, stage.namespace))["items"]
            if event["reason"] == "JobCreationFailed"
        ]
        return [(event.get("series") or {}).get("count", 1) > 1 for event in events]

    await eventually(folded, [True])


async def test_metrics(stage: Stage, controller: ServedController) -> None:
    """Upstream's two counters have name and namespace, count once, and are deleted with the JobSet."""
    await stage.start(jobset("counted", strategy=None))
    await stage.succeed("counted-workers-0")
    await stage.becomes_terminal("Completed")
    line = f'jobset_completed_total{{jobset_name="counted",namespace="{stage.namespace}"}} 1.0'
    await eventually(lambda: line in controller.metrics(), True)
    await stage.client.delete(JOBSETS, stage.namespace, "counted", propagation="Background")
    await eventually(lambda: line in controller.metrics(), False)


async def test_a_write_that_lost_a_race_is_decided_again(stage: Stage, audit_folder: Path) -> None:
    """When a user's edits make a status write conflict, the controller reads the JobSet again and converges."""

    async def edit_and_look() -> bool:
        for suspend in (True, False) * 5:
            await stage.edit({"spec": {"suspend": suspend}})
        return any(
            right_of(event) == (wire.API_GROUP, "jobsets", "get") and event["objectRef"]["namespace"] == stage.namespace
            for event in requests_of(audit_folder, USER)
        )

    await stage.start(jobset(strategy=None))
    await eventually(edit_and_look, True)
    await stage.edit({"spec": {"suspend": True}})
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
