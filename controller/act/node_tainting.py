"""Taint the nodes that a plan names, and let the Pods on them leave; where that is refused they restart in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Forbidden
from inplace.common.kube.http.request import TransportError
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.node_taints import NodeTaints, TaintRefusedError
from inplace.controller.plan.actions import TaintNode
from inplace.controller.spec.marked_nodes import STAYS, MarkedPod
from inplace.controller.spec.node_taints import TAINTED
from inplace.controller.spec.note import Note
from inplace.controller.tracking.group import Group

ANSWER_S_MAX: Final = 2.0  # a read and a write; the next epoch of the group waits for them


@dataclass(frozen=True, slots=True)
class NodeTainting:
    """Performs what plans say about nodes."""

    taints: NodeTaints
    recorder: EventRecorder
    clock: Clock

    async def perform(self, group: Group, actions: Sequence[TaintNode]) -> None:
        """Taint; the next plan of the JobSet knows which Pods leave."""
        for action in actions:
            node, pod = action.pod.spec.node_name or "", action.pod
            try:
                async with self.clock.timeout(ANSWER_S_MAX):
                    await self.taints.place(node, group.jobset, action.nodes_max)
            except (TaintRefusedError, ApiError, TransportError, TimeoutError) as error:
                why = str(error) or f"no answer within {ANSWER_S_MAX:g} s"
                cure = "; apply deploy/overlays/taints" if isinstance(error, Forbidden) else ""
                text = f"node {node} is bad, but was not tainted: {why}{cure}; pod {pod.metadata.name} restarts there"
                self.recorder.emit(group.jobset.raw, Note(STAYS, text, warning=True))
                continue
            limits = self.taints.limits
            assert limits is not None, "place refuses without limits"
            text = f"node {node} is tainted for {limits.seconds} s at most, so that the queue moves its pod"
            self.recorder.emit(group.jobset.raw, Note(TAINTED, text, warning=True))
            marked = MarkedPod(pod, leaves=True, why=f"node {node} is bad, and tainted for the queue to choose another")
            group.ledgers[action.scope].marked.answer(pod.metadata.uid, marked)
