"""
The Job controller: keeps the planned Pods and status of every Job.

One task per Job; its Pods' events are gathered for a moment, as the real controller does, so that a thousand
of them cost one sync and one status write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Conflict, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.controller.plan.jobs import REPLACED_EARLY
from inplace.simulator.cluster.job_indexes import IndexFailures
from inplace.simulator.cluster.job_plan import Backoff, JobMemory, JobPlan, finished, plan
from inplace.simulator.cluster.job_pods import owner_uid, pod_of
from inplace.simulator.cluster.timings import Timings

BUILT_IN = "kubernetes.io/job-controller"
BATCH_MAX = 50  # requests in flight per Job; the first batch is one, each next twice as large
RETRY_S = 1.0


@dataclass(slots=True)
class _JobEntry:
    """One Job, its Pods and the Pods that vanished before they were counted."""

    job: KubeObject | None = None
    pods: dict[str, KubeObject] = field(default_factory=dict)
    gone: dict[str, KubeObject] = field(default_factory=dict)
    memory: JobMemory = field(default_factory=JobMemory)
    dirty: asyncio.Event = field(default_factory=asyncio.Event)


class JobController:
    """The controller of every Job that names no other one.

    Args:
        replaces_early: Jobs are as a mutating webhook of the cluster changed them: a Pod that still terminates is
            replaced, whatever podReplacementPolicy our controller wrote.
    """

    def __init__(
        self, client: KubeClient, *, clock: Clock, rng: Random, timings: Timings, replaces_early: bool = False
    ) -> None:
        self._replaces_early = replaces_early
        self._client = client
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self._backoff = Backoff(timings.job_failure_backoff_s, timings.job_failure_backoff_s_max)
        self._entries: dict[str, _JobEntry] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()

    def observe(self, plural: str, event_type: str, obj: KubeObject) -> None:
        """Process a change of a Job or a Pod."""
        if plural == "jobs":
            entry = self._entry(obj["metadata"]["uid"])
            if self._replaces_early:
                obj = obj | {"spec": obj["spec"] | {"podReplacementPolicy": REPLACED_EARLY}}
            entry.job = None if event_type == "DELETED" else obj
        elif plural == "pods" and (uid := owner_uid(obj)) is not None:
            entry = self._entry(uid)
            pod_uid = obj["metadata"]["uid"]
            if event_type != "DELETED":
                entry.pods[pod_uid] = obj
            elif entry.pods.pop(pod_uid, None) is not None and pod_uid not in entry.memory.counted:
                entry.gone[pod_uid] = _as_ended(obj)
        else:
            return
        entry.dirty.set()

    async def run(self) -> None:
        """Control until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                uid = await self._new.get()
                group.create_task(self._control(uid))

    def _entry(self, uid: str) -> _JobEntry:
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _JobEntry()
            self._new.put_nowait(uid)
        return entry

    async def _control(self, uid: str) -> None:
        """Sync one Job whenever something changed, until it and its Pods are gone."""
        entry = self._entries[uid]
        again_s: float | None = None
        while True:
            await self._wait(entry, again_s)
            entry.dirty.clear()
            if entry.job is None:
                if not entry.pods:
                    self._entries.pop(uid, None)
                    return
                again_s = None
                continue
            try:
                again_s = await self._sync(entry, entry.job)
            except (Conflict, NotFound):
                entry.dirty.set()
            except (ApiError, TransportError):
                again_s = RETRY_S
            await self._clock.sleep(self._timings.job_sync_batch_s)

    async def _wait(self, entry: _JobEntry, again_s: float | None) -> None:
        try:
            async with self._clock.timeout(again_s):
                await entry.dirty.wait()
        except TimeoutError:
            return

    async def _sync(self, entry: _JobEntry, job: KubeObject) -> float | None:
        """Bring one Job closer to its plan; return the seconds after which to look again."""
        managed_by = job["spec"].get("managedBy", BUILT_IN)
        if finished(job) or managed_by != BUILT_IN or "deletionTimestamp" in job["metadata"]:
            return None
        memory = entry.memory.copy()
        pods = [*entry.pods.values(), *entry.gone.values()]
        decided = plan(job, pods, memory, self._clock.wall_s(), self._backoff)
        await self._change_pods(job, decided, entry.memory)
        if decided.status != (job.get("status") or {}):
            await self._write_status(job, decided.status)
        # AFTER the write: only the Job's status keeps the counts safe.
        entry.gone.clear()
        memory.counted &= set(entry.pods)
        entry.memory = memory
        return decided.again_s

    async def _change_pods(self, job: KubeObject, decided: JobPlan, kept: JobMemory) -> None:
        namespace = job["metadata"]["namespace"]

        async def create(index: int | None) -> None:
            failures = decided.index_failures.get(-1 if index is None else index, IndexFailures())
            await self._client.create(PODS, namespace, pod_of(job, index, failures))

        async def delete(pod: KubeObject) -> None:
            meta = pod["metadata"]
            if meta["uid"] in decided.released:
                kept.counted.add(meta["uid"])  # BEFORE the request: it stays released when a later request fails
            try:
                await self._client.delete(PODS, namespace, meta["name"], uid=meta["uid"])
            except (NotFound, Conflict):
                return

        await _in_batches([_bind(delete, pod) for pod in decided.delete])
        await _in_batches([_bind(create, index) for index in decided.create])

    async def _write_status(self, job: KubeObject, status: KubeObject) -> None:
        meta = job["metadata"]
        fresh = job | {"status": status}
        await self._client.replace(JOBS, meta["namespace"], meta["name"], fresh, subresource="status")


def _bind(call: Callable[..., Awaitable[None]], argument: object) -> Callable[[], Awaitable[None]]:
    return lambda: call(argument)


async def _in_batches(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make the calls in batches that double, so that a refused request costs few; the first error ends it."""
    left = list(calls)
    size = 1
    while left:
        batch, left = left[:size], left[size:]
        for result in await asyncio.gather(*(call() for call in batch), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        size = min(2 * size, BATCH_MAX)


def _as_ended(pod: KubeObject) -> KubeObject:
    """Return a vanished Pod as an ended one: Failed, unless it had reported its end."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return pod
    return pod | {"status": status | {"phase": "Failed"}}
