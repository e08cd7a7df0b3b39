"""
Ask whether a Pod should leave its node, where its worker failed first, or its group waits for it or could spare it.

Guarantees: asking never blocks and never fails. The whole controller has at most one request under way. A question that
waits for longer than `ANSWER_S_MAX`, or whose answer takes so long, is dropped: then the Pod restarts in place, as if
nobody had asked. So if thousands of nodes fail together, the API server gets one read after the other, for a second. A
watch of all nodes would cost every cluster, always. Of those that are cordoned alone it costs next to nothing: where a
group has spares, a member leaves such a node before its Pod has to go.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.kinds import Node, Pod
from inplace.common.jobset.marked_nodes import (
    STAYS,
    MarkedPod,
    NodeMarks,
    Toleration,
    judge,
    read_node,
    unhealthy_devices,
)
from inplace.common.jobset.node_taints import is_moved_by_queue
from inplace.common.jobset.note import Note
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Informer, Log
from inplace.common.kube.resources import NODES
from inplace.controller.api.domains import read_pod_spec
from inplace.controller.api.events import EventRecorder
from inplace.controller.metrics import Metrics
from inplace.controller.plan.observed import WaitingBarrier
from inplace.controller.tracking.group import Group
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.scope_ledger import ScopeLedger

ANSWER_S_MAX: Final = 1.0  # a group restarts within seconds; later the answer would come too late
FRESH_S: Final = 1.0  # several groups and scopes fail together on one node; longer would miss a mark that was just made
NODES_MAX: Final = 1_000  # nodes whose marks are remembered
QUESTIONS_MAX: Final = 1_000  # that wait; each is dropped after a second


@dataclass(frozen=True, slots=True)
class _Question:
    """A Pod that may have to leave its node.

    Args:
        epoch: for which its scope restarts; an answer for an earlier one comes too late.
    """

    group: Group
    scope_ledger: ScopeLedger
    pod: Pod
    epoch: int
    asked_s: float


@dataclass(slots=True)
class NodeMarksReader:
    """Answers questions in the background, one after the other, and takes the answers to their JobSet.

    `run` it beside the work.

    Args:
        taints_nodes: an administrator says, by the flag, that the queue moves Pods away from tainted nodes.
    """

    client: KubeClient
    membership: Membership
    pods: Informer[Pod]
    recorder: EventRecorder
    clock: Clock
    log: Log
    metrics: Metrics
    taints_nodes: bool
    _cordoned: set[str] = field(default_factory=set)
    _queue: asyncio.Queue[_Question] = field(default_factory=lambda: asyncio.Queue(QUESTIONS_MAX))
    _known: OrderedDict[str, tuple[float, NodeMarks | None]] = field(default_factory=OrderedDict)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Take in that a node is cordoned, or no more; only such nodes are watched."""
        if new is None:
            assert old is not None
            self._cordoned.discard(old.metadata.name)
            for group in tuple(self.membership):
                for scope_ledger in group.ledgers.values():
                    if scope_ledger.members is not None and scope_ledger.marked.unmark(old.metadata.name):
                        self.membership.wake(group.key, 0.0)  # nobody moves; the answer about another mark comes again
        elif new.metadata.name not in self._cordoned:
            self._cordoned.add(new.metadata.name)
            for group in tuple(self.membership):
                if any(one.members is not None for one in group.ledgers.values()):
                    self.membership.wake(group.key, 0.0)

    def ask(self, group: Group, barriers: Mapping[str, WaitingBarrier]) -> None:
        """Ask about the first failure of each scope that restarts, and the Pods that a barrier names as missing."""
        jobset = group.jobset
        if not jobset.leaves_marked_nodes or jobset.suspended or jobset.is_finished or jobset.is_leaving:
            return
        now_s = self.clock.monotonic_s()
        for name, scope_ledger in group.ledgers.items():
            for pod in self._suspects(group, scope_ledger, barriers.get(name)):
                if _may_leave(pod) and scope_ledger.marked.ask(pod.metadata.uid, now_s):
                    question = _Question(group, scope_ledger, pod, scope_ledger.ledger.next_epoch, now_s)
                    if self._queue.full():
                        self._answer(question, "unanswered")
                    else:
                        self._queue.put_nowait(question)

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            question = await self._queue.get()
            if self.clock.monotonic_s() - question.asked_s > ANSWER_S_MAX:
                self._answer(question, "unanswered")
                continue
            try:
                async with self.clock.timeout(ANSWER_S_MAX):
                    found = await self._judge(question)
            except (ApiError, TransportError, TimeoutError) as error:
                why = str(error) or f"no answer within {ANSWER_S_MAX:g} s"
                node, then = question.pod.spec.node_name, f"pod {question.pod.metadata.name} restarts in place"
                self.log.warning("node_not_read", node=node, message=why, then=then)
                self._answer(question, "unanswered")
            else:
                self._answer(question, "unmarked" if found is None else "leaves" if found.leaves else "stays", found)

    def _suspects(self, group: Group, scope_ledger: ScopeLedger, barrier: WaitingBarrier | None) -> Iterator[Pod]:
        cause = scope_ledger.cause
        if cause is not None and cause.failure is not None and cause.may_be_of_the_node:
            pod = self.pods.get(group.jobset.namespace, cause.failure.pod)
            if pod is not None and self.membership.home_of(pod.metadata.uid) is scope_ledger:
                yield pod
        for missing in barrier.missing if barrier is not None else ():
            if missing.pod is not None:
                yield missing.pod
        if scope_ledger.members is not None and self._cordoned:
            pods = (
                pod for job in self.membership.jobs_of(group.jobset).values() for pod in self.membership.pods_of(job)
            )
            for pod in pods:
                if pod.spec.node_name in self._cordoned and self.membership.home_of(pod.metadata.uid) is scope_ledger:
                    yield pod

    def _answer(self, question: _Question, result: str, marked: MarkedPod | None = None) -> None:
        """Let the planner know of a Pod that leaves, unless its group runs again; tell of one that stays."""
        self.metrics.node_reads.labels(result).inc()
        group, scope_ledger = question.group, question.scope_ledger
        if scope_ledger.ledger.next_epoch != question.epoch:
            return
        leaves = marked is not None and marked.leaves
        scope_ledger.marked.answer(question.pod.metadata.uid, marked if leaves else None)
        if leaves or scope_ledger.due_since_s is not None:
            self.membership.wake(group.key, 0.0)
        if marked is not None and not leaves:
            self.recorder.emit(group.jobset.raw, Note(STAYS, marked.why, warning=True))

    async def _judge(self, question: _Question) -> MarkedPod | None:
        """Judge a Pod; None if it may simply restart in place.

        Where nobody could end it, it stays: kubelet is silent, or the node is gone and Kubernetes removes its Pods.
        """
        group, pod = question.group, question.pod
        marks = await self._marks(pod.spec.node_name or "")
        if marks is None or marks.is_silent:
            return None
        # The template's tolerations spare the request for the Pod's own, of which admission makes more.
        if not marks.against(_tolerations(group, pod)) and not unhealthy_devices(pod):
            return None
        spec = await read_pod_spec(self.client, pod)
        if spec is None:
            return None
        others = [await self._marks(other) for other in self._nodes_beside(group, pod)]
        known = [other for other in others if other is not None]
        is_moved = self.taints_nodes and is_moved_by_queue(group.jobset, pod)
        return judge(pod, spec, marks, known, is_moved=is_moved)

    def _nodes_beside(self, group: Group, pod: Pod) -> tuple[str, ...]:
        """Return two nodes of other Pods of the group, far apart in its order; fewer where there are none."""
        jobs = self.membership.jobs_of(group.jobset).values()
        pods = (other for job in jobs for other in self.membership.pods_of(job) if other.status.phase == "Running")
        nodes = list(dict.fromkeys(other.spec.node_name for other in pods if other.spec.node_name))
        others = [node for node in nodes if node != pod.spec.node_name]
        return tuple(dict.fromkeys((*others[:1], *others[-1:])))

    async def _marks(self, node: str) -> NodeMarks | None:
        """Return the marks of a node, at most `FRESH_S` old; None if it does not exist."""
        read_s, marks = self._known.get(node, (float("-inf"), None))
        if self.clock.monotonic_s() - read_s <= FRESH_S:
            return marks
        try:
            marks = read_node(await self.client.get(NODES, None, node))
        except NotFound:
            marks = None
        self._known[node] = self.clock.monotonic_s(), marks
        self._known.move_to_end(node)
        if len(self._known) > NODES_MAX:
            self._known.popitem(last=False)
        return marks


def _may_leave(pod: Pod) -> bool:
    """Say whether a Pod has a node, and neither ends already nor has ended."""
    is_over = pod.status.phase in ("Failed", "Succeeded") or pod.is_disrupted
    return bool(pod.spec.node_name) and not is_over


def _tolerations(group: Group, pod: Pod) -> tuple[Toleration, ...]:
    labels = pod.metadata.labels
    job = group.jobset.find_replicated_job((labels and labels.replicated_job) or "")
    return job.form.tolerations if job is not None else ()
