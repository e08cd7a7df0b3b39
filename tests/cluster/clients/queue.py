"""A namespace with a LocalQueue, a ClusterQueue of its own, and what runs through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from testbed.api_client import UnexpectedStatus
from testbed.clients.played_nodes import PlayedPod
from testbed.clients.process_node import NAME as PROCESSES
from testbed.waiting import until
from tests.cluster.clients.manifests import in_place
from tests.cluster.clients.world import RESERVED, SPOT, World

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
PLENTY: Final = {"memory": "10Ti", "example.com/gpu": "1000"}
ADMITTED_S_MAX: Final = 15.0  # in whole seconds; mostly 1, and 6 once beside other tests
TAINT: Final = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}

Object = dict[str, Any]


def condition(thing: Object, kind: str) -> dict[str, str]:
    """Return a condition of an object; empty when it has none."""
    for each in thing.get("status", {}).get("conditions") or ():
        if each["type"] == kind:
            return dict(each)
    return {}


def is_true(thing: Object, kind: str) -> bool:
    """Return whether a condition of an object is True."""
    return condition(thing, kind).get("status") == "True"


@dataclass(slots=True)
class Queue:
    """One namespace whose LocalQueue `queue` leads to a ClusterQueue with the namespace's name."""

    world: World
    namespace: str
    _seen: set[str] = field(default_factory=set)

    @property
    def jobsets(self) -> str:
        """Return the path of the namespace's JobSets."""
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"

    @property
    def workloads_path(self) -> str:
        """Return the path of the namespace's Workloads."""
        return f"/apis/{KUEUE}/namespaces/{self.namespace}/workloads"

    async def submit(self, manifest: Object, *, queue: str = "queue", priority: str = "") -> Object:
        """Create a JobSet with the queue's label, and return what is stored."""
        labels = {QUEUE_LABEL: queue} | ({PRIORITY_LABEL: priority} if priority else {})
        queued = deepcopy(manifest)
        queued["metadata"]["namespace"] = self.namespace
        queued["metadata"]["labels"] = queued["metadata"].get("labels", {}) | labels
        created: Object = await self.world.api.post(self.jobsets, queued)
        return created

    async def jobset(self, name: str = "train") -> Object:
        """Return a JobSet."""
        found: Object = await self.world.api.get(f"{self.jobsets}/{name}")
        return found

    async def edit(self, patch: Mapping[str, Any], name: str = "train") -> Object:
        """Change a JobSet by a merge patch."""
        changed: Object = await self.world.api.patch(f"{self.jobsets}/{name}", patch)
        return changed

    async def workloads(self) -> list[Object]:
        """Return the Workloads of the namespace, and remember that they were there."""
        found: list[Object] = (await self.world.api.get(self.workloads_path))["items"]
        self._seen |= {each["metadata"]["uid"] for each in found}
        return found

    async def workload(self, owner: str = "train") -> Object:
        """Return the only Workload of a job; {} when there is none."""
        found = [each for each in await self.workloads() if _owner(each) == owner]
        assert len(found) <= 1, f"expected one Workload of {owner}, saw {len(found)}"
        return found[0] if found else {}

    async def workload_is(self, kind: str, owner: str = "train") -> Object:
        """Wait until a condition of a job's Workload is True, and return the Workload."""

        async def look() -> Object:
            found = await self.workload(owner)
            return found if is_true(found, kind) else {}

        found: Object = await until(look, f"Workload of {owner} {kind}")
        return found

    async def admitted(self, owner: str = "train") -> Object:
        """Wait until a job is admitted, which takes no longer than a user would wait; return its Workload."""
        found = await self.workload_is("Admitted", owner)
        since, then = found["metadata"]["creationTimestamp"], condition(found, "Admitted")["lastTransitionTime"]
        took_s = (_time(then) - _time(since)).total_seconds()
        assert took_s <= ADMITTED_S_MAX, f"expected {owner} admitted within {ADMITTED_S_MAX:g} s, saw {took_s:g} s"
        return found

    async def workloads_so_far(self) -> int:
        """Return how many Workloads were seen by now: more than one per job means that Kueue made one anew."""
        await self.workloads()
        return len(self._seen)

    async def jobs(self) -> dict[str, Object]:
        """Return the Jobs by name."""
        found = (await self.world.api.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs"))["items"]
        return {each["metadata"]["name"]: each for each in found}

    async def pods(self) -> dict[str, Object]:
        """Return the Pods by name."""
        found = (await self.world.api.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return {each["metadata"]["name"]: each for each in found}

    def played(self) -> list[PlayedPod]:
        """Return the Pods that run, by name."""
        return [pod for _, pod in sorted(self.world.nodes.of(self.namespace).items())]

    async def pods_are_ready(self, count: int) -> list[Object]:
        """Wait until this many Pods, and no others, are Ready, and return them."""

        async def look() -> list[Object]:
            found = list((await self.pods()).values())
            return found if len(found) == count and all(is_true(pod, "Ready") for pod in found) else []

        found: list[Object] = await until(look, f"{count} Pods that are Ready")
        return found

    async def jobset_is(self, kind: str, name: str = "train") -> Object:
        """Wait until a condition of a JobSet is True, and return the JobSet."""

        async def look() -> Object:
            found = await self.jobset(name)
            return found if is_true(found, kind) else {}

        found: Object = await until(look, f"JobSet {name} {kind}")
        return found

    async def in_place(self, manifest: Object, *, priority: str = "", **options: Any) -> Object:
        """Submit a JobSet with the agent in it, as `inplace inject` adds it, and the rights of its agents."""
        injected, others = in_place(manifest, self.namespace, **options)
        for each in others:
            await self.world.applier.apply_one(each)
        return await self.submit(injected, priority=priority)

    async def lifted(self, epoch: int, count: int = 2) -> list[PlayedPod]:
        """Wait until the barriers of this many Pods, and of no others, lifted at an epoch; return the Pods."""

        async def look() -> list[PlayedPod]:
            found = self.played()
            return found if len(found) == count and all(pod.lifts[-1:] == [epoch] for pod in found) else []

        def stand() -> list[tuple[str, list[int]]]:
            return [(pod.stored["metadata"]["name"], pod.lifts) for pod in self.played()]

        found: list[PlayedPod] = await until(look, f"{count} Pods lifted at epoch {epoch}", also=stand)
        return found

    async def is_gone(self, path: str) -> None:
        """Wait until an object is gone."""

        async def look() -> bool:
            try:
                await self.world.api.get(path)
            except UnexpectedStatus as error:
                return error.status == 404
            return False

        await until(look, f"{path} gone")

    async def delete(self, name: str = "train") -> None:
        """Delete a JobSet."""
        await self.world.api.delete(f"{self.jobsets}/{name}", propagationPolicy="Background")

    async def usage(self) -> dict[str, str]:
        """Return what the ClusterQueue has reserved in all, by flavor, of CPU."""
        found = await self.world.api.get(f"/apis/{KUEUE}/clusterqueues/{self.namespace}")
        flavors = found.get("status", {}).get("flavorsReservation") or ()
        return {each["name"]: each["resources"][0]["total"] for each in flavors}


def flavor(name: str, **spec: Any) -> Object:
    """Return a ResourceFlavor."""
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


FLAVORS: Final = (
    flavor(RESERVED, nodeLabels={"capacity": RESERVED}),
    flavor(SPOT, nodeLabels={"capacity": SPOT}, tolerations=[TAINT]),
    flavor(
        PROCESSES,
        nodeLabels={"capacity": PROCESSES},
        tolerations=[{"key": PROCESSES, "operator": "Exists", "effect": "NoSchedule"}],
    ),
    flavor("any"),
)


def cluster_queue(name: str, quotas: Mapping[str, int | str], **spec: Any) -> Object:
    """Return a ClusterQueue with a CPU quota for each flavor, and of everything else as much as anybody asks for."""
    others = [{"name": each, "nominalQuota": amount} for each, amount in PLENTY.items()]
    flavors = [
        {"name": each, "resources": [{"name": "cpu", "nominalQuota": quota}, *others]} for each, quota in quotas.items()
    ]
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu", *PLENTY], "flavors": flavors}],
            **spec,
        },
    }


def priority_class(name: str, value: int) -> Object:
    """Return a WorkloadPriorityClass."""
    return {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def local_queue(namespace: str, cluster: str, name: str = "queue") -> Object:
    """Return a LocalQueue."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": cluster}}


async def open_queue(world: World, quotas: Mapping[str, int | str], **spec: Any) -> Queue:
    """Make a namespace with a queue, and return when Kueue admits from it."""
    namespace = await world.plane.create_namespace("queue")
    documents: Iterable[Object] = (
        *FLAVORS,
        cluster_queue(namespace, quotas, **spec),
        local_queue(namespace, namespace),
    )
    for document in documents:
        await world.applier.apply_one(document)

    async def is_active() -> bool:
        path = f"/apis/{KUEUE}/namespaces/{namespace}/localqueues/queue"
        return is_true(await world.api.get(path), "Active")

    await until(is_active, f"LocalQueue of {namespace} Active")
    return Queue(world, namespace)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(each["name"]) for each in owners if each.get("controller")), "")
