"""
Ask whether a Pod should leave its node, where its worker failed first or its group waits for it; never else.

Guarantees: asking never blocks and never fails. The whole controller has at most one request under way. A question that
waits for longer than `ANSWER_S_MAX`, or whose answer takes so long, is dropped: then the Pod restarts in place, as if
nobody had asked. So if thousands of nodes fail together, the API server gets one read after the other, for a second. A
watch of nodes would cost every cluster, always.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import NODES
from inplace.controller.api.pod_specs import read_pod_spec
from inplace.controller.metrics import Metrics
from inplace.controller.spec.kinds import Pod
from inplace.controller.spec.marked_nodes import MarkedPod, NodeMarks, Toleration, judge, read_node, unhealthy_devices

ANSWER_S_MAX: Final = 1.0  # a group restarts within seconds; later the answer would come too late
FRESH_S: Final = 1.0  # several groups and scopes fail together on one node; longer would miss a mark that was just made
NODES_MAX: Final = 1_000  # nodes whose marks are remembered
QUESTIONS_MAX: Final = 1_000  # that wait; each is dropped after a second


@dataclass(frozen=True, slots=True)
class Question:
    """A Pod that may have to leave its node.

    Args:
        tolerations: of the Pods' template: they spare the request for the Pod's own, of which admission makes more.
        others: returns some nodes of the group's other Pods; called if the node is marked.
        is_moved: a queue that pinned the Pod chooses another node for its replacement.
        answer: called once, with None if the Pod may simply restart in place or there is no answer.
    """

    pod: Pod
    tolerations: Sequence[Toleration]
    others: Callable[[], Sequence[str]]
    answer: Callable[[MarkedPod | None], None]
    is_moved: bool = False


class NodeMarksReader:
    """Answers questions in the background, one after the other; `run` it beside the work."""

    def __init__(self, client: KubeClient, *, clock: Clock, log: Log, metrics: Metrics) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._reads = metrics.node_reads
        self._queue: asyncio.Queue[tuple[Question, float]] = asyncio.Queue(QUESTIONS_MAX)
        self._known: OrderedDict[str, tuple[float, NodeMarks | None]] = OrderedDict()

    def ask(self, question: Question) -> None:
        """Ask; return at once."""
        if self._queue.full():
            self._reply(question, "unanswered")
            return
        self._queue.put_nowait((question, self._clock.monotonic_s()))

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            question, asked_s = await self._queue.get()
            if self._clock.monotonic_s() - asked_s > ANSWER_S_MAX:
                self._reply(question, "unanswered")
                continue
            node = question.pod.spec.node_name or ""
            try:
                async with self._clock.timeout(ANSWER_S_MAX):
                    found = await self._judge(question, node)
            except (ApiError, TransportError, TimeoutError) as error:
                why = str(error) or f"no answer within {ANSWER_S_MAX:g} s"
                then = f"pod {question.pod.metadata.name} restarts in place"
                self._log.warning("node_not_read", node=node, message=why, then=then)
                self._reply(question, "unanswered")
            else:
                self._reply(question, "unmarked" if found is None else "leaves" if found.leaves else "stays", found)

    def _reply(self, question: Question, result: str, found: MarkedPod | None = None) -> None:
        """Answer a question, and count how."""
        self._reads.labels(result).inc()
        question.answer(found)

    async def _judge(self, question: Question, node: str) -> MarkedPod | None:
        """Judge a Pod.

        Where nobody could end it, it stays: kubelet is silent, or the node is gone and Kubernetes removes its Pods.
        """
        pod, marks = question.pod, await self._marks(node)
        if marks is None or marks.is_silent:
            return None
        if not marks.against(question.tolerations) and not unhealthy_devices(pod):
            return None
        spec = await read_pod_spec(self._client, pod)
        if spec is None:
            return None
        others = [await self._marks(other) for other in question.others()]
        known = [other for other in others if other is not None]
        return judge(pod, spec, marks, known, is_moved=question.is_moved)

    async def _marks(self, node: str) -> NodeMarks | None:
        """Return the marks of a node, at most `FRESH_S` old; None if it does not exist."""
        read_s, marks = self._known.get(node, (float("-inf"), None))
        if self._clock.monotonic_s() - read_s <= FRESH_S:
            return marks
        try:
            marks = read_node(await self._client.get(NODES, None, node))
        except NotFound:
            marks = None
        self._known[node] = self._clock.monotonic_s(), marks
        self._known.move_to_end(node)
        if len(self._known) > NODES_MAX:
            self._known.popitem(last=False)
        return marks
