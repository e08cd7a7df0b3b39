"""Trainer's TrainJobs of one namespace, and the runtimes that it ships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from testbed.api_client import UnexpectedStatus
from testbed.clients.programs import trainer_runtimes
from testbed.waiting import until
from tests.cluster.clients.queue import QUEUE_LABEL, Object, Queue, is_true
from tests.cluster.clients.world import World

API: Final = "trainer.kubeflow.org/v1alpha1"
UNKNOWN_RUNTIME: Final = "' not found\","  # Trainer's webhook asks its cache, which may not have a new runtime yet
ONE_CPU: Final = {"resourcesPerNode": {"requests": {"cpu": "1"}}}


@dataclass(frozen=True, slots=True)
class TrainJobs:
    """The TrainJobs of one namespace."""

    queue: Queue

    def path(self, name: str = "train") -> str:
        """Return the path of a TrainJob."""
        return f"/apis/{API}/namespaces/{self.queue.namespace}/trainjobs/{name}"

    async def submit(self, runtime: str, *, queued: bool = False, name: str = "train", **spec: Any) -> Object:
        """Create a TrainJob of a runtime, and a volume for the claim of its initializers, where it has some."""
        if runtime.startswith("torchtune"):
            await self.queue.world.applier.apply_one(_volume(self.queue.namespace, name))
        labels = {QUEUE_LABEL: "queue"} if queued else {}
        metadata = {"name": name, "namespace": self.queue.namespace, "labels": labels}
        body = {"apiVersion": API, "kind": "TrainJob", "metadata": metadata}
        body["spec"] = {"runtimeRef": {"name": runtime, "kind": "ClusterTrainingRuntime"}, **spec}
        return await _apply_soon(self.queue.world, body)

    async def becomes(self, kind: str, name: str = "train") -> Object:
        """Wait until a condition of a TrainJob is True."""

        async def look() -> Object:
            found: Object = await self.queue.world.api.get(self.path(name))
            return found if is_true(found, kind) else {}

        found: Object = await until(look, f"TrainJob {name} {kind}")
        return found


async def shipped_runtimes(world: World) -> dict[str, Object]:
    """Apply the runtimes that Trainer ships, and return them by name; Trainer must run."""
    found = {each["metadata"]["name"]: each for each in trainer_runtimes()}
    for each in found.values():
        await _apply_soon(world, each)
    return found


async def _apply_soon(world: World, document: Object) -> Object:
    """Apply an object, and return what is stored, once Trainer's webhook answers and its cache has the runtime."""

    async def applied() -> Object:
        try:
            return await world.applier.apply_one(document)
        except UnexpectedStatus as error:
            if error.status != 500 and UNKNOWN_RUNTIME not in error.body:
                raise
            return {}

    stored: Object = await until(applied, f"{document['kind']} {document['metadata']['name']} applied")
    return stored


def _volume(namespace: str, trainjob: str) -> Object:
    """Return a volume for one claim: tests of other clients have claims that wait for any volume."""
    spec = {"capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/unused"}}
    claim = {"namespace": namespace, "name": f"initializer-{trainjob}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{trainjob}"},
        "spec": {**spec, "persistentVolumeReclaimPolicy": "Retain", "claimRef": claim},
    }
