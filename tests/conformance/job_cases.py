"""
How the Job controller suspends, resumes, waits and fails: cases for the simulated one and kube-controller-manager.

No kubelet takes part: a case writes the Pods' status itself. A finalizer of the case's own holds a deleted Pod, so that
the case can say how it ended. Time is the running loop's: virtual with the simulator, real with the real controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from inplace.common.kube.client import STRATEGIC_MERGE_PATCH
from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire.names import INDEX_FAILURES as FAILURES
from inplace.common.wire.names import INDEX_FAILURES_IGNORED as IGNORED
from inplace.common.wire.names import JOB_COMPLETION_INDEX
from testbed.waiting import until
from tests.conformance.api import DEADLINE_S, Api

HOLD = "example.com/hold"
BACKOFF_S, NEXT_BACKOFF_S = 8.5, 19.0
"""A Pod that failed is replaced after 10 s, after its second failure after 20 s. The real controller counts from
`finishedAt`, which the case writes in whole seconds."""
AT_ONCE_S = 4.0  # a resume without a back-off; the real controller needs 0.2 s
DEADLINE_EARLY_S, DEADLINE_LATE_S = 2.0, 12.0
"""Seconds of 3 and 15. The real controller writes whole seconds as a Job's start."""


async def _submit(api: Api, pods: int, **spec: Any) -> None:
    """Create an Indexed Job whose Pods the case holds."""
    template = {
        "metadata": {"finalizers": [HOLD]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]},
    }
    body = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": template, **spec}
    await api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": body}, JOBS)


async def _pods(api: Api) -> list[KubeObject]:
    return list((await api.client.list(PODS, api.ns))["items"])


async def _status(api: Api) -> KubeObject:
    status: KubeObject = (await api.get("j", JOBS)).get("status") or {}
    return status


async def _until(look: Callable[[], Awaitable[bool]], what: str) -> float:
    """Return the loop's time at which a look succeeded."""
    await until(look, what, timeout_s=DEADLINE_S)
    return asyncio.get_running_loop().time()


async def _until_running(api: Api, pods: int) -> float:
    """Wait until so many Pods are there, none is being deleted, and the controller, which writes later, counts them."""

    async def look() -> bool:
        found = await _pods(api)
        runs = not any(p["metadata"].get("deletionTimestamp") or _ended(p) for p in found)
        return runs and len(found) == pods == (await _status(api)).get("active")

    return await _until(look, f"{pods} Pods that run")


async def _suspend(api: Api) -> None:
    """Suspend the Job and wait until the controller deleted each Pod."""
    await api.patch({"spec": {"suspend": True}}, "j", JOBS)

    async def look() -> bool:
        is_suspended = _condition(await _status(api), "Suspended") == "True"
        return is_suspended and all(p["metadata"].get("deletionTimestamp") for p in await _pods(api))

    await _until(look, "a suspended Job whose Pods are deleted")


