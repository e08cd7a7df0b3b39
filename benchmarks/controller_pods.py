"""
One JobSet with a played Job controller, kubelets and agents: Pods as large as real ones, with the same writes.

A Pod is that of examples/train.yaml with the fields that admission, scheduler and kubelet add: some 9 kB with
managedFields. Each group restart writes it three times: containers ended, epoch announced, containers running and ready
again. The Job controller writes each Job twice: no Pod ready, all ready.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from benchmarks.controller_lab import NAMESPACE
from inplace.common.kube.client import MERGE_PATCH, KubeClient
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBS, JOBSETS, PODS, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.common.wire.members import Announced, announcement_text
from testbed.waiting import until

T = TypeVar("T")
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "train.yaml"
PODS_PER_JOB: Final = 100
WRITES_AT_ONCE: Final = 24  # more do not make a server on two cores faster
RESTARTS_MAX: Final = 2**31 - 1
_SLIM: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"  # the answer that costs us least
TIME = "2026-01-01T00:00:00Z"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
_NOT_READY = ("Ready", "ContainersReady")


@cache
def _example() -> KubeObject:
    """Return the JobSet of the example; read ONCE, because reading YAML takes longer than what is measured."""
    return next(one for one in yaml.safe_load_all(EXAMPLE.read_text()) if one["kind"] == wire.KIND)


def jobset(name: str, pods: int, spares: int | None = None) -> KubeObject:
    """Return the JobSet of examples/train.yaml with this number of Pods; spares, also 0, are in one Job with all."""
    manifest = deepcopy(_example())
    manifest["metadata"] = {"name": name, "namespace": NAMESPACE, "annotations": {wire.FAILURES: "backoff=0"}}
    manifest["spec"]["failurePolicy"]["maxRestarts"] = RESTARTS_MAX
    (workers,) = manifest["spec"]["replicatedJobs"]
    per_job = min(pods, PODS_PER_JOB) if spares is None else pods
    if spares:
        manifest["metadata"]["annotations"][wire.MEMBERS] = f"max={pods - spares}"
    assert pods % per_job == 0, f"expected up to {PODS_PER_JOB} pods or a multiple of it, saw {pods}"
    workers["replicas"] = pods // per_job
    workers["template"]["spec"] |= {"parallelism": per_job, "completions": per_job}
    return manifest


@dataclass(slots=True)
class PlayedGroup:
    """The Pods of one JobSet, by name; spares are the last ones, and all are of one Job then."""

    client: KubeClient
    name: str
    spares: int | None = None
    epoch: int = 0
    pods: list[str] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)  # Job name -> Pods

    async def create(self, pods: int) -> None:
        """Create the JobSet, wait for its Jobs, make its Pods and let kubelets start them."""
        await self.client.create(JOBSETS, NAMESPACE, jobset(self.name, pods, self.spares))
        jobs = await self._await_jobs(1 if self.spares is not None else max(1, pods // PODS_PER_JOB))
        self.jobs = {job["metadata"]["name"]: job["spec"]["parallelism"] for job in jobs}
        slots = [(job, index) for job in jobs for index in range(job["spec"]["parallelism"])]
        await at_once(lambda slot: self._make(*slot), slots)
        await self.run_containers(self.pods)

    @property
    def members(self) -> list[str]:
        """Return the Pods that train."""
        return self.pods[: len(self.pods) - (self.spares or 0)]

    async def announce(self, pods: Iterable[str]) -> None:
        """Let the agents of these Pods announce the group's epoch."""
        await self._announce(pods, self.epoch, ran=self.epoch - 1)

    async def spares_wait(self) -> None:
        """Let the agents of the spares announce the epoch after the one that lifted without them."""
        await self._announce(self.pods[len(self.members) :], self.epoch + 1, ran=0)

    async def _announce(self, pods: Iterable[str], epoch: int, ran: int) -> None:
        more = {wire.RAN: announcement_text(epoch, Announced(ran))} if self.spares else {}
        patch = {"metadata": {"annotations": wire.epoch_annotations(epoch) | more}}
        await at_once(lambda pod: self._write(PODS, pod, patch), pods)

    async def end_containers(self, pods: Iterable[str]) -> None:
        """Let kubelets report that the containers of these Pods ended."""
        await at_once(lambda pod: self._report(pod, running=False), pods)

    async def run_containers(self, pods: Iterable[str]) -> None:
        """Let kubelets report that the containers of these Pods run."""
        await at_once(lambda pod: self._report(pod, running=True), pods)

    async def count_ready(self, *, ready: bool) -> None:
        """Let the Job controller write how many Pods of each Job are ready."""
        for job, pods in self.jobs.items():
            status = {"active": pods, "ready": pods if ready else 0, "startTime": "2026-01-01T00:00:00Z"}
            await self._write(JOBS, job, {"status": status}, "status")

    async def _await_jobs(self, count: int) -> list[KubeObject]:
        async def all_jobs() -> list[KubeObject] | None:
            selector = {"labelSelector": f"{wire.JOBSET_NAME}={self.name}"}
            listed: list[KubeObject] = (await self.client.list(JOBS, NAMESPACE, query=selector))["items"]
            return listed if len(listed) == count else None

        jobs: list[KubeObject] = await until(all_jobs, f"{count} Jobs of {self.name}")
        return jobs

    async def _make(self, job: KubeObject, index: int) -> None:
        """Make one Pod as the Job controller does, on a node."""
        name = f"{job['metadata']['name']}-{index}-x{len(self.pods):04d}"
        self.pods.append(name)
        template = deepcopy(job["spec"]["template"])
        completion = {wire.JOB_COMPLETION_INDEX: str(index)}
        metadata = template.get("metadata") or {}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        pod = {
            "metadata": {
                "name": name,
                "labels": (metadata.get("labels") or {}) | completion,
                "annotations": (metadata.get("annotations") or {}) | completion,
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            "spec": placed(template["spec"]),
        }
        await self._send("POST", PODS.path(NAMESPACE), pod, "application/json")

    async def _report(self, pod: str, *, running: bool) -> None:
        await self._write(PODS, pod, {"status": pod_status(pod, self.epoch - (not running), running=running)}, "status")

    async def _write(self, resource: Resource, name: str, patch: Any, subresource: str | None = None) -> None:
        await self._send("PATCH", resource.path(NAMESPACE, name, subresource=subresource), patch, MERGE_PATCH)

    async def _send(self, method: str, path: str, body: Any, kind: str) -> None:
        headers = self.client.headers | {"accept": _SLIM, "content-type": kind}
        await self.client.send(Request(method, path, headers, msgspec.json.encode(body)), timeout_s=30.0)


def placed(spec: KubeObject) -> KubeObject:
    """Return a Pod's spec with what admission and scheduler add: tolerations and a node."""
    lost = [f"node.kubernetes.io/{problem}" for problem in ("not-ready", "unreachable")]
    return spec | {
        "nodeName": "gpu-node-0001.cluster.example",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in lost
        ],
    }


