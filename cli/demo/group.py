"""Wait for the demo's group, strike its workers, time each restart, and say what keeps the group from training."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any, Final

import msgspec

from inplace.cli.connection import Connection
from inplace.cli.demo.adaptation import DemoError, initializers
from inplace.cli.demo.manifest import DemoManifest
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import explain
from inplace.cli.terminal.visible import visible
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import LogRequest
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ComparedRestart:
    """One row of the comparison.

    Args:
        running_s: seconds from the kill of one worker until the worker of every Pod was started again.
        seconds: how long the restart took as the JobSet's status tells it; None for new Pods, which it does not time.
        pods_created: since the kill.
        containers_started: since the kill.
    """

    title: str
    running_s: float
    seconds: float | None
    pods_created: int
    containers_started: int


@dataclass
class KillRecord:
    """What happened in a group's Pods since the last kill of a worker.

    It needs no epoch and no status, so it times new Pods in the same way as a restart in place.
    """

    manifest: DemoManifest
    killed_s: float | None = None
    pods_created: int = 0
    containers_started: int = 0
    running_s: dict[str, float] = field(default_factory=dict)  # Pod's uid -> when its worker was started
    stepped: set[str] = field(default_factory=set)  # uids whose worker has done its first step

    def observe(self, event: ClusterEvent) -> None:
        """Take an event of a container."""
        if event.kind is Kind.FAULT:
            self.killed_s, self.pods_created, self.containers_started = event.time_s, 0, 0
            self.running_s, self.stepped = {}, set()
        elif event.kind is Kind.POD_TAKEN:
            self.pods_created += 1
        elif event.kind is Kind.CONTAINER_STARTED:
            self.containers_started += 1
        elif event.kind is Kind.FIRST_STEP:
            self.stepped.add(event.uid)
        if event.kind is self._start and event.container in self.manifest.workers.values():
            self.running_s[event.uid] = event.time_s

    @property
    def trains(self) -> bool:
        """Say whether the workers of all Pods have taken their first step, since the kill if there was one."""
        return len(self.stepped) >= self.manifest.pods

    def row(self, title: str, seconds: float | None) -> ComparedRestart:
        """Return the restart that is complete."""
        assert self.killed_s is not None, "expected a worker that was killed"
        running_s = max(self.running_s.values()) - self.killed_s
        return ComparedRestart(title, running_s, seconds, self.pods_created, self.containers_started)

    @property
    def _start(self) -> Kind:
        """Return the event that says that a worker runs: below a guard it is not its container's start."""
        return Kind.WORKER_STARTED if self.manifest.mode.is_guarded else Kind.CONTAINER_STARTED


GROUP_S_MAX: Final = 180.0  # a start or a restart that takes longer hangs
LOOK_S: Final = 9.0  # after this long without an end the demo says what stands in its way; it shall take 10 s in all
SILENT_S: Final = 60.0  # then workers that printed no step count as working; importing torch in 8 takes 20 s
LOG_LINES_MAX: Final = 200  # of a worker that failed: a traceback, and what the agent beside it says
WORDS_MAX: Final = 15  # of these that are shown
PASSING: Final = (  # causes that a group which starts, or restarts, may have for a while
    *("Missing", "Unscheduled", "Creating", "Restarting", "Terminating", "Silent", "Behind", "Untold"),
    *("NoController", "NotStarted", "NotSyncedYet", "NotRestartedYet", "Recreating"),
)
AGENTS_LINES: Final = '{"timestamp": '  # how the lines of an agent and of a guard begin


def note(text: str) -> None:
    """Print one sentence for people at once, on stderr."""
    print(f"inplace demo: {visible(text)}", file=sys.stderr, flush=True)


