"""
How the Job controller suspends, resumes and waits, as cases for the simulated one and for kube-controller-manager.

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
from tests.conformance.api import DEADLINE_S, Api

HOLD = "example.com/hold"
BACKOFF_S = 7.5
"""A Pod that failed is replaced after 10 s. The real controller counts from `finishedAt`, which has whole seconds, and
the case sees the failure up to a second after that."""
AT_ONCE_S = 4.0  # a resume without a back-off; the real controller needs 0.2 s
POLL_S = 0.05


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
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await look():  # noqa: ASYNC110 -- the other side is a server: there is no event to wait for
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"expected {what} within {DEADLINE_S:g} s") from None
    return asyncio.get_running_loop().time()


async def _until_running(api: Api, pods: int) -> float:
    """Wait until so many Pods are there and none is being deleted."""

    async def look() -> bool:
        found = await _pods(api)
        return len(found) == pods and not any(p["metadata"].get("deletionTimestamp") or _ended(p) for p in found)

    return await _until(look, f"{pods} Pods that run")


async def _suspend(api: Api) -> None:
    """Suspend the Job and wait until the controller deleted each Pod."""
    await api.patch({"spec": {"suspend": True}}, "j", JOBS)

    async def look() -> bool:
        is_suspended = _condition(await _status(api), "Suspended") == "True"
        return is_suspended and all(p["metadata"].get("deletionTimestamp") for p in await _pods(api))

    await _until(look, "a suspended Job whose Pods are deleted")


async def _end(api: Api, pod: KubeObject, phase: str, code: int) -> None:
    """Report how a Pod ended, as its kubelet does."""
    name, at = pod["metadata"]["name"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": code, "startedAt": at, "finishedAt": at}  # the real controller's back-off counts from here
    container = {"name": "c", "image": "i:1", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [container | {"state": {"terminated": ended}}]}
    await api.patch({"status": status}, name, PODS, kind=STRATEGIC_MERGE_PATCH, subresource="status")


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
    await _end(api, (await _pods(api))[0], "Failed", 1)

    async def counted() -> bool:
        return bool((await _status(api)).get("failed", 0) == 1)

    failed_s = await _until(counted, "one failed Pod in the Job's status")
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


def _ended(pod: KubeObject) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _condition(status: KubeObject, kind: str) -> str | None:
    """Return the status of a condition; None where it is not there."""
    return next((c["status"] for c in status.get("conditions") or () if c["type"] == kind), None)


CASES = (suspended_pods_are_never_counted, a_suspended_job_of_one_does_not_complete, a_resume_keeps_the_backoff)
