"""
One run's world: API servers, nodes, controllers, agents and workers on a virtual clock, all from one seed.

Its built-in components are those of `simulator.cluster`. Every program's connections are on a `Network` and every
program is in a `Process`, so that faults can reach them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from random import Random
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import Controller
from inplace.simulator.apiserver import ApiServer, ApiServerOptions
from inplace.simulator.apiserver.store import CollectionKey, Event
from inplace.simulator.campaign.containers import QUIET, Machine, agent_client
from inplace.simulator.campaign.judge import Judge
from inplace.simulator.campaign.manners import Manners
from inplace.simulator.campaign.network import Network
from inplace.simulator.campaign.process import Process, ProcessClock, outside
from inplace.simulator.campaign.ranks import WatchedPods
from inplace.simulator.campaign.scenario import JOBSET, NAMESPACE, Scenario
from inplace.simulator.campaign.steps import StepStore
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.cluster.access import CONTROLLER_NAMESPACE, pod_user, user_name
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S
from inplace.simulator.cluster.components import Components
from inplace.simulator.cluster.manifests import custom_resource_definitions

SPARE_NODES = 1
CONTROLLER_RESTART_S = (0.1, 5.0)  # a Deployment's Pod comes back
LEASE = "inplace-controller"
_JUDGED = frozenset(("jobsets", "jobs", "pods", "leases", "nodes"))
_WATCHED: tuple[CollectionKey, ...] = (("jobset.x-k8s.io", "jobsets"), ("batch", "jobs"), ("", "pods"))


@dataclass(frozen=True, slots=True)
class CacheDelay:
    """A delay of one API server's watch caches.

    Args:
        since_s, until_s: writes in between reach the caches late.
        lag_s: the delay of each write; None: all of them arrive at `until_s`.
    """

    server: int
    since_s: float
    until_s: float
    lag_s: float | None = None

    @property
    def over_s(self) -> float:
        """Return when the last delayed write has arrived."""
        return self.until_s + (self.lag_s or 0.0)

    def of(self, now_s: float) -> float:
        """Return the delay of a write at `now_s`."""
        if not self.since_s < now_s < self.until_s:
            return 0.0
        return self.until_s - now_s if self.lag_s is None else self.lag_s


class _OverError(Exception):
    """The run is over; it cancels all tasks."""


class World:
    """All parts of one run.

    Args:
        seed: text that all randomness of the world follows from.
    """

    def __init__(self, seed: str, scenario: Scenario, trace: Trace) -> None:
        self.scenario = scenario
        self.trace = trace
        self.fired: Counter[str] = Counter()
        self.clock = ProcessClock(VIRTUAL_EPOCH_S)
        self._seed = seed
        self.judge = Judge(trace)
        options = [self._options(number) for number in range(scenario.servers)]
        first = ApiServer(clock=self.clock, rng=self.random("apiserver"), options=options[0])
        others = [first.replica(option, self.random(f"apiserver {n}")) for n, option in enumerate(options[1:])]
        self.servers = [first, *others]
        self.delays: list[CacheDelay] = []
        self.thawed_s = 0.0  # when the writes that were delayed before the calm have arrived
        self.network = Network(
            self.servers, self.clock, self.random("network"), scenario.timings.api, trace, self.note_fault
        )
        leased = scenario.fence_after_s is not None
        manners = Manners(self.judge, self.clock, self.lease_holder, leased=leased)
        self.network.on_send, self.network.on_refusal = manners.sent, manners.refused
        self.network.on_lost_answer = self._excuse_announcement
        self.network.on_arrival = manners.arrived
        self.machine = Machine(
            clock=self.clock,
            rng=self.random("machines"),
            timings=scenario.timings,
            judge=self.judge,
            transport_for=lambda pod: self.network.transport(agent_client(pod), pod_user(pod)),
            died=self._agent_died,
        )
        if scenario.limits is not None:
            self.machine.watched = WatchedPods(scenario.limits, self.random("ranks"))
        if scenario.share_every:
            self.machine.steps = StepStore(scenario.share_every, self.random("steps"))
        self.controllers: dict[str, Process] = {}
        self.controller_clocks = [ProcessClock(VIRTUAL_EPOCH_S) for _ in range(scenario.controllers)]
        self.components = Components(
            (),
            self.machine,
            client=self.client,
            random=self.random,
            clock=self.clock,
            timings=scenario.timings,
            replaces_early=scenario.replaces_early,
        )
        self.kubelets = self.components.kubelets
        self.kubelet_processes: dict[str, Process] = {}
        self.at_calm: list[Callable[[], Coroutine[Any, Any, None] | None]] = []
        self.is_calm = False
        self.restart_s: float | None = None  # duration of the undisturbed restart
        self.group: asyncio.TaskGroup

    # Its objects and clients.

    @property
    def now_s(self) -> float:
        """Return the time of the run."""
        return asyncio.get_running_loop().time()

    @property
    def jobset(self) -> KubeObject:
        """Return the JobSet as it is stored; {} when there is none."""
        return self.servers[0].store.get(("jobset.x-k8s.io", "jobsets"), NAMESPACE, JOBSET) or {}

    @property
    def pods(self) -> list[KubeObject]:
        """Return the Pods as they are stored, in the order of their creation."""
        return list(self.servers[0].store.collection(("", "pods")).objects.values())

    def lease_holder(self) -> str:
        """Return the holder of the controllers' Lease; "" when there is none."""
        lease = self.servers[0].store.get(("coordination.k8s.io", "leases"), CONTROLLER_NAMESPACE, LEASE) or {}
        return str((lease.get("spec") or {}).get("holderIdentity") or "")

    def random(self, name: str) -> Random:
        """Return a source of randomness for this name alone."""
        return Random(f"{self._seed}/{name}")

    def client(self, name: str) -> KubeClient:
        """Return a client for a component or user that is not under test."""
        return KubeClient(self.network.transport(name, user_name(name)), user_agent=name, field_manager=name)

    def _excuse_announcement(self, client: str, request: Request) -> None:
        """Count a cause where a lost answer may cost a restart.

        Where lists are written the answer says whether an announcement was counted; the next one may be too late
        (docs/adr/0107).
        """
        has_lists = self.scenario.members is not None or self.scenario.share_every
        if has_lists and request.method == "PATCH" and client.startswith("agent/"):
            self.judge.note_cause()

    def note_fault(self, fault: str, what: str) -> None:
        """Count that a fault had an effect, and add its target to the trace."""
        self.fired[fault] += 1
        self.trace.add("fault", f"{fault}: {what}")

    # Its life.

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run everything for the body of the block."""
        try:
            async with asyncio.TaskGroup() as self.group:
                await self._start_all()
                yield
                raise _OverError
        except* _OverError:
            pass

    async def _start_all(self) -> None:
        store = self.servers[0].store
        store.listen(self._observe)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONTROLLER_NAMESPACE}}
        self.servers[0].load([*_definitions(), namespace])
        nodes = -(-self.scenario.pods // self.scenario.pods_per_node) + SPARE_NODES
        for number in range(nodes):
            await self.add_node(f"node-{number}")
        for server in self.servers:
            for group_name, plural in _WATCHED:
                server.watchers(group_name, plural)  # make the caches: only an existing cache can be late
        programs = {"garbage": self.servers[0].run()}
        programs |= {f"caches {n}": server.run_caches() for n, server in enumerate(self.servers[1:], start=1)}
        programs |= self.components.programs()
        programs |= {f"controller {n}": self._keep_controller(n) for n in range(self.scenario.controllers)}
        for name, program in programs.items():
            self.group.create_task(program, name=name)
        await self.submit()

    async def calm(self) -> None:
        """End all faults, and undo lasting effects."""
        self.is_calm = True
        self.trace.add("calm", "no faults from here on")
        self.network.calm()
        self.thawed_s = max((delay.over_s for delay in self.delays), default=0.0)
        self.delays.clear()
        self.machine.full_disks = False
        if self.machine.watched is not None:
            self.machine.watched.late_s_max = 0.0
        self.delay_garbage(0.0)
        for process in [*self.controllers.values(), *(a.process for a in self.machine.agents.values())]:
            process.crash_at = None
        self.machine.crash_at.clear()
        for undo in self.at_calm:
            if (undone := undo()) is not None:
                await undone

    async def submit(self) -> None:
        """Create the JobSet."""
        await self.client("user").create(JOBSETS, NAMESPACE, self.scenario.manifest())

    async def add_node(self, name: str) -> None:
        """Let a node join, or come back empty."""
        kubelet = self.components.add_kubelet(name, f"{name} {self.now_s}")
        if self.servers[0].store.get(("", "nodes"), "", name) is None:
            await kubelet.register(pods=self.scenario.pods_per_node + 1)
        process = self.kubelet_processes[name] = Process(f"kubelet/{name}")
        self.group.create_task(self._attend(process, kubelet.run), name=name)

    def remove_node(self, name: str) -> None:
        """Let a node die with all its containers."""
        self.kubelets.pop(name)
        self.kubelet_processes.pop(name).kill()

    def delay_garbage(self, delay_s: float) -> None:
        """Delay the garbage collector until faults are over."""
        self.servers[0].options = replace(self.servers[0].options, gc_delay_s=delay_s)

    def go(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that belongs to no process."""
        self.group.create_task(work, name=name, context=outside())

    async def _attend(self, process: Process, program: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a process until it ends or is killed; a failure of its own is a bug and ends the run."""
        running = process.start(program())
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            raise
        if process.alive and not running.cancelled():
            running.result()

    async def _keep_controller(self, number: int) -> None:
        """Run one controller's process, and start it again when it died."""
        rng, name = self.random(f"controller {number}"), f"controller-{number}"
        for life in count(1):
            process = self.controllers[name] = Process(f"{name}#{life}")
            config = ControllerConfig(identity=process.name, lease_namespace=CONTROLLER_NAMESPACE)
            controller = Controller(
                self.network.transport(name, user_name("inplace-controller")),
                clock=self.controller_clocks[number],
                rng=Random(rng.random()),
                config=config,
                log=QUIET,
            )
            await self._attend(process, controller.run)
            self.trace.add("process", f"{process.name} died")
            self.controllers.pop(name, None)
            await self.clock.sleep(rng.uniform(*CONTROLLER_RESTART_S))

    def _agent_died(self, name: str, pod: KubeObject) -> None:
        self.trace.add("process", f"{name} died")
        self.judge.note_cause_of(pod)

    def _options(self, number: int) -> ApiServerOptions:
        """Return the options of one API server: its caches trail the store, also by the current delays."""
        rng, lag_s = self.random(f"lag {number}"), self.scenario.lags_s[number]

        def late_s(_: str) -> float:
            now_s = self.now_s
            held_s = max((delay.of(now_s) for delay in self.delays if delay.server == number), default=0.0)
            return max(held_s, rng.uniform(0.0, lag_s))

        return replace(ApiServerOptions(), watch_cache_lag_s=late_s, bookmark_interval_s=20.0)

    def _observe(self, key: CollectionKey, event: Event) -> None:
        """Pass every write to the judge and the built-in components in the instant in which it is stored."""
        if key[1] in _JUDGED:
            self.judge.observe(key[1], event)
        # The program that wrote the object may be killed next. What kubelet starts now must survive that.
        outside().run(self.components.observe, key, event)


@cache
def _definitions() -> list[KubeObject]:
    """Return the JobSet's definition without its CEL rules: a rule of the server could hide a program's mistake."""
    return [_without_rules(definition) for definition in custom_resource_definitions()]


def _without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_rules(value) for key, value in node.items() if key != "x-kubernetes-validations"}
    if isinstance(node, list):
        return [_without_rules(item) for item in node]
    return deepcopy(node)
