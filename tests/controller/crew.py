"""
Play kubelets and agents for a JobSet: make its Pods, announce epochs, let workers run and die.

Works on any API server, so that the same scenarios run on the embedded one and on a real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBS, JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire import unfit

FAILED_CHECK = f"{unfit.WORDS}: it ended with exit code 1: GPU 3"
GPU: KubeObject = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
_KEPT = ("affinity", "nodeSelector", "schedulingGates", "serviceAccountName", "tolerations")


@dataclass
class Crew:
    """The Pods of one JobSet; `pods` maps (job name, completion index) to the Pod's name."""

    client: KubeClient
    namespace: str
    name: str
    pods: dict[tuple[str, int], str] = field(default_factory=dict)
    _made: int = 0

    def pod_at(self, index: int) -> str:
        """Return the first Pod with a completion index: the only one where there is one Job."""
        return next(pod for (_, place), pod in self.pods.items() if place == index)

    async def jobset(self) -> KubeObject:
        """Return the JobSet."""
        return await self.client.get(JOBSETS, self.namespace, self.name)

    async def status(self) -> dict[str, Any]:
        """Return the JobSet's status."""
        status: dict[str, Any] = (await self.jobset()).get("status") or {}
        return status

    async def last_restart(self) -> KubeObject:
        """Return status.lastGroupRestart."""
        last: KubeObject = (await self.status()).get(wire.LAST_GROUP_RESTART) or {}
        return last

    async def epochs(self) -> tuple[int, int]:
        """Return (S, D)."""
        return wire.epochs_of_status(await self.status())

    async def find_condition(self, kind: str) -> KubeObject | None:
        """Return a condition of the JobSet; None where it has none of this type."""
        return (await self._conditions()).get(kind)

    async def condition(self, kind: str) -> KubeObject:
        """Return a condition that the JobSet must have."""
        conditions = await self._conditions()
        assert kind in conditions, f"expected a condition {kind}, saw {conditions}"
        return conditions[kind]

    async def _conditions(self) -> dict[str, KubeObject]:
        return {condition["type"]: condition for condition in (await self.status()).get("conditions") or ()}

    async def has_only_leaving_jobs(self) -> bool:
        """Return whether every Job is being deleted."""
        return all("deletionTimestamp" in job["metadata"] for job in (await self.jobs()).values())

    async def jobs(self) -> dict[str, KubeObject]:
        """Return the JobSet's Jobs by name."""
        found = await self.client.list(JOBS, self.namespace)
        return {
            job["metadata"]["name"]: job
            for job in found["items"]
            if job["metadata"].get("labels", {}).get(wire.JOBSET_NAME) == self.name
        }

    async def job_uids(self) -> dict[str, str]:
        """Return the UIDs of the JobSet's Jobs by name."""
        return {name: job["metadata"]["uid"] for name, job in (await self.jobs()).items()}

    async def make_pods(self) -> None:
        """Make a Pod in every slot of every Job that has none."""
        for name, job in (await self.jobs()).items():
            for index in range(job["spec"]["parallelism"]):
                if (name, index) not in self.pods:
                    await self.make_pod(job, index)

    async def make_pod(self, job: KubeObject, index: int, **changes: Any) -> str:
        """Make one Pod as the Job controller does; return its name."""
        self._made += 1
        job_name = job["metadata"]["name"]
        template = job["spec"]["template"]
        metadata = template.get("metadata") or {}
        completion = {wire.JOB_COMPLETION_INDEX: str(index)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{job_name}-{index}-{self._made:05d}",
                "labels": (metadata.get("labels") or {}) | completion,
                "annotations": (metadata.get("annotations") or {}) | completion,
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": job_name,
                        "uid": job["metadata"]["uid"],
                        "controller": True,
                    }
                ],
            }
            | changes,
            # A real server lets no container of a Pod start again that never restarts, and tells no device that a
            # container did not ask for.
            "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "worker", "image": "worker:1"} | GPU]}
            | {part: template["spec"][part] for part in _KEPT if part in template["spec"]},
        }
        created = await self.client.create(PODS, self.namespace, pod)
        name: str = created["metadata"]["name"]
        self.pods[job_name, index] = name
        return name

    async def replace(self, job: str, index: int) -> str:
        """Make another Pod in a slot, as the Job controller does; return its name."""
        return await self.make_pod((await self.jobs())[job], index)

    async def bind(self, pod: str, node: str) -> None:
        """Bring a Pod to a node, as the scheduler does."""
        metadata, target = {"name": pod}, {"kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.client.raw("POST", PODS.path(self.namespace, pod, subresource="binding"), body=binding)

    async def run_on(self, pod: str, node: str) -> None:
        """Bring a Pod to a node, and let it run."""
        await self.bind(pod, node)
        await self.set_phase(pod, "Running")

    async def announce(self, pod: str, epoch: int) -> None:
        """Write the announcement of an agent."""
        await self.annotate(pod, wire.epoch_annotations(epoch))

    async def announce_all(self, epoch: int, pods: Iterable[str] | None = None) -> None:
        """Announce for these Pods, or for every one."""
        for pod in self.pods.values() if pods is None else pods:
            await self.announce(pod, epoch)

    async def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """Write any annotations."""
        await self.client.patch(PODS, self.namespace, pod, {"metadata": {"annotations": annotations}})

    async def set_worker(
        self,
        pod: str,
        *,
        run: int = 1,
        exit_code: int | None = None,
        ended: KubeObject | None = None,
        container: KubeObject | None = None,
        **status: Any,
    ) -> None:
        """Report the worker container as kubelet does: running, or ended with an exit code or with these fields."""
        state: KubeObject = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if ended is not None or exit_code is not None:
            state = {"terminated": ended or {"exitCode": exit_code}}
        reported = (container or {}) | {
            "name": "worker",
            "containerID": f"containerd://{pod}-{run}",
            "state": state,
            "image": "worker:1",
            "imageID": "",
            "ready": "running" in state,
            "restartCount": run - 1,
        }
        await self.set_pod(pod, containerStatuses=[reported], **status)

    async def set_phase(self, pod: str, phase: str) -> None:
        """Set a Pod's phase."""
        await self.set_pod(pod, phase=phase)

    async def remove(self, pod: str) -> None:
        """Remove a Pod at once."""
        await self.client.delete(PODS, self.namespace, pod, grace_period_s=0)
        self.pods = {slot: name for slot, name in self.pods.items() if name != pod}

    async def finish_job(self, name: str, condition: str, *, reason: str = "", message: str = "") -> None:
        """Let a Job fail or complete."""
        before = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}[condition]
        time = "2026-01-01T00:00:00Z"
        entry = {
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": time,
            "lastProbeTime": time,
        }
        status: KubeObject = {
            "startTime": time,
            "active": 0,
            "ready": 0,
            "conditions": [entry | {"type": before}, entry | {"type": condition}],
        }
        if condition == "Complete":
            job = await self.client.get(JOBS, self.namespace, name)
            status |= {"completionTime": time, "succeeded": job["spec"]["completions"]}
        await self.set_job(name, **status)

    async def set_pod(self, pod: str, **status: Any) -> None:
        """Report fields of a Pod's status, as kubelet does."""
        await self.client.patch(PODS, self.namespace, pod, {"status": status}, subresource="status")

    async def set_job(self, name: str, **status: Any) -> None:
        """Report fields of a Job's status, as the Job controller does."""
        await self.client.patch(JOBS, self.namespace, name, {"status": status}, subresource="status")


async def exists(client: KubeClient, resource: Any, namespace: str, name: str) -> bool:
    """Return whether an object exists."""
    try:
        await client.get(resource, namespace, name)
    except ApiError:
        return False
    return True
