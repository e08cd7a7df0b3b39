"""
One JobSet of a case: its Pods belong to its Job, and run nowhere.

They ask for a node label that no node has. So no kubelet and no agent acts, and the suite writes what they would write.
Names are spelled out here and not imported: they are the contract.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeVar

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import JOBS, JOBSETS, PODS, KubeObject

T = TypeVar("T")
ATTEMPT: Final = "jobset.sigs.k8s.io/in-place-restart-attempt"
DISABLED: Final = "jobset.sigs.k8s.io/disable-in-place-restart"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
CURRENT: Final = "currentInPlaceRestartAttempt"
PREVIOUS: Final = "previousInPlaceRestartAttempt"
NO_NODE: Final = {"conformance.example/node": "none"}
HOLD: Final = ("batch.kubernetes.io/job-tracking", "conformance.example/hold")  # finalizers: the Pod stays
PODS_OF_A_GROUP: Final = 3
QUIET_S: Final = 2.0  # in which one that acts by mistake has acted
POLL_S: Final = 0.05
INT32_MAX: Final = 2**31 - 1


class CaseFailedError(Exception):
    """What was expected, and what was seen."""


class Group:
    """A JobSet and its Pods.

    Args:
        client: may do anything in the namespace.
        namespace: of the suite's run.
        name: of the JobSet.
        patience_s: a controller or agent that needs longer does not act at all.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str, patience_s: float) -> None:
        self.client = client
        self.namespace = namespace
        self.name = name
        self.patience_s = patience_s
        self.size = PODS_OF_A_GROUP

    async def create(
        self, *, restarts_max: int = 100, managed_by: str = "", annotations: Any = None, but: Collection[str] = ()
    ) -> list[str]:
        """Create the JobSet; return the names of its Pods, once the Job controller has made them.

        Args:
            restarts_max: spec.failurePolicy.maxRestarts.
            managed_by: spec.managedBy; a value of nobody's leaves the JobSet to the suite, and it has no Pods then.
            annotations: of the JobSet.
            but: UIDs of Pods that do not count: of an older JobSet of this name.
        """
        spec: dict[str, Any] = {
            "failurePolicy": {"maxRestarts": restarts_max, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": self._job()}}],
        }
        # The annotation keeps a controller that adds agents from doing so.
        metadata = {"name": self.name, "annotations": {"inplace.dev/agent": "off"} | (annotations or {})}
        await self.client.create(
            JOBSETS,
            self.namespace,
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": metadata,
                "spec": spec | ({"managedBy": managed_by} if managed_by else {}),
            },
        )
        return [] if managed_by else await self.pods(but=but)

    async def pods(self, *, but: Collection[str] = ()) -> list[str]:
        """Return the names of the Pods that live, once there are as many as there should be.

        Args:
            but: the UIDs of those that do not count.
        """

        async def all_there() -> list[str] | None:
            listed = await self.client.list(PODS, self.namespace, query={"labelSelector": f"{JOBSET_NAME}={self.name}"})
            found = [one["metadata"] for one in listed["items"]]
            living = [one["name"] for one in found if one["uid"] not in but and "deletionTimestamp" not in one]
            return sorted(living) if len(living) == self.size else None

        return await self.soon(all_there, f"{self.size} Pods of {self.name}, made by the Job controller")

    async def announce(self, attempt: int | str, *pods: str) -> None:
        """Write what the agents of these Pods write: the attempt for which they are ready."""
        for pod in pods:
            await self.annotate(pod, {ATTEMPT: str(attempt)})

    async def annotate(self, pod: str, annotations: dict[str, str]) -> None:
        """Write annotations on a Pod."""
        await self.client.patch(PODS, self.namespace, pod, {"metadata": {"annotations": annotations}})

    async def formed(self, **how: Any) -> list[str]:
        """Create the JobSet, let all Pods announce attempt 0, and wait for it; return the Pods."""
        pods = await self.create(**how)
        await self.announce(0, *pods)
        await self.reaches(current=0)
        return pods

    async def status(self) -> KubeObject:
        """Return the JobSet's status."""
        found: KubeObject = (await self.client.get(JOBSETS, self.namespace, self.name)).get("status") or {}
        return found

    async def write_status(self, **attempts: int) -> None:
        """Play the controller: write the status."""
        fields = {CURRENT: attempts.get("current"), PREVIOUS: attempts.get("previous")}
        patch = {"status": {name: value for name, value in fields.items() if value is not None}}
        await self.client.patch(JOBSETS, self.namespace, self.name, patch, subresource="status")

    async def reaches(self, *, current: int | None = None, previous: int | None = None) -> None:
        """Wait until the status has these attempts; None is not looked at."""

        async def has() -> bool:
            status = await self.status()
            return all(
                wanted is None or status.get(name) == wanted
                for name, wanted in ((CURRENT, current), (PREVIOUS, previous))
            )

        await self.soon(has, f"{CURRENT} {current} and {PREVIOUS} {previous} (None: any)", self._seen)

    async def stays(self, *, current: int | None, previous: int | None) -> None:
        """Look for QUIET_S that the status has these attempts; None: the field is absent."""
        until_s = time.monotonic() + QUIET_S
        while time.monotonic() < until_s:
            status = await self.status()
            if (status.get(CURRENT), status.get(PREVIOUS)) != (current, previous):
                raise CaseFailedError(
                    f"expected {CURRENT} {current} and {PREVIOUS} {previous} to stay, saw {await self._seen()}"
                )
            await asyncio.sleep(POLL_S)

    async def condition(self, kind: str) -> KubeObject:
        """Return a condition, once it is True."""

        async def true() -> KubeObject | None:
            found = (await self.status()).get("conditions") or []
            return next((one for one in found if one["type"] == kind and one["status"] == "True"), None)

        return await self.soon(true, f"the condition {kind}", self._seen)

    async def delete(self) -> None:
        """Delete the JobSet and let its Pods go."""
        try:
            await self.client.delete(JOBSETS, self.namespace, self.name)
        except NotFound:
            return

    async def gone(self) -> None:
        """Wait until the JobSet is gone; Pods of it may be left."""

        async def is_gone() -> bool:
            try:
                await self.client.get(JOBSETS, self.namespace, self.name)
            except NotFound:
                return True
            return False

        await self.soon(is_gone, f"no JobSet {self.name}")

    async def uids(self, *pods: str) -> list[str]:
        """Return the UIDs of Pods."""
        return [(await self.client.get(PODS, self.namespace, pod))["metadata"]["uid"] for pod in pods]

    async def job_uid(self) -> str:
        """Return the UID of the Job."""
        return str((await self.client.get(JOBS, self.namespace, f"{self.name}-w-0"))["metadata"]["uid"])

    async def soon(
        self, look: Callable[[], Awaitable[T | None]], what: str, seen: Callable[[], Awaitable[str]] | None = None
    ) -> T:
        """Return what a look finds, once it finds something.

        Raises:
            CaseFailedError: it found nothing for so long.
        """
        until_s = time.monotonic() + self.patience_s
        while not (found := await look()):
            if time.monotonic() > until_s:
                last = await seen() if seen is not None else "nothing"
                raise CaseFailedError(f"expected {what} within {self.patience_s:g} s, saw {last}")
            await asyncio.sleep(POLL_S)
        return found

    async def _seen(self) -> str:
        status = await self.status()
        kinds = [one["type"] for one in status.get("conditions") or [] if one["status"] == "True"]
        return f"{CURRENT} {status.get(CURRENT)}, {PREVIOUS} {status.get(PREVIOUS)}, conditions {kinds}"

    def _job(self) -> KubeObject:
        return {
            "completionMode": "Indexed",
            "parallelism": self.size,
            "completions": self.size,
            "backoffLimit": INT32_MAX,
            "podReplacementPolicy": "Failed",
            "template": {"spec": pod_spec()},
        }


def pod_spec() -> KubeObject:
    """Return the spec of a Pod that runs nowhere."""
    return {
        "restartPolicy": "Never",
        "nodeSelector": NO_NODE,
        "containers": [{"name": "worker", "image": "example.invalid/worker:1"}],
    }
