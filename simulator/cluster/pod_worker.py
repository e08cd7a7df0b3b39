"""
Run one Pod on its node: the lifecycle decides, the runtime acts, and the Pod's status goes to the API server.

One task per Pod takes events in order; containers, probers and the status writer are tasks beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import msgspec

from inplace.common.kube.backoff import Backoff
from inplace.common.kube.client import REQUEST_TIMEOUT_S, STRATEGIC_MERGE_PATCH, KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Conflict, NotFound
from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.resources import PODS, KubeObject
from inplace.simulator.cluster import pod_lifecycle as life
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.nodes import HOST_IP
from inplace.simulator.cluster.pod_env import PodConfigError, container_command, container_env
from inplace.simulator.cluster.pod_lifecycle import PodLifecycle
from inplace.simulator.cluster.pod_spec import parse_pod
from inplace.simulator.cluster.pod_status import StatusReporter
from inplace.simulator.cluster.prober import Prober, until_tick_s
from inplace.simulator.cluster.runtime import (
    START_ERROR_EXIT,
    ContainerRun,
    RunningContainer,
    Runtime,
    Sandbox,
    StartError,
)
from inplace.simulator.cluster.timings import Timings

RETRY_S_BASE = 0.1
RETRY_S_MAX = 5.0
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
STATUS_HEADERS = {"content-type": STRATEGIC_MERGE_PATCH, "accept": METADATA_ONLY}  # the answer's 8 kB are not read


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What all Pods of a node share.

    Args:
        tell: takes the containers' events.
        relist_phase_s: when the node's PLEG ticks.
    """

    client: KubeClient
    runtime: Runtime
    clock: Clock
    rng: Random
    timings: Timings
    tell: Callable[[ClusterEvent], None]
    relist_phase_s: float