async def at_once(call: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Call for each item in order, WRITES_AT_ONCE at a time."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITES_AT_ONCE):
            group.create_task(work())


def pod_status(pod: str, epoch: int, *, running: bool) -> KubeObject:
    """Return the status while the containers of an epoch run, or after they ended (the worker with an error)."""
    conditions = [
        {"type": kind, "status": "True" if running or kind not in _NOT_READY else "False", "lastTransitionTime": TIME}
        for kind in _CONDITIONS
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "10.0.0.1",
        "podIP": "10.244.0.1",
        "startTime": TIME,
        "qosClass": "Burstable",
        "initContainerStatuses": [_container(pod, "agent", epoch, running=running, exit_code=88)],
        "containerStatuses": [_container(pod, "worker", epoch, running=running, exit_code=143)],
    }


def _container(pod: str, name: str, epoch: int, *, running: bool, exit_code: int) -> KubeObject:
    digest = hashlib.sha256(f"{pod}/{name}/{epoch}".encode()).hexdigest()
    image = hashlib.sha256(name.encode()).hexdigest()
    ended = {"exitCode": exit_code, "reason": "Error", "startedAt": TIME, "finishedAt": TIME}
    ended["containerID"] = f"containerd://{digest}"
    return {
        "name": name,
        "image": f"registry.example/team/inplace-{name}:2026.1",
        "imageID": f"registry.example/team/inplace-{name}@sha256:{image}",
        "containerID": f"containerd://{digest}",
        "ready": running,
        "started": running,
        "restartCount": epoch,
        "state": {"running": {"startedAt": TIME}} if running else {"terminated": ended},
        "lastState": {"terminated": ended} if running and epoch else {},
    }
