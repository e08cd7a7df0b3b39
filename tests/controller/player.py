"""Play the Job controller, kubelets and agents of a JobSet, each on its own, until the group runs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

TURNS_MAX = 12  # a disturbance costs at most two group restarts of two turns each; the other turns wait for deletions
TURN_S = 2.0  # longer than all delays of the controller except that of counters

PHASES = ("forming", "running", "deprecated", "gathering", "lifting")
"""The phases of a group: before epoch 1; at epoch 1; one of four announced 2; three did; S is 2, no worker runs."""

FOUR = jobset(jobs=[replicated_job(replicas=2, pods=2)], restarts_max=5)


@dataclass
class Player:
    """Plays one JobSet."""

    rig: Rig
    crew: Crew

    async def bring(self, phase: str) -> None:
        """Bring a new group into a phase."""
        crew = self.crew
        await self._match_pods(await self._jobs())
        first, second, third, last = crew.pods.values()
        if phase == "forming":
            await crew.announce(first, 1)
            return
        await crew.announce_all(1)
        await self.rig.settle(0.1)
        for pod in crew.pods.values():
            await crew.set_worker(pod)
        await self.rig.settle(0.1)
        before = {"running": (), "deprecated": (first,), "gathering": (first, second, third)}
        for pod in before.get(phase, (first, second, third, last)):
            await self.rig.announce(crew, pod, 2, 0.1)

    async def pods(self) -> dict[str, str]:
        """Return every Pod: name by UID."""
        found = await self.rig.admin.list(PODS, self.crew.namespace)
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in found["items"]}

    async def turn(self) -> bool:
        """Let each player do one turn; return whether the whole group runs."""
        jobs = await self._jobs()
        synced, deprecated = await self.crew.epochs()
        await self._match_pods(jobs)
        told = [await self._answer(pod, synced, deprecated) for pod in self.crew.pods.values()]
        await self.rig.settle(TURN_S)
        suspended = [name for name, job in jobs.items() if job["spec"].get("suspend")]
        return bool(told) and not any(told) and not suspended and synced > deprecated

    async def play(self) -> None:
        """Take turns until the whole group runs."""
        await self.rig.settle(TURN_S)
        for _ in range(TURNS_MAX):
            if await self.turn():
                return
        raise AssertionError(f"not running after {TURNS_MAX} turns: {await self.crew.status()}")

    async def _jobs(self) -> dict[str, KubeObject]:
        """Return the JobSet's Jobs by owner, not by label."""
        uid = (await self.crew.jobset())["metadata"]["uid"]
        found = await self.rig.admin.list(JOBS, self.crew.namespace)
        return {
            job["metadata"]["name"]: job
            for job in found["items"]
            if uid in [owner["uid"] for owner in job["metadata"].get("ownerReferences", ())]
        }

    async def _match_pods(self, jobs: dict[str, KubeObject]) -> None:
        """Give each Job its Pods, as the Job controller does."""
        crew = self.crew
        for (home, index), name in list(crew.pods.items()):
            pod = await self._pod(name)
            if pod is None:
                del crew.pods[home, index]
                continue
            spec = jobs[home]["spec"] if home in jobs else {"suspend": True}
            if spec.get("suspend") or index >= spec["parallelism"] or _owner(pod) != jobs[home]["metadata"]["uid"]:
                await crew.remove(name)
        for name, job in jobs.items():
            if job["spec"].get("suspend") or "deletionTimestamp" in job["metadata"]:
                continue
            for index in range(job["spec"]["parallelism"]):
                if (name, index) not in crew.pods:
                    await crew.make_pod(job, index)
        for reported in jobs.values():
            await self._report(reported)

    async def _report(self, job: KubeObject) -> None:
        """Write a Job's status as the Job controller does: its active Pods, or that it is suspended."""
        old, stopped = job.get("status", {}), bool(job["spec"].get("suspend"))
        kinds = [entry["type"] for entry in old.get("conditions", ()) if entry["status"] == "True"]
        if "Failed" in kinds or (("Suspended" in kinds) == stopped and (stopped or "startTime" in old)):
            return
        time = "2026-01-01T00:00:00Z"
        condition = {"type": "Suspended", "status": str(stopped), "lastTransitionTime": time, "lastProbeTime": time}
        status: KubeObject = {"active": 0, "startTime": None, "conditions": [condition]}
        if not stopped:
            status |= {"active": job["spec"]["parallelism"], "startTime": time}
        with contextlib.suppress(NotFound):
            await self.crew.set_job(job["metadata"]["name"], **status)

    async def _answer(self, name: str, synced: int, deprecated: int) -> bool:
        """Act as a Pod's agent; return whether it announced."""
        pod = await self._pod(name)
        epoch = int((pod or {"metadata": {}})["metadata"].get("annotations", {}).get(wire.EPOCH, 0))
        if pod is None or (epoch > deprecated and epoch >= synced):
            return epoch != synced
        await self.crew.announce(name, synced + 1)
        return True

    async def _pod(self, name: str) -> KubeObject | None:
        try:
            return await self.rig.admin.get(PODS, self.crew.namespace, name)
        except NotFound:
            return None


def _owner(pod: KubeObject) -> str:
    (uid,) = [owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())] or [""]
    return str(uid)
