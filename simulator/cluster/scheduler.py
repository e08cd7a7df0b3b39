"""
Bind Pods to nodes: first fit, in the order in which the Pods came.

It reads nodeSelector, required affinity, taints, unschedulable, declared features and requests. It does not score or
preempt, and it ignores topology spread: a Pod with that goes to the first node that fits otherwise. It answers to every
schedulerName. A node that a Pod prefers to avoid by its name is taken only if no other one fits. A gang (gangs.py) is
placed whole or not at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from inplace.common.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Conflict, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.quantity import parse_quantity
from inplace.common.kube.resources import PODS, KubeObject
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.cluster.affinity import Placement, asks_for_company, has_room_for_kind
from inplace.simulator.cluster.gangs import Gangs
from inplace.simulator.cluster.pod_spec import parse_pod
from inplace.simulator.cluster.timings import Timings

RESTART_FEATURE = "RestartAllContainersOnContainerExits"
RETRY_S = 1.0


@dataclass(slots=True)
class _NodeEntry:
    """One node and the requests of its Pods."""

    node: KubeObject
    used: dict[str, float] = field(default_factory=dict)

    def free(self, resource: str) -> float:
        allocatable = self.node.get("status", {}).get("allocatable") or {}
        return number_of(allocatable.get(resource, 0)) - self.used.get(resource, 0.0)


@dataclass(slots=True)
class _Placed:
    """A Pod that takes room."""

    node: str
    requests: dict[str, float]
    pod: KubeObject


class Scheduler:
    """The default scheduler."""

    def __init__(self, client: KubeClient, *, clock: Clock, rng: Random, timings: Timings) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self._nodes: dict[str, _NodeEntry] = {}
        self._placed: dict[str, _Placed] = {}  # by Pod uid
        self._choosy: set[str] = set()  # uids of placed Pods with a required affinity
        self._pending: dict[str, KubeObject] = {}
        self._told: set[str] = set()  # uids whose PodScheduled=False is written
        self._gangs = Gangs()
        self._work = asyncio.Event()
        self._full_until = 0  # the nodes before this position have no Pod slot left

    def observe(self, plural: str, event_type: str, obj: KubeObject) -> None:
        """Process a change of a node, a Pod or a PodGroup."""
        if plural == "nodes":
            self._observe_node(event_type, obj)
        elif plural == "pods":
            self._observe_pod(event_type, obj)
        else:
            self._gangs.observe(event_type, obj)
            self._work.set()

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            for uid, pod in list(self._pending.items()):
                if self._pending.get(uid) is pod:
                    await self._schedule(uid, pod)

    def _observe_node(self, event_type: str, node: KubeObject) -> None:
        name = node["metadata"]["name"]
        if event_type == "DELETED":
            self._nodes.pop(name, None)
            self._full_until = 0
            return
        entry = self._nodes.setdefault(name, _NodeEntry(node))
        if _room(entry.node) != _room(node):
            self._full_until = 0
        entry.node = node
        self._work.set()

    def _observe_pod(self, event_type: str, pod: KubeObject) -> None:
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        ended = event_type == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if ended:
            self._pending.pop(uid, None)
            self._told.discard(uid)
            self._release(uid)
        elif "nodeName" in spec:
            self._pending.pop(uid, None)
            if uid not in self._placed:
                self._take(uid, spec["nodeName"], requests_of(pod), pod)
            self._placed[uid].pod = pod
        elif _is_ours(pod):
            if uid not in self._pending:
                self._work.set()
            self._pending[uid] = pod

    def _take(self, uid: str, node: str, requests: dict[str, float], pod: KubeObject) -> None:
        self._placed[uid] = _Placed(node, requests, pod)
        if asks_for_company(pod):
            self._choosy.add(uid)
        if (entry := self._nodes.get(node)) is not None:
            for resource, amount in requests.items():
                entry.used[resource] = entry.used.get(resource, 0.0) + amount

    def _release(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        self._choosy.discard(uid)
        if placed is not None and (entry := self._nodes.get(placed.node)) is not None:
            for resource, amount in placed.requests.items():
                entry.used[resource] -= amount
            self._full_until = 0
            if self._pending:
                self._work.set()

    async def _schedule(self, uid: str, pod: KubeObject) -> None:
        """Place a Pod; of a gang all that wait, once so many fit as the gang lacks."""
        await self._clock.sleep(self._timings.bind.draw(self._rng))
        together, least = self._gangs.companions(uid, pod, self._pending, (one.pod for one in self._placed.values()))
        fitting = [(one, member, node) for one, member in together if (node := self._reserve(one, member)) is not None]
        if len(fitting) < least:
            for one, _, _ in fitting:
                self._release(one)
            if together:
                await self._refuse(uid, pod)
            return
        for one, member, node in fitting:
            await self._settle(one, member, node)

    def _reserve(self, uid: str, pod: KubeObject) -> str | None:
        """Take room for a Pod where it fits, and return the node."""
        requests = requests_of(pod)
        node = self._fit(pod, requests)
        if node is not None:
            self._take(uid, node, requests, pod)
        return node

    async def _refuse(self, uid: str, pod: KubeObject) -> None:
        """Say that a Pod has no room."""
        try:
            await self._tell(uid, pod)
        except (Conflict, NotFound):
            pass  # it is gone
        except (ApiError, TransportError):
            await self._clock.sleep(RETRY_S)
            self._work.set()

    async def _settle(self, uid: str, pod: KubeObject, node: str) -> None:
        """Bind a Pod to the node where it has room."""
        try:
            await self._bind(pod, node)
        except (Conflict, NotFound):
            self._release(uid)
        except (ApiError, TransportError):
            self._release(uid)
            await self._clock.sleep(RETRY_S)
            self._work.set()

    def _fit(self, pod: KubeObject, requests: dict[str, float]) -> str | None:
        """Return the first node on which the Pod fits."""
        entries = list(self._nodes.items())
        while self._full_until < len(entries) and entries[self._full_until][1].free("pods") < 1:
            self._full_until += 1
        needs_restart, last = parse_pod(pod).restarts_all, None
        shunned = _shunned(pod["spec"])
        others = self._others(pod)
        for name, entry in entries[self._full_until :]:
            if (
                _admits(entry.node, pod["spec"], needs_restart=needs_restart)
                and all(entry.free(resource) >= amount for resource, amount in requests.items())
                and (others is None or has_room_for_kind(pod, entry.node, others))
            ):
                if name not in shunned:
                    return name
                last = last or name
        return last

    def _others(self, pod: KubeObject) -> list[Placement] | None:
        """Return the placed Pods that decide where a Pod may be; None where no affinity is required."""
        if asks_for_company(pod):
            placed = list(self._placed.values())
        elif self._choosy:
            placed = [self._placed[uid] for uid in self._choosy]
        else:
            return None
        nodes = ((one, self._nodes.get(one.node)) for one in placed)
        return [(one.pod, entry.node["metadata"].get("labels") or {}) for one, entry in nodes if entry is not None]

    async def _bind(self, pod: KubeObject, node: str) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(meta["namespace"], meta["name"], subresource="binding")
        await self._client.raw("POST", path, body=binding)

    async def _tell(self, uid: str, pod: KubeObject) -> None:
        """Write once into the Pod's status that no node fits; it stays pending until a node or a Pod changes."""
        if uid in self._told:
            return
        self._told.add(uid)
        meta = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/{len(self._nodes)} nodes are available: no node fits the Pod.",
            "lastTransitionTime": timestamp(self._clock.wall_s()),
        }
        await self._client.patch(
            PODS,
            meta["namespace"],
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}},
            kind=STRATEGIC_MERGE_PATCH,
            subresource="status",
        )


