"""
Put an embedded Kubernetes together and run it.

    async with Cluster(nodes=2, runtime="process") as cluster:
        await cluster.apply(read_manifests(Path("examples/train.yaml")))
        await cluster.until(lambda: cluster.jobset("train")["status"].get("syncedEpoch") == 1, timeout_s=30)
        cluster.kill_worker("default", pod_name)

One task runs every component; `stop` ends it and leaves no process behind. A component that fails ends the
cluster: `until` and `stop` raise its failure.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.client import APPLY_PATCH, KubeClient
from inplace.common.kube.clock import Clock, LoopClock
from inplace.common.kube.http.request import Request, Transport
from inplace.common.kube.resources import KubeObject
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import Controller
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, HttpFront, InMemoryTransport, LogRequest
from inplace.simulator.apiserver.store import CollectionKey, Event
from inplace.simulator.cluster.access import CONTROLLER_NAMESPACE, collection_path, kubeconfig_text, pod_user, user_name
from inplace.simulator.cluster.components import Components
from inplace.simulator.cluster.events import ClusterEvent, Kind, Observers
from inplace.simulator.cluster.logs import read_log
from inplace.simulator.cluster.manifests import admission_policies, custom_resource_definitions
from inplace.simulator.cluster.model_agent import QuietLog
from inplace.simulator.cluster.model_runtime import TimedRuntime
from inplace.simulator.cluster.node_loss import give_up
from inplace.simulator.cluster.nodes import PLAIN, NodeShape
from inplace.simulator.cluster.pod_worker import PodWorker
from inplace.simulator.cluster.process_runtime import ProcessRuntime, keep_controller
from inplace.simulator.cluster.runtime import Runtime
from inplace.simulator.cluster.timeline import GroupRestart, Timeline
from inplace.simulator.cluster.timings import ZERO, Timings, local_processes

RuntimeName = Literal["process", "model"]
ControllerMode = Literal["none", "coroutine", "process"]

VIRTUAL_EPOCH_S = 1_700_000_000.0  # the wall clock of virtual time starts here, so that one seed has one date


class Cluster:
    """An embedded Kubernetes.

    Args:
        nodes: how many plain ones, or the shape of each.
        pods_per_node: a node's room for Pods (the kubelet's default).
        runtime: "process" runs containers as local processes, "model" timed models, in real or virtual time.
        seed: everything random follows from it.
        clock: None is the running loop's; for virtual time use `virtual_cluster`.
        timings: None is what fits the runtime.
        controller: where the JobSet controller runs; as a process beside other local processes only.
        crds: None is what deploy/crd holds, with the admission policies of deploy/admission.
        folder: where Pods, logs and kubeconfigs go; None is a temporary folder that `stop` deletes.
        serve_http: listen on loopback. The process runtime always does.
        programs: folders whose programs the process runtime's containers find before all others.
        adds_agent: the controller adds the agent to JobSets that restart in place and have none.
        serves_gangs: the API server has Workloads and PodGroups.
    """

    def __init__(
        self,
        *,
        nodes: int | Sequence[NodeShape] = 2,
        pods_per_node: int = 110,
        runtime: RuntimeName = "process",
        seed: int = 0,
        clock: Clock | None = None,
        timings: Timings | None = None,
        controller: ControllerMode = "coroutine",
        crds: Sequence[KubeObject] | None = None,
        folder: Path | None = None,
        serve_http: bool = False,
        programs: Sequence[Path] = (),
        adds_agent: bool = False,
        serves_gangs: bool = False,
    ) -> None:
        self.clock = clock or LoopClock()
        self.rng = Random(seed)
        self.timings = timings or (local_processes() if runtime == "process" else Timings())
        lag_s = self._watch_lag() if self.timings.watch != ZERO else None
        options = ApiServerOptions(watch_cache_lag_s=lag_s, log_source=self.read_log, serves_gangs=serves_gangs)
        self.server = ApiServer(clock=self.clock, rng=self._random("apiserver"), options=options)
        self.observers = Observers()
        self.url = ""
        self.controller: Controller | None = None
        self._runtime_name: RuntimeName = runtime
        self._controller_mode = controller
        self._serves_http = serve_http or runtime == "process"
        self._temporary = tempfile.TemporaryDirectory(prefix="inplace-") if folder is None else None
        self.folder = folder or Path(self._temporary.name if self._temporary else "")
        shipped = (*custom_resource_definitions(), *admission_policies())
        self._crds = list(shipped if crds is None else crds)
        self._programs = programs
        self._adds_agent = adds_agent
        shapes = [PLAIN] * nodes if isinstance(nodes, int) else nodes
        self._shapes = {f"node-{index}": shape for index, shape in enumerate(shapes)}
        self._pods_per_node = pods_per_node
        self._runtime: Runtime = self._make_runtime()
        self._components = Components(
            self._shapes,
            self._runtime,
            client=lambda name: self.client(name.partition("/")[0]),  # the kubelets are one user
            random=self._random,
            clock=self.clock,
            timings=self.timings,
            tell=self.observers.tell,
        )
        self._kubelets = self._components.kubelets
        self._changed = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._kubelet_tasks: dict[str, asyncio.Task[None]] = {}
        self.observers.add(lambda _: self._changed.set())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # The life of the cluster.

    async def start(self) -> None:
        """Start every component; return when requests are answered."""
        self.server.store.listen(self._observe)
        self.server.load(self._crds)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONTROLLER_NAMESPACE}}
        self.server.load([namespace])
        for name, kubelet in self._kubelets.items():
            await kubelet.register(pods=self._pods_per_node, shape=self._shapes[name])
        started = asyncio.Event()
        self._main = asyncio.create_task(self._run(started), name="cluster")
        self._main.add_done_callback(lambda _: self._changed.set())  # `until` then sees the failure
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait([self._main, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._main.done():
            await self._main

    async def stop(self) -> None:
        """Stop every component and kill every process; raise the failure that ended the cluster before."""
        main, self._main = self._main, None
        try:
            if main is not None:
                main.cancel()
                try:
                    await main
                except asyncio.CancelledError:
                    if not main.cancelled():
                        raise  # our caller was cancelled
        finally:
            await self._runtime.close()
            if self._temporary is not None:
                self._temporary.cleanup()

    async def _run(self, started: asyncio.Event) -> None:
        front = HttpFront(self.server) if self._serves_http else None
        if front is not None:
            self.url = await front.start()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for work in self._work():
                    group.create_task(work)
                for name, kubelet in self._kubelets.items():
                    self._kubelet_tasks[name] = group.create_task(kubelet.run(), name=name)
                started.set()
        finally:
            if front is not None:
                await front.stop()

    def _work(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.server.run()
        yield from self._components.programs().values()
        if self._controller_mode == "coroutine":
            self.controller = self._make_controller()
            yield self.controller.run()
        elif self._controller_mode == "process":
            assert isinstance(self._runtime, ProcessRuntime), "expected local processes beside that of the controller"
            config, log = self.kubeconfig("inplace-controller"), self.folder / "controller.log"
            yield keep_controller(self._runtime, config, log, clock=self.clock, adds_agent=self._adds_agent)

    # The actions of its user.

    def client(self, user: str = "admin") -> KubeClient:
        """Return a client of the API server for a component or person."""
        return KubeClient(self.transport(user), user_agent=user, field_manager=user)

    def transport(self, user: str = "admin") -> InMemoryTransport:
        """Return an in-memory connection to the API server, with the latency of a request."""
        return InMemoryTransport(self.server, user=user_name(user), user_agent=user, latency_s=self._latency(user))

    async def apply(self, documents: Iterable[KubeObject]) -> None:
        """Create or change objects, as `kubectl apply --server-side` does."""
        client = self.client("kubectl")
        for document in documents:
            meta = document["metadata"]
            collection = await collection_path(client, document)
            path = f"{collection}/{meta['name']}?fieldManager=kubectl&force=true"
            body = msgspec.json.encode(document)  # JSON is YAML too, and is parsed in a twentieth of the time
            await client.raw("PATCH", path, body=body, content_type=APPLY_PATCH)

    def pods(self, namespace: str = "default") -> list[KubeObject]:
        """Return the Pods of a namespace, straight from the store."""
        objects = self.server.store.collection(("", "pods")).objects
        return [pod for (found, _), pod in objects.items() if found == namespace]

    def jobset(self, name: str, namespace: str = "default") -> KubeObject:
        """Return a JobSet, straight from the store; {} when there is none."""
        return self.server.store.get(("jobset.x-k8s.io", "jobsets"), namespace, name) or {}

    def worker(self, namespace: str, pod: str) -> PodWorker:
        """Return the worker task of a Pod on its kubelet.

        Raises:
            LookupError: no kubelet runs such a Pod.
        """
        for kubelet in self._kubelets.values():
            for worker in kubelet.workers.values():
                meta = worker.pod["metadata"]
                if (meta["namespace"], meta["name"]) == (namespace, pod):
                    return worker
        raise LookupError(f"expected a Pod {namespace}/{pod} on some node, saw none")

    def kill_worker(
        self,
        namespace: str,
        pod: str,
        *,
        signal_number: int = signal.SIGKILL,
        container: str = "worker",
        supervised: bool = False,
    ) -> None:
        """Send a signal to a container's main process, or to the worker that it supervises, as a fault does.

        Raises:
            LookupError: the container does not run.
        """
        worker = self.worker(namespace, pod)
        if container not in worker.running:
            raise LookupError(f"expected container {container} of {namespace}/{pod} to run, saw that it does not")
        now_s, name = self.clock.monotonic_s(), signal.Signals(signal_number).name
        self.observers.tell(ClusterEvent.of(worker.pod, now_s, Kind.FAULT, container, name))
        running = worker.running[container]
        (running.signal_child if supervised else running.signal)(signal_number)

    def lose_node(self, node: str) -> None:
        """Stop a node with all its containers, for ever; its Pods are Failed `timings.node_lost_s` later."""
        assert self._group is not None, "expected a started cluster"
        self._kubelet_tasks.pop(node).cancel()
        self._kubelets.pop(node)
        giving_up = give_up(self.client("node-lifecycle"), self.clock, node, self.timings.node_lost_s)
        self._group.create_task(giving_up, name=f"give up {node}")

    async def until(self, holds: Callable[[], bool], *, timeout_s: float | None) -> None:
        """Return when `holds()` is true; it is called after every change.

        Raises:
            TimeoutError: it stayed false for `timeout_s` seconds; None waits for ever.
            ExceptionGroup: a component failed.
        """
        async with self.clock.timeout(timeout_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
                if self._main is not None and self._main.done():
                    await self._main
                    raise RuntimeError("the cluster stopped while somebody waited for it")

    async def restarted(self, timeline: Timeline, number: int = 0, *, timeout_s: float | None) -> GroupRestart:
        """Return the restart with this number, 0 is the first start, once every worker has done its first step.

        Raises:
            TimeoutError, ExceptionGroup: as `until`.
        """
        restarts = timeline.restarts
        await self.until(lambda: len(restarts) > number and restarts[number].complete, timeout_s=timeout_s)
        return restarts[number]

    async def trained(self, documents: Sequence[KubeObject], *, timeout_s: float | None) -> Timeline:
        """Apply a group's documents, the JobSet last; return its timeline once every worker has done its first step.

        Raises:
            TimeoutError, ExceptionGroup: as `until`.
        """
        name = documents[-1]["metadata"]["name"]
        timeline = Timeline(self.server, self.observers, clock=self.clock, jobset=name)
        await self.apply(documents)
        await self.restarted(timeline, timeout_s=timeout_s)
        return timeline

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return a kubeconfig file for the server's URL; it is written once, for a program may read it at any time."""
        path = self.folder / f"kubeconfig-{user}"
        if not path.exists():
            path.write_text(kubeconfig_text(self.url, user_name(user)))
        return path

    # The wiring.

    def _random(self, name: str) -> Random:
        """Return a source of randomness for one component: its draws do not change those of others."""
        return Random(f"{self.rng.random()}/{name}")

    def _watch_lag(self) -> Callable[[str], float]:
        rng, watch = self._random("watch"), self.timings.watch
        return lambda _: watch.draw(rng)

    def _latency(self, user: str) -> Callable[[Request], float]:
        rng, api = self._random(f"latency/{user}"), self.timings.api
        return lambda _: api.draw(rng)

    def _make_runtime(self) -> Runtime:
        if self._runtime_name == "model":
            return TimedRuntime(
                clock=self.clock,
                rng=self._random("runtime"),
                timings=self.timings,
                transport_for=self._agent_transport,
                tell=self.observers.tell,
            )
        return ProcessRuntime(
            self.folder,
            clock=self.clock,
            credentials=self._pod_credentials,
            tell=self.observers.tell,
            programs=self._programs,
        )

    def _make_controller(self) -> Controller:
        settings = JobSettings(agent=InjectOptions() if self._adds_agent else None)
        config = ControllerConfig(leader_elect=False, identity="inplace-controller-0", job_settings=settings)
        return Controller(
            self.transport("inplace-controller"),
            clock=self.clock,
            rng=self._random("controller"),
            config=config,
            log=QuietLog(),
        )

    def _agent_transport(self, pod: KubeObject) -> Transport:
        api = self.timings.api
        return InMemoryTransport(
            self.server, user=pod_user(pod), user_agent="inplace-agent", latency_s=lambda _: api.draw(self.rng)
        )

    def _pod_credentials(self, pod: KubeObject) -> tuple[str, str]:
        user = pod_user(pod)
        return f"user:{user}", kubeconfig_text(self.url, user)

    def _observe(self, key: CollectionKey, event: Event) -> None:
        """Pass a write to the built-in components; the store calls this inside the write."""
        self._changed.set()
        self._components.observe(key, event)

    async def read_log(self, pod: KubeObject, request: LogRequest) -> AsyncIterator[bytes]:
        """Yield the log of a container in chunks; nothing where its Pod is gone."""
        log = self._runtime.open_log(pod["metadata"]["uid"], request.container, previous=request.previous)
        if log is not None:
            async for chunk in read_log(log, request, self.clock):
                yield chunk


def virtual_cluster(**options: Any) -> Cluster:
    """Return a cluster of timed models for virtual time, whose dates begin at `VIRTUAL_EPOCH_S`."""
    return Cluster(runtime="model", clock=LoopClock(VIRTUAL_EPOCH_S), **options)