async def _end(api: Api, pod: KubeObject, phase: str, code: int) -> float:
    """Report how a Pod ended, as its kubelet does; return the loop's time before, from which the back-off counts."""
    ended_s = asyncio.get_running_loop().time()
    name, at = pod["metadata"]["name"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": code, "startedAt": at, "finishedAt": at}  # the real controller's back-off counts from here
    container = {"name": "c", "image": "i:1", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [container | {"state": {"terminated": ended}}]}
    await api.patch({"status": status}, name, PODS, kind=STRATEGIC_MERGE_PATCH, subresource="status")
    return ended_s


async def _let_go(api: Api) -> None:
    """Drop the case's finalizer from every deleted Pod, and wait until these are gone."""
    for pod in await _pods(api):
        if pod["metadata"].get("deletionTimestamp"):
            await api.patch({"metadata": {"finalizers": None}}, pod["metadata"]["name"], PODS)

    async def look() -> bool:
        return not any(p["metadata"].get("deletionTimestamp") for p in await _pods(api))

    await _until(look, "no deleted Pod")


async def _resume(api: Api) -> float:
    """Resume the Job; return the loop's time."""
    await api.patch({"spec": {"suspend": False}}, "j", JOBS)
    return asyncio.get_running_loop().time()


async def suspended_pods_are_never_counted(api: Api) -> None:
    """Failed or succeeded, a suspended Pod changes no count, and a resume creates all Pods at once."""
    await _submit(api, 3)
    await _until_running(api, 3)
    await _suspend(api)
    assert "startTime" not in await _status(api)
    failed, succeeded, _ = await _pods(api)
    await _end(api, failed, "Failed", 143)
    await _end(api, succeeded, "Succeeded", 0)
    await _let_go(api)
    resumed_s = await _resume(api)
    assert await _until_running(api, 3) - resumed_s < AT_ONCE_S
    status = await _status(api)
    assert (status.get("failed", 0), status.get("succeeded", 0)) == (0, 0)
    assert _condition(status, "Suspended") == "False"


async def a_suspended_job_of_one_does_not_complete(api: Api) -> None:
    """A worker that saves at SIGTERM and exits 0 completes no Job that was suspended before."""
    await _submit(api, 1, podReplacementPolicy="Failed")
    await _until_running(api, 1)
    await _suspend(api)
    await _end(api, (await _pods(api))[0], "Succeeded", 0)
    await _let_go(api)
    resumed_s = await _resume(api)
    assert await _until_running(api, 1) - resumed_s < AT_ONCE_S
    assert _condition(await _status(api), "Complete") is None


async def a_resume_keeps_the_backoff(api: Api) -> None:
    """A failed Pod is replaced after ten seconds, and a suspension in between shortens that by nothing."""
    await _submit(api, 2, podReplacementPolicy="Failed")
    await _until_running(api, 2)
    failed_s = await _end(api, (await _pods(api))[0], "Failed", 1)

    async def counted() -> bool:
        return bool((await _status(api)).get("failed", 0) == 1)

    await _until(counted, "one failed Pod in the Job's status")
    await api.patch({"spec": {"suspend": True}}, "j", JOBS)

    async def deleted() -> bool:
        return all(p["metadata"].get("deletionTimestamp") or _ended(p) for p in await _pods(api))

    await _until(deleted, "no Pod that runs")
    for pod in await _pods(api):
        await api.client.delete(PODS, api.ns, pod["metadata"]["name"])
    await _let_go(api)
    await _resume(api)
    assert await _until_running(api, 2) - failed_s > BACKOFF_S
    assert (await _status(api)).get("failed", 0) == 1


async def a_deadline_ends_the_job(api: Api) -> None:
    """No event wakes the controller. Pods that run count as failed at once; the Job has failed once they are gone."""
    created_s = asyncio.get_running_loop().time()
    await _submit(api, 2, activeDeadlineSeconds=3)
    await _until_running(api, 2)
    assert await _until_failing(api, "DeadlineExceeded") - created_s > DEADLINE_EARLY_S
    await _until_status(api, failed=2, terminating=2, active=0)
    assert _condition(await _status(api), "Failed") is None
    await _end(api, (await _pods(api))[0], "Succeeded", 0)
    await _let_go(api)
    status = await _until_failed(api, "DeadlineExceeded")
    assert (status["failed"], status.get("succeeded", 0), status.get("completedIndexes", "")) == (2, 0, "")


async def a_deadline_counts_from_the_resume(api: Api) -> None:
    """A suspended Job has no deadline, and a resumed one has all of it."""
    await _submit(api, 1, activeDeadlineSeconds=15)
    await _until_running(api, 1)
    await asyncio.sleep(5.0)
    await _suspend(api)
    await _let_go(api)
    resumed_s = await _resume(api)
    await _until_running(api, 1)
    assert await _until_failing(api, "DeadlineExceeded") - resumed_s > DEADLINE_LATE_S


async def an_index_fails_alone(api: Api) -> None:
    """It is not replaced, and its peers run on; when each index has failed or succeeded, the Job has failed."""
    await _submit(api, 3, backoffLimitPerIndex=0)
    await _until_running(api, 3)
    assert (await _status(api)).get("failedIndexes") == ""
    await _end(api, await _pod_at(api, 1), "Failed", 1)
    await _until_status(api, failedIndexes="1", failed=1, active=2)
    assert _reason(await _status(api), "FailureTarget") is None
    for index in (0, 2):
        await _end(api, await _pod_at(api, index), "Succeeded", 0)
    status = await _until_failed(api, "FailedIndexes")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,2", "1", 1)


async def each_index_waits_for_itself(api: Api) -> None:
    """A Pod that fails is counted with its replacement, which knows of it; another index does not wait for that."""
    await _submit(api, 2, backoffLimitPerIndex=1)
    await _until_running(api, 2)
    assert (await _pod_at(api, 0))["metadata"]["annotations"][FAILURES] == "0"
    failed_s = await _end(api, await _pod_at(api, 0), "Failed", 1)
    await _until_status(api, active=1)
    assert (await _status(api)).get("failed", 0) == 0
    assert await _until_status(api, active=2, failed=1) - failed_s > BACKOFF_S
    assert (await _pod_at(api, 0))["metadata"]["annotations"][FAILURES] == "1"
    await _end(api, await _pod_at(api, 0), "Failed", 1)
    await _until_status(api, failedIndexes="0", failed=2, active=1)


async def indexes_that_are_lost_together_come_back_together(api: Api) -> None:
    """Each waits for itself, where one back-off for the Job would be 10 s x 2^3 for the four of them."""
    await _submit(api, 4, backoffLimitPerIndex=INT32_MAX)
    await _until_running(api, 4)
    ended_s = [await _end(api, await _pod_at(api, index), "Failed", 1) for index in range(4)]
    await _until_status(api, active=0)
    back_s = await _until_status(api, active=4, failed=4)
    assert back_s - ended_s[0] > BACKOFF_S
    assert back_s - ended_s[-1] < NEXT_BACKOFF_S


async def an_index_that_is_forgiven_waits_as_for_the_first_time(api: Api) -> None:
    """Its Pod says how often the index failed before, and whoever may change the Pod may take that away."""
    await _submit(api, 2, backoffLimitPerIndex=INT32_MAX)
    await _until_running(api, 2)
    await _end(api, await _pod_at(api, 0), "Failed", 1)
    await _until_status(api, active=2, failed=1)
    replacement = await _pod_at(api, 0)
    await api.patch({"metadata": {"annotations": {FAILURES: None}}}, replacement["metadata"]["name"], PODS)
    failed_s = await _end(api, replacement, "Failed", 1)
    await _until_status(api, active=1)
    assert BACKOFF_S < await _until_status(api, active=2, failed=2) - failed_s < NEXT_BACKOFF_S
    assert (await _pod_at(api, 0))["metadata"]["annotations"][FAILURES] == "1"


async def too_many_failed_indexes_fail_the_job(api: Api) -> None:
    """The Pods of the others are deleted, and count as failed."""
    await _submit(api, 3, backoffLimitPerIndex=0, maxFailedIndexes=1)
    await _until_running(api, 3)
    await _end(api, await _pod_at(api, 0), "Failed", 1)
    await _until_status(api, failedIndexes="0", active=2)
    await _end(api, await _pod_at(api, 2), "Failed", 1)
    await _until_failing(api, "MaxFailedIndexesExceeded")
    await _let_go(api)
    status = await _until_failed(api, "MaxFailedIndexesExceeded")
    assert (status["failedIndexes"], status["failed"], status.get("active", 0)) == ("0,2", 3, 0)


async def a_rule_fails_or_spares_an_index(api: Api) -> None:
    """FailIndex needs no retry; what Ignore names is counted nowhere but in its replacement's annotation."""
    rules = [
        {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}
        for action, code in (("FailIndex", 42), ("Ignore", 43))
    ]
    await _submit(api, 2, backoffLimitPerIndex=3, podFailurePolicy={"rules": rules})
    await _until_running(api, 2)
    await _end(api, await _pod_at(api, 0), "Failed", 42)
    await _until_status(api, failedIndexes="0", failed=1, active=1)
    failed_s = await _end(api, await _pod_at(api, 1), "Failed", 43)
    await _until_status(api, active=0)
    assert await _until_status(api, active=1, failed=1) - failed_s > BACKOFF_S
    annotations = (await _pod_at(api, 1))["metadata"]["annotations"]
    assert (annotations[FAILURES], annotations[IGNORED]) == ("0", "1")


async def _pod_at(api: Api, index: int) -> KubeObject:
    """Return the Pod of an index that has not ended."""
    found = [pod for pod in await _pods(api) if pod["metadata"]["annotations"][JOB_COMPLETION_INDEX] == str(index)]
    (pod,) = (pod for pod in found if not _ended(pod))
    return pod


async def _until_status(api: Api, **fields: Any) -> float:
    """Wait until the Job's status has these fields; 0 and "" stand for none."""
    nothing = {name: type(value)() for name, value in fields.items()}

    async def look() -> bool:
        status = await _status(api)
        return all(status.get(name, nothing[name]) == value for name, value in fields.items())

    return await _until(look, f"the status {fields}")


async def _until_failing(api: Api, reason: str) -> float:
    """Wait until the Job is about to fail, and each of its Pods is deleted or has ended."""

    async def look() -> bool:
        over = [p["metadata"].get("deletionTimestamp") or _ended(p) for p in await _pods(api)]
        return all(over) and _reason(await _status(api), "FailureTarget") == reason

    return await _until(look, f"FailureTarget with {reason}")


async def _until_failed(api: Api, reason: str) -> KubeObject:
    """Wait until the Job has failed; return its status."""

    async def look() -> bool:
        return _reason(await _status(api), "Failed") == reason

    await _until(look, f"Failed with {reason}")
    return await _status(api)


def _ended(pod: KubeObject) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _condition(status: KubeObject, kind: str) -> str | None:
    """Return the status of a condition; None where it is not there."""
    return next((c["status"] for c in status.get("conditions") or () if c["type"] == kind), None)


def _reason(status: KubeObject, kind: str) -> str | None:
    """Return the reason of a condition that is true; None where it is not there."""
    found = (c["reason"] for c in status.get("conditions") or () if c["type"] == kind and c["status"] == "True")
    return next(found, None)


CASES = (
    suspended_pods_are_never_counted,
    a_suspended_job_of_one_does_not_complete,
    a_resume_keeps_the_backoff,
    a_deadline_ends_the_job,
    a_deadline_counts_from_the_resume,
    an_index_fails_alone,
    each_index_waits_for_itself,
    indexes_that_are_lost_together_come_back_together,
    an_index_that_is_forgiven_waits_as_for_the_first_time,
    too_many_failed_indexes_fail_the_job,
    a_rule_fails_or_spares_an_index,
)
