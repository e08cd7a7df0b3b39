from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.wire.names import JOB_COMPLETION_INDEX
from inplace.simulator.cluster import job_indexes
from inplace.simulator.cluster.job_plan import Backoff, JobMemory, JobPlan, plan

NOW_S = 1_700_000_000.0
BACKOFF = Backoff(10.0, 600.0)


def job(**spec: Any) -> dict[str, Any]:
    """Return an Indexed Job of three Pods."""
    defaults = {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
        "backoffLimit": 6,
        "podReplacementPolicy": "Failed",
        "template": {"spec": {"restartPolicy": "Never", "containers": []}},
    }
    return {"metadata": {"name": "job", "namespace": "default", "uid": "job"}, "spec": defaults | spec, "status": {}}


def pod(index: int, phase: str = "Running", *, uid: str = "", deleted: bool = False, code: int = 1) -> dict[str, Any]:
    """Return a Pod of the Job."""
    meta: dict[str, Any] = {
        "name": f"job-{index}-{uid or 'abcde'}",
        "namespace": "default",
        "uid": uid or f"uid-{index}",
        "annotations": {JOB_COMPLETION_INDEX: str(index)},
    }
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    terminated = {"name": "worker", "state": {"terminated": {"exitCode": code}}}
    conditions = [{"type": "Ready", "status": "True"}] if phase == "Running" else []
    statuses = [terminated] if phase == "Failed" else []
    return {"metadata": meta, "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses}}


def decide(job: dict[str, Any], *pods: dict[str, Any], memory: JobMemory | None = None, at_s: float = 0.0) -> JobPlan:
    """Plan at a time."""
    return plan(job, pods, memory if memory is not None else JobMemory(), NOW_S + at_s, BACKOFF)


def conditions(planned: JobPlan) -> dict[str, tuple[str, str]]:
    """Return reason and message of each true condition."""
    found = planned.status.get("conditions") or ()
    return {c["type"]: (c["reason"], c["message"]) for c in found if c["status"] == "True"}


def test_the_nearer_of_deadline_and_back_off_wakes_the_controller() -> None:
    """Nothing else happens then: both are timers."""
    running = job(activeDeadlineSeconds=100)
    assert decide(running, pod(0), pod(1), pod(2)).again_s == 100.0
    assert decide(running, pod(0), pod(1), pod(2, "Failed")).again_s == 10.0
    assert decide(running | {"spec": running["spec"] | {"suspend": True}}, pod(0)).again_s is None


def test_pods_of_a_job_that_fails_are_counted_once() -> None:
    """As failed, while they run: however they end later, and also where the first status write was refused."""
    failing, memory = job(activeDeadlineSeconds=100), JobMemory()
    failing["status"] = {"startTime": "2023-11-14T22:13:20Z"}
    pods = [pod(index) for index in range(3)]
    refused = decide(failing, *pods, memory=memory.copy(), at_s=100.0)
    written = decide(failing, *pods, memory=memory, at_s=100.0)
    assert (refused.status["failed"], written.status["failed"], written.released) == (3, 3, frozenset())
    ended = [pod(0, "Succeeded"), pod(1, "Failed"), pod(2, deleted=True)]
    later = decide(failing | {"status": written.status}, *ended, memory=memory, at_s=101.0)
    assert (later.status["failed"], later.status["succeeded"], "Failed" in conditions(later)) == (3, 0, False)
    over = decide(failing | {"status": later.status}, *ended[:2], memory=memory, at_s=102.0)
    assert conditions(over)["Failed"][0] == "DeadlineExceeded"


def test_missing_indexes_are_created_lowest_first() -> None:
    """Indexes with an active Pod are left alone."""
    planned = decide(job(), pod(1))
    assert planned.create == (0, 2)
    assert (planned.status["active"], planned.status["ready"]) == (1, 1)


def test_a_failed_pod_is_replaced_after_the_backoff() -> None:
    """Ten seconds after the first failure, twice that after the second."""
    memory = JobMemory()
    failed = pod(0, "Failed")
    planned = decide(job(), failed, pod(1), pod(2), memory=memory)
    assert (planned.create, planned.again_s, planned.status["failed"]) == ((), 10.0, 1)
    running = job() | {"status": planned.status}
    assert decide(running, failed, pod(1), pod(2), memory=memory, at_s=10).create == (0,)
    again = decide(running, failed, pod(0, "Failed", uid="second"), pod(1), pod(2), memory=memory, at_s=11)
    assert (again.create, again.again_s, again.status["failed"]) == ((), 20.0, 2)


def test_a_terminating_pod_is_replaced_at_once_unless_the_policy_says_failed() -> None:
    """PodReplacementPolicy decides whether its index is taken, and whether it counts as failed."""
    pods = pod(0, deleted=True), pod(1), pod(2)
    assert decide(job(podReplacementPolicy="Failed"), *pods).create == ()
    planned = plan(job(podReplacementPolicy="TerminatingOrFailed"), pods, JobMemory(), NOW_S, Backoff(0, 0))
    assert planned.create == (0,)
    assert (planned.status["failed"], planned.status["terminating"]) == (1, 1)


def test_too_many_failures_fail_the_job_once_its_pods_are_gone() -> None:
    """FailureTarget comes first and stops the Pods; Failed has the same reason and message."""
    planned = decide(job(backoffLimit=0), pod(0, "Failed"), pod(1))
    words = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert conditions(planned) == {"FailureTarget": words}
    assert [p["metadata"]["uid"] for p in planned.delete] == ["uid-1"]
    ended = decide(job(backoffLimit=0) | {"status": planned.status}, pod(0, "Failed"), memory=JobMemory({"uid-0"}))
    assert conditions(ended) == {"FailureTarget": words, "Failed": words}


def test_a_failure_policy_names_what_it_matched() -> None:
    """FailJob on an exit code; Ignore does not count; an unmatched code counts."""
    rules = [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailJob", "onExitCodes": {"containerName": "worker", "operator": "In", "values": [42]}},
    ]
    policy = {"rules": rules}
    assert decide(job(podFailurePolicy=policy), pod(0, "Failed", code=7)).status.get("failed", 0) == 0
    assert decide(job(podFailurePolicy=policy), pod(0, "Failed", code=1)).status["failed"] == 1
    planned = decide(job(podFailurePolicy=policy), pod(0, "Failed", code=42))
    message = "Container worker for pod default/job-0-abcde failed with exit code 42 matching FailJob rule at index 1"
    assert conditions(planned)["FailureTarget"] == ("PodFailurePolicy", message)


def test_a_job_completes_when_every_index_succeeded() -> None:
    """CompletedIndexes survives the Pods; Complete waits for none."""
    memory = JobMemory()
    first = decide(job(), pod(0, "Succeeded"), pod(1, "Succeeded"), pod(2), memory=memory)
    assert first.status["completedIndexes"] == "0,1"
    assert first.create == ()
    last = decide(job() | {"status": first.status}, pod(2, "Succeeded"), memory=memory)
    words = ("CompletionsReached", "Reached expected number of succeeded pods")
    assert conditions(last) == {"SuccessCriteriaMet": words, "Complete": words}
    assert last.status["completedIndexes"] == "0-2"


def test_suspension_deletes_the_pods_and_resumption_starts_the_clock_again() -> None:
    """A suspension deletes the Pods; a resume starts the clock again; the conditions show which was last."""
    suspended = decide(job(suspend=True), pod(0), pod(1), pod(2))
    assert len(suspended.delete) == 3
    assert suspended.released == {"uid-0", "uid-1", "uid-2"}
    assert conditions(suspended)["Suspended"] == ("JobSuspended", "Job suspended")
    resumed = decide(job() | {"status": suspended.status}, at_s=60)
    assert resumed.create == (0, 1, 2)
    assert {c["type"]: (c["status"], c["reason"]) for c in resumed.status["conditions"]}["Suspended"] == (
        "False",
        "JobResumed",
    )


def test_a_released_pod_is_counted_neither_as_failed_nor_as_succeeded() -> None:
    """However the Pods of a suspended Job end, no count changes and no back-off begins."""
    memory = JobMemory()
    suspended = decide(job(suspend=True), pod(0), pod(1), pod(2), memory=memory)
    ended = pod(0, "Failed", deleted=True), pod(1, "Succeeded", deleted=True), pod(2, deleted=True)
    stopped = decide(job(suspend=True) | {"status": suspended.status}, *ended, memory=memory, at_s=1)
    assert (stopped.status.get("failed", 0), stopped.status["succeeded"]) == (0, 0)
    resumed = decide(job() | {"status": stopped.status}, memory=memory, at_s=2)
    assert (resumed.create, resumed.again_s) == ((0, 1, 2), None)


def test_an_elastic_job_drops_the_highest_indexes() -> None:
    """Fewer completions and parallelism delete the Pods above them; more create the new ones."""
    shrunk = decide(job(completions=1, parallelism=1), pod(0), pod(1), pod(2))
    assert sorted(p["metadata"]["uid"] for p in shrunk.delete) == ["uid-1", "uid-2"]
    assert decide(job(completions=5, parallelism=5), pod(0), pod(1), pod(2)).create == (3, 4)


def test_restarts_count_against_the_limit_only_under_on_failure() -> None:
    """In-place restarts use up backoffLimit under restartPolicy OnFailure, and not under Never."""
    running = pod(0)
    running["status"]["containerStatuses"] = [{"name": "worker", "restartCount": 3, "state": {"running": {}}}]
    never = decide(job(backoffLimit=3), running)
    assert conditions(never) == {}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": []}}
    assert "FailureTarget" in conditions(decide(job(backoffLimit=3, template=template), running))


@given(st.sets(st.integers(0, 200)))
def test_compressed_indexes_round_trip(indexes: set[int]) -> None:
    """Any set of indexes has a text form that reads back as the same set."""
    assert job_indexes.expand(job_indexes.compress(indexes)) == indexes