class DemoGroup:
    """The JobSet of a demo, which may be applied from now on.

    Attributes:
        timeline: of its restarts.
        record: of its kills.
    """

    def __init__(self, cluster: Cluster, manifest: DemoManifest) -> None:
        self.cluster = cluster
        self.manifest = manifest
        self._trainers = manifest.workers.keys() - initializers(manifest.jobset)
        self.timeline = Timeline(
            cluster.server,
            cluster.observers,
            clock=cluster.clock,
            jobset=manifest.name,
            namespace=manifest.namespace,
            agents=manifest.agents,
            workers=frozenset(manifest.workers.values()),
            members=self._trainers,
            pods=manifest.trainers,
        )
        self.record = KillRecord(manifest)
        cluster.observers.add(self.record.observe)

    async def complete(self, after: int) -> None:
        """Wait until every worker has stepped in a restart later than number `after`; -1: in the first start.

        Without agents: since the last kill.

        Raises:
            DemoError: it cannot go on, it takes too long, or the JobSet ended.
        """
        waited_s = 0.0
        for look_s in (LOOK_S, SILENT_S, GROUP_S_MAX):
            try:
                await self.cluster.until(
                    lambda: self._is_complete(after) or self._has_ended(), timeout_s=look_s - waited_s
                )
                break
            except TimeoutError:
                waited_s = look_s
                await self._look(waited_s, is_start=after < 0)
            if self._is_complete(after):
                break  # the workers print no step, and their starts count now
        if not self._is_complete(after):
            words = await self._last_words()  # BEFORE the Pods are gone
            status = self.jobset()["status"]
            reasons = [
                f"{c['type']} {c['reason']}: {c['message']}" for c in status["conditions"] if c["status"] == "True"
            ]
            raise DemoError(f"expected the JobSet to train on, saw that it ended: {'; '.join(reasons)}{words}")

    async def strike(self, rng: Random, fault: signal.Signals | None) -> None:
        """Send a signal to one random worker, or delete its Pod (None).

        Raises:
            LookupError: no worker runs.
        """
        training = sorted(
            (pod for pod in self._pods() if _runs(pod) and self._trains(pod)),
            key=lambda pod: str(pod["metadata"]["name"]),
        )
        if not training:
            raise LookupError("expected a Pod that runs, saw none")
        pod = rng.choice(training)
        if fault is None:
            now_s = self.cluster.clock.monotonic_s()
            self.cluster.observers.tell(ClusterEvent.of(pod, now_s, Kind.FAULT, detail="deleted"))
            await self.cluster.client().delete(PODS, self.manifest.namespace, pod["metadata"]["name"])
            return
        self.cluster.kill_worker(
            self.manifest.namespace,
            pod["metadata"]["name"],
            signal_number=fault,
            container=self.manifest.workers[_member(pod)],
            supervised=self.manifest.mode.is_guarded,  # the worker has a parent in its container
        )

    def _trains(self, pod: KubeObject) -> bool:
        """Say whether a Pod trains: it is no initializer, and no spare."""
        return _member(pod) in self._trainers and self.timeline.trains(pod["metadata"]["uid"])

    def _is_complete(self, after: int) -> bool:
        if not self.manifest.agents:  # the timeline follows epochs, and new Pods have none
            return self.record.trains
        return self.timeline.current.number > after and self.timeline.current.complete

    def _has_ended(self) -> bool:
        return bool((self.jobset().get("status") or {}).get("terminalState"))

    async def _look(self, waited_s: float, *, is_start: bool) -> None:
        """Say what stands in the way; go on if nothing does.

        Raises:
            DemoError: it is the last look, or an obstacle that stays keeps the group from its first start.
        """
        found = await self.in_the_way()
        if waited_s >= SILENT_S and self.timeline.all_work and not found:
            note("the workers print no line that begins with 'step=': their start counts as their first step")
            sidecar = not self.manifest.mode.is_guarded
            self.timeline.count_starts(Kind.CONTAINER_STARTED if sidecar else Kind.WORKER_STARTED)
            return
        listed = "".join(f"\n  {sentence}" for sentence in found)
        moments = self.timeline.current.moments(agents_stay=self.manifest.mode.keeps_agents)
        reached = [words for words, at_s in moments if at_s is not None]
        what = "its first step" if is_start else "its first step after the restart"
        if waited_s >= GROUP_S_MAX or (is_start and found):
            raise DemoError(
                f"expected every worker to take {what} within {waited_s:g} s, saw it get as far as: "
                f"{', '.join(reached) or '-'}. In its way:{listed or ' nothing that the API server knows of'}"
                f"{await self._last_words()}"
            )
        seen = f" In its way:{listed}" if found else ""
        if self.timeline.all_work and waited_s < SILENT_S:
            seen += f" Workers that print no line 'step=...' within {SILENT_S:g} s are taken for working"
        note(f"still waiting after {waited_s:g} s; so far: {', '.join(reached) or '-'}.{seen}")

    async def in_the_way(self) -> list[str]:
        """Return what keeps the group from training and does not pass, in the words of `inplace explain`."""
        if not self.jobset():
            return ["the JobSet is gone"]
        connection = Connection(self.cluster.client(), self.manifest.namespace)
        facts = await read_facts(connection, self.manifest.name)
        causes = explain(facts, now_s=self.cluster.clock.wall_s()).causes
        found = [cause.text for cause in causes if cause.kind not in PASSING]
        # A Job that the API refuses has no Pod: the JobSet's Events say so.
        found += [f"{one.reason}: {one.message}" for one in facts.events if one.is_warning] if not facts.pods else []
        return list(dict.fromkeys(found))

    def state(self) -> GroupState:
        """Return how the JobSet stands."""
        return group_state(self.jobset(), [msgspec.convert(pod, PodFact) for pod in self._pods()])

    async def _last_words(self) -> str:
        """Return what a worker printed last, the one that failed first if it is known; "" if none printed anything."""
        status = self.jobset().get("status") or {}
        failed = ((status.get(wire.LAST_GROUP_RESTART) or {}).get("firstFailure") or {}).get("pod")
        for pod in sorted(self._pods(), key=lambda pod: pod["metadata"]["name"] != failed):
            worker = self.manifest.workers.get(_member(pod))
            inits = [one.name for one in msgspec.convert(pod, PodFact).inits if one.last_end and one.last_end.exit_code]
            names = [*inits, *([worker] if worker else [])]
            for name, previous in product(names, (False, True)):  # one that was started again may have printed nothing
                request = LogRequest(name, previous=previous, tail_lines=LOG_LINES_MAX)
                log = b"".join([piece async for piece in self.cluster.read_log(pod, request)])
                printed = log.decode("utf-8", "replace").splitlines()
                lines = [line for line in printed if line and not line.startswith(AGENTS_LINES)]
                if lines:
                    shown = "".join(f"\n  {line}" for line in lines[-WORDS_MAX:])
                    who = "the worker" if name == worker else f"container {name}"
                    return f"\nThe last lines of {who} of Pod {pod['metadata']['name']}:{shown}"
        return ""

    def jobset(self) -> KubeObject:
        """Return the JobSet as it is stored."""
        return self.cluster.jobset(self.manifest.name, self.manifest.namespace)

    def _pods(self) -> list[KubeObject]:
        return self._of_jobset("", "pods")

    def _of_jobset(self, group: str, plural: str) -> list[KubeObject]:
        """Return the JobSet's objects of one kind, straight from the store."""
        objects = self.cluster.server.store.collection((group, plural)).objects
        mine = (self.manifest.namespace, self.manifest.name)
        return [obj for (namespace, _), obj in objects.items() if (namespace, _label(obj, wire.JOBSET_NAME)) == mine]


def _runs(pod: KubeObject) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Running" and "deletionTimestamp" not in pod["metadata"]


def _member(pod: KubeObject) -> str:
    """Return the replicatedJob of a Pod."""
    return str(_label(pod, wire.REPLICATED_JOB_NAME))


def _label(obj: KubeObject, name: str) -> Any:
    return (obj["metadata"].get("labels") or {}).get(name)
