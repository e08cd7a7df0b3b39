"""The whole controller on the embedded API server, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import EVENTS, JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import Controller
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport
from inplace.simulator.cluster.manifests import custom_resource_definitions
from tests.controller.crew import Crew

USER = "controller"


class LateTransport(InMemoryTransport):
    """A transport whose answers take a while after the server acted: a watch may be faster."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.server, user=USER)
        self._rig = rig

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request."""
        response = await super().request(request, timeout_s=timeout_s)
        if (late_s := self._rig.answer_latency_s(request)) > 0:
            await self._rig.clock.sleep(late_s)
        return response


class Rig:
    """An API server, an administrator, and controllers.

    Args:
        definition: the CRD; ours, unless a test stores objects that are older than its rules.
        options: of the API server.
    """

    def __init__(self, *, definition: KubeObject | None = None, **options: Any) -> None:
        self.clock = LoopClock(1_700_000_000.0)
        self.requests: list[Request] = []  # of the controllers
        self.fault: Callable[[Request], Response | None] = lambda _: None
        self.latency_s: Callable[[Request], float] = lambda _: 0.0  # of a request, BEFORE it is carried out
        self.answer_latency_s: Callable[[Request], float] = lambda _: 0.0  # AFTER it is carried out
        self.server = ApiServer(
            clock=self.clock, rng=Random(1), options=ApiServerOptions(interceptor=self._intercept, **options)
        )
        self.server.load([definition] if definition else custom_resource_definitions())
        self.admin = KubeClient(InMemoryTransport(self.server), user_agent="admin", field_manager="admin")
        self.controllers: list[Controller] = []
        self._group: asyncio.TaskGroup
        self._running: list[asyncio.Task[None]] = []

    def controller(self, **config: Any) -> Controller:
        """Return a new controller."""
        number = len(self.controllers)
        defaults = {"lease_namespace": "default", "identity": f"controller-{number}"}
        controller = Controller(
            LateTransport(self), clock=self.clock, rng=Random(number), config=ControllerConfig(**(defaults | config))
        )
        self.controllers.append(controller)
        return controller

    @asynccontextmanager
    async def running(self, *controllers: Controller) -> AsyncIterator[None]:
        """Run the server and controllers (one, when none is given)."""
        async with asyncio.TaskGroup() as self._group:
            server = self._group.create_task(self.server.run())
            self._running = [self._group.create_task(one.run()) for one in controllers or (self.controller(),)]
            await self.settle()
            yield
            for task in (server, *self._running):
                task.cancel()

    async def end_controllers(self) -> None:
        """End the controllers."""
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)

    async def change_controller(self, **config: Any) -> None:
        """End the controllers, and run another one that knows nothing of them."""
        await self.end_controllers()
        self._running = [self._group.create_task(self.controller(leader_elect=False, **config).run())]
        await self.settle()

    async def settle(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds)

    async def submit(self, manifest: KubeObject) -> Crew:
        """Create a JobSet, wait for its Jobs, and return the crew that plays its Pods."""
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        await self.admin.create(JOBSETS, namespace, manifest)
        await self.settle()
        return Crew(self.admin, namespace, name)

    async def with_pods(self, manifest: KubeObject) -> Crew:
        """Create a JobSet and make its Pods."""
        crew = await self.submit(manifest)
        await crew.make_pods()
        return crew

    async def started(self, manifest: KubeObject) -> Crew:
        """Create a JobSet and bring it to epoch 1 with running workers."""
        crew = await self.with_pods(manifest)
        await self.run_epoch(crew, 1)
        return crew

    async def announce(self, crew: Crew, pod: str, epoch: int, seconds: float = 1.0) -> None:
        """Let a Pod announce an epoch, and time pass."""
        await crew.announce(pod, epoch)
        await self.settle(seconds)

    async def set_worker(self, crew: Crew, pod: str, seconds: float = 1.0, **state: Any) -> None:
        """Let a Pod's worker run or end, and time pass."""
        await crew.set_worker(pod, **state)
        await self.settle(seconds)

    async def tell(self, crew: Crew, pod: str, failure: str, seconds: float = 0.1) -> None:
        """Let a Pod's agent tell of its worker's failure, and time pass."""
        await crew.annotate(pod, {wire.WORKER_FAILED: failure})
        await self.settle(seconds)

    async def fail(self, crew: Crew, index: int = 0, seconds: float = 0.2) -> str:
        """Let the worker of a completion index die in the running epoch; return its Pod, once that was seen."""
        pod = crew.pod_at(index)
        await self.set_worker(crew, pod, seconds, run=(await crew.epochs())[0], exit_code=1)
        return pod

    async def finish_job(self, crew: Crew, name: str, condition: str, seconds: float = 1.0, **words: str) -> None:
        """Let a Job fail or complete, and time pass."""
        await crew.finish_job(name, condition, **words)
        await self.settle(seconds)

    async def meet(self, crew: Crew, epoch: int, seconds: float = 1.0, pods: Iterable[str] | None = None) -> None:
        """Let every Pod, or these, announce an epoch, and time pass."""
        await crew.announce_all(epoch, pods)
        await self.settle(seconds)

    async def run_epoch(self, crew: Crew, epoch: int) -> None:
        """Let every Pod announce an epoch, and every worker run in it."""
        await self.meet(crew, epoch, 0.01)
        for pod in crew.pods.values():
            await crew.set_worker(pod, run=epoch)
        await self.settle()

    async def edit(self, patch: KubeObject, seconds: float = 1.0, **options: Any) -> None:
        """Patch the JobSet `train`, and let time pass."""
        await self.admin.patch(JOBSETS, "default", "train", patch, **options)
        await self.settle(seconds)

    async def annotate(self, annotations: Mapping[str, str | None], seconds: float = 1.0) -> None:
        """Annotate the JobSet `train`, as kubectl does, and let time pass."""
        await self.edit({"metadata": {"annotations": annotations}}, seconds)

    async def is_ending(self, pod: str) -> bool:
        """Return whether kubelet was asked to end a Pod."""
        return "activeDeadlineSeconds" in (await self.admin.get(PODS, "default", pod))["spec"]

    async def events(self, reason: str) -> list[KubeObject]:
        """Return the Events with a reason."""
        found = await self.admin.list(EVENTS)
        return [event for event in found["items"] if event["reason"] == reason]

    def sample(self, name: str, number: int = 0, /, **labels: str) -> float:
        """Return one sample of the metrics of a controller, by its number; 0 where it has none."""
        return self.controllers[number].metrics.registry.get_sample_value(name, labels) or 0.0

    def writes(self, part: str, method: str = "PATCH") -> int:
        """Return how many writes of the controllers had a path that ends in `part`."""
        return sum(r.method == method and r.path.split("?")[0].endswith(part) for r in self.requests)

    async def _intercept(self, request: Request, user: str) -> Response | None:
        if user != USER:
            return None
        self.requests.append(request)
        if (latency_s := self.latency_s(request)) > 0:
            await self.clock.sleep(latency_s)
        return self.fault(request)


@asynccontextmanager
async def running_rig(**config: Any) -> AsyncIterator[Rig]:
    """Run an API server and one controller."""
    rig = Rig()
    async with rig.running(rig.controller(**config)):
        yield rig