class PodWorker:
    """One Pod on one node."""

    def __init__(self, pod: KubeObject, node: NodeParts) -> None:
        self.pod = pod
        self.running: dict[str, RunningContainer] = {}
        self._node = node
        self._clock = node.clock
        self._lifecycle = PodLifecycle(parse_pod(pod))
        self._events: asyncio.Queue[life.Event] = asyncio.Queue()  # bounded by containers x their few events
        self._dirty = asyncio.Event()
        self._killed: set[int] = set()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_s = 0.0
        self._group: asyncio.TaskGroup | None = None  # while containers run
        self._started_s = 0.0
        self._limit_s: float | None = None
        self._deadline: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def changed(self, pod: KubeObject) -> None:
        """Process a newer version of the Pod."""
        before, self.pod = self.pod, pod
        meta = pod["metadata"]
        if "deletionTimestamp" in meta and "deletionTimestamp" not in before["metadata"]:
            self._events.put_nowait(life.Deleted(float(meta.get("deletionGracePeriodSeconds", 30))))
        self._look_at_deadline()

    def _look_at_deadline(self) -> None:
        """Wake when the Pod's activeDeadlineSeconds have passed since it started; they may be set at any time."""
        limit_s = self.pod["spec"].get("activeDeadlineSeconds")
        if limit_s is None or limit_s == self._limit_s or self._group is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._limit_s = limit_s
        self._deadline = self._group.create_task(self._expire(self._started_s + limit_s))

    async def _expire(self, at_s: float) -> None:
        await self._clock.sleep(max(0.0, at_s - self._clock.wall_s()))
        self._events.put_nowait(life.DeadlineExceeded())

    def removed(self) -> None:
        """Process the end of the Pod object: kill the remaining containers at once."""
        self._gone.set()
        self._events.put_nowait(life.Deleted(0.0))

    async def run(self) -> None:
        """Run the Pod until its object is gone."""
        born_s = self._clock.monotonic_s()
        self._report(Kind.POD_TAKEN, detail=self.pod["spec"]["nodeName"])
        await self._clock.sleep(self._node.timings.sandbox.draw(self._node.rng))
        sandbox = await self._node.runtime.create_sandbox(self.pod)
        try:
            async with asyncio.TaskGroup() as group:
                reporter = StatusReporter(self.pod["metadata"]["uid"], sandbox.pod_ip, HOST_IP, self._clock.wall_s())
                publisher = group.create_task(self._publish(reporter))
                self._group, self._started_s = group, reporter.start_s
                self._look_at_deadline()
                await self._work(group, sandbox, born_s)
                self._group = None
                for task in (publisher, self._alarm, self._deadline):
                    if task is not None:
                        task.cancel()
            await self._say_goodbye(reporter)
        finally:
            await self._node.runtime.remove_sandbox(sandbox)
        self._report(Kind.POD_REMOVED)

    async def _work(self, group: asyncio.TaskGroup, sandbox: Sandbox, born_s: float) -> None:
        """Feed the lifecycle until no container is left."""
        if "deletionTimestamp" in self.pod["metadata"]:
            self._events.put_nowait(life.Deleted(0.0))
        event: life.Event = life.Begin()
        while not self._lifecycle.stopped:
            for action in self._lifecycle.step(event, self._clock.wall_s()):
                match action:
                    case life.Start(name, instance):
                        group.create_task(self._run_container(name, instance, sandbox, born_s))
                    case life.Kill(name, instance, grace_s):
                        group.create_task(self._kill(name, instance, grace_s))
                    case life.WakeAt(at_s):
                        self._set_alarm(group, at_s)
                    case life.Stopped():
                        return
            self._dirty.set()
            event = await self._events.get()

    async def _run_container(self, name: str, instance: int, sandbox: Sandbox, born_s: float) -> None:
        await self._clock.sleep(self._node.timings.container_start.draw(self._node.rng))
        container = self._lifecycle.containers[name]
        try:
            running = await self._node.runtime.start(self._describe(name, sandbox))
        except (StartError, PodConfigError) as error:
            self._report(Kind.CONTAINER_EXITED, name, str(error))
            self._events.put_nowait(life.Exited(name, instance, START_ERROR_EXIT, "StartError"))
            return
        self.running[name] = running
        self._events.put_nowait(life.Started(name, instance))
        self._report(Kind.CONTAINER_STARTED, name)
        code = await self._watch(container, instance, running, born_s)
        del self.running[name]
        self._report(Kind.CONTAINER_EXITED, name, str(code))
        if instance not in self._killed:
            now_s, period_s = self._clock.monotonic_s(), self._node.timings.pleg_relist_s
            await self._clock.sleep(until_tick_s(now_s, self._node.relist_phase_s, period_s))
        self._killed.discard(instance)
        self._events.put_nowait(life.Exited(name, instance, code))

    async def _watch(self, container: life.Container, instance: int, running: RunningContainer, born_s: float) -> int:
        """Probe the instance until it ends."""
        if not Prober.concerns(container.spec):
            return await running.wait()
        prober = Prober(container.spec, instance, running, clock=self._clock, born_s=born_s, report=self._take_probe)
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(prober.run())
            code = await running.wait()
            probing.cancel()
        return code

    def _take_probe(self, event: life.Event) -> None:
        if isinstance(event, life.StartupPassed):
            self._report(Kind.BARRIER_LIFTED, event.name)
        self._events.put_nowait(event)

    def _describe(self, name: str, sandbox: Sandbox) -> ContainerRun:
        """Compute command and environment from the Pod as it is now."""
        container = self._lifecycle.containers[name]
        manifest = container.spec.manifest
        env = container_env(manifest, self.pod, sandbox.pod_ip, HOST_IP, sandbox.base_env)
        command = tuple(container_command(manifest, env))
        return ContainerRun(self.pod, sandbox, container.spec, command, env, container.restart_count)

    async def _kill(self, name: str, instance: int, grace_s: float) -> None:
        running = self.running.get(name)
        if running is None or self._lifecycle.containers[name].instance != instance:
            return  # the instance ended by itself meanwhile
        self._killed.add(instance)
        self._report(Kind.CONTAINER_KILLED, name, f"{grace_s:g}")
        await running.stop(grace_s)

    def _set_alarm(self, group: asyncio.TaskGroup, at_s: float) -> None:
        if self._alarm is not None and not self._alarm.done():
            if at_s >= self._alarm_s:
                return  # the earlier alarm sets the next one
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = group.create_task(self._ring(at_s))

    async def _ring(self, at_s: float) -> None:
        await self._clock.sleep(max(0.0, at_s - self._clock.wall_s()))
        self._events.put_nowait(life.Tick())

    async def _publish(self, reporter: StatusReporter) -> None:
        """Write the newest status after each change; states that a newer one replaced are not written."""
        sent: KubeObject = {}
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            status = reporter.report(self._lifecycle, self._clock.wall_s())
            if status != sent:
                sent = status
                await self._write_status(status)

    async def _write_status(self, status: KubeObject) -> None:
        meta = self.pod["metadata"]
        request = Request(
            "PATCH",
            PODS.path(meta["namespace"], meta["name"], subresource="status"),
            self._node.client.headers | STATUS_HEADERS,
            msgspec.json.encode({"metadata": {"uid": meta["uid"]}, "status": status}),
        )
        await self._insist(lambda: self._node.client.send(request, timeout_s=REQUEST_TIMEOUT_S))

    async def _say_goodbye(self, reporter: StatusReporter) -> None:
        """Report the final phase; once deletion is asked for, let the API server drop the object."""
        if self._gone.is_set():
            return
        await self._write_status(reporter.report(self._lifecycle, self._clock.wall_s()))
        while not self._lifecycle.deleted and not self._gone.is_set():
            if isinstance(await self._events.get(), life.Deleted):
                break
        meta, delete = self.pod["metadata"], self._node.client.delete
        await self._insist(lambda: delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_period_s=0))

    async def _insist(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Ask until it is done; the Pod may be gone, and another Pod have its name."""
        backoff = Backoff(RETRY_S_BASE, RETRY_S_MAX, self._node.rng)
        while not self._gone.is_set():
            try:
                await ask()
            except (NotFound, Conflict):
                return
            except (ApiError, TransportError):
                await self._clock.sleep(backoff.next_s())
            else:
                return

    def _report(self, kind: Kind, container: str = "", detail: str = "") -> None:
        self._node.tell(ClusterEvent.of(self.pod, self._clock.monotonic_s(), kind, container, detail))