def _room(node: KubeObject) -> object:
    return node.get("status", {}).get("allocatable")


def number_of(quantity: object) -> float:
    """Return a quantity's value; 0 of what is none."""
    return float(parse_quantity(quantity) or 0)


def requests_of(pod: KubeObject) -> dict[str, float]:
    """Return what a Pod takes of its node: its requests, and its one Pod slot. A limit stands for a missing request.

    Source: k8s.io/component-helpers resource/helpers.go, PodRequests.
    """
    running, most = {"pods": 1.0}, dict[str, float]()
    for container in pod["spec"].get("initContainers") or ():
        with_it = _with(running, container)
        if container.get("restartPolicy") == "Always":
            running = with_it
        most |= {name: max(most.get(name, 0.0), amount) for name, amount in with_it.items()}
    for container in pod["spec"]["containers"]:
        running = _with(running, container)
    return {name: max(most.get(name, 0.0), running.get(name, 0.0)) for name in most | running}


def _with(total: dict[str, float], container: KubeObject) -> dict[str, float]:
    """Return the sum with a container's requests."""
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return total | {name: total.get(name, 0.0) + number_of(amount) for name, amount in asked.items()}


def _is_ours(pod: KubeObject) -> bool:
    spec = pod["spec"]
    return not spec.get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]


def _shunned(spec: dict[str, Any]) -> frozenset[str]:
    """Return the names of the nodes that a Pod prefers to avoid."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    fields = [field for term in terms for field in term["preference"].get("matchFields") or ()]
    return frozenset(
        name
        for field in fields
        if (field["key"], field["operator"]) == ("metadata.name", "NotIn")
        for name in field["values"]
    )


def _admits(node: KubeObject, spec: dict[str, Any], *, needs_restart: bool) -> bool:
    """Return whether a node accepts the Pod, apart from free resources."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    if node.get("spec", {}).get("unschedulable"):
        return False
    features = node.get("status", {}).get("declaredFeatures") or ()
    if needs_restart and RESTART_FEATURE not in features:
        return False
    taints = node.get("spec", {}).get("taints") or ()
    return all(taint["effect"] == "PreferNoSchedule" or _tolerates(spec, taint) for taint in taints)


def _tolerates(spec: dict[str, Any], taint: dict[str, Any]) -> bool:
    for toleration in spec.get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in (None, "", taint["key"]):
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False
