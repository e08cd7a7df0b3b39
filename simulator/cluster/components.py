"""
What Kubernetes has beside an API server: a scheduler, a Job controller, and a kubelet for each node.

They learn of each write in the instant in which it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.store import CollectionKey, Event
from inplace.simulator.cluster.events import ClusterEvent
from inplace.simulator.cluster.job_controller import JobController
from inplace.simulator.cluster.kubelet import Kubelet
from inplace.simulator.cluster.runtime import Runtime
from inplace.simulator.cluster.scheduler import Scheduler
from inplace.simulator.cluster.timings import Timings


class Components:
    """The built-in components of one cluster.

    Args:
        nodes: their names; more may come.
        runtime: of every node.
        client, random: return a component's own, by its name.
        tell: takes the containers' events.
        replaces_early: see `JobController`.
    """

    def __init__(
        self,
        nodes: Iterable[str],
        runtime: Runtime,
        *,
        client: Callable[[str], KubeClient],
        random: Callable[[str], Random],
        clock: Clock,
        timings: Timings,
        tell: Callable[[ClusterEvent], None] = lambda _: None,
        replaces_early: bool = False,
    ) -> None:
        self.kubelets: dict[str, Kubelet] = {}
        self._unheard: dict[str, dict[str, tuple[str, KubeObject]]] = {}  # by node that is cut off, and by UID
        self._runtime = runtime
        self._client = client
        self._random = random
        self._clock = clock
        self._timings = timings
        self._tell = tell
        for name in nodes:
            self.add_kubelet(name, name)
        self._scheduler = Scheduler(client("scheduler"), clock=clock, rng=random("scheduler"), timings=timings)
        self._jobs = JobController(
            client("job-controller"), clock=clock, rng=random("jobs"), timings=timings, replaces_early=replaces_early
        )

    def add_kubelet(self, name: str, draws: str) -> Kubelet:
        """Let a node have a kubelet, whose randomness has a name of its own."""
        self.kubelets[name] = Kubelet(
            name,
            client=self._client(f"kubelet/{name}"),
            runtime=self._runtime,
            clock=self._clock,
            rng=self._random(draws),
            timings=self._timings,
            tell=self._tell,
        )
        return self.kubelets[name]

    def programs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return what is to be run beside the kubelets, by name."""
        return {"scheduler": self._scheduler.run(), "job-controller": self._jobs.run()}

    def observe(self, key: CollectionKey, event: Event) -> None:
        """Pass a write to those whom it concerns."""
        plural, event_type, obj = key[1], event.type, event.obj
        if plural == "pods":
            self._pod_changed(obj["spec"].get("nodeName", ""), event_type, obj)
        if plural in ("pods", "jobs"):
            self._jobs.observe(plural, event_type, obj)
        if plural in ("pods", "nodes", "podgroups"):
            self._scheduler.observe(plural, event_type, obj)

    def deafen(self, node: str) -> None:
        """Cut a kubelet off from all news; its containers go on."""
        self._unheard.setdefault(node, {})

    def undeafen(self, node: str) -> None:
        """End that; first it gets the newest version of each Pod that changed meanwhile."""
        for event_type, pod in self._unheard.pop(node, {}).values():
            self._pod_changed(node, event_type, pod)

    def _pod_changed(self, node: str, event_type: str, pod: KubeObject) -> None:
        if node in self._unheard:
            self._unheard[node][pod["metadata"]["uid"]] = event_type, pod
        elif (kubelet := self.kubelets.get(node)) is not None:
            kubelet.pod_changed(event_type, pod)
