"""
Taint bad nodes for a bounded time, so that Kueue moves the Pods that it has pinned to them (docs/adr/0098).

Guarantees: a node is tainted only if Kueue chose it, and JobSets of two namespaces or of a trusted one find it bad; a
node of the control plane never is. The whole controller has at most `TaintLimits.nodes` nodes tainted, for one
namespace at most half of them. No taint is placed BEFORE those of earlier leaders are known. Each is removed within
`CHECK_S` of its end, whatever ends it; a controller without limits removes all that it finds. It is noted BEFORE it is
written, so one whose write had an unknown outcome is removed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.marked_nodes import STAYS, MarkedPod
from inplace.common.jobset.node_taints import (
    TAINTED,
    NodeTaint,
    TaintLimits,
    has_assigned_hosts,
    is_of_control_plane,
    read_taint,
    tainting,
    untainting,
)
from inplace.common.jobset.note import Note
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Conflict, Forbidden, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import NODES, WORKLOADS, KubeObject
from inplace.common.kube.timestamps import precise_time
from inplace.common.wire import names as wire
from inplace.controller.api.access_review import is_allowed
from inplace.controller.api.events import EventRecorder
from inplace.controller.plan.actions import TaintNode
from inplace.controller.tracking.group import Group

ANSWER_S_MAX: Final = 2.0  # two reads and a write; the next epoch of the group waits for them
CHECK_S: Final = 5.0  # no request, while nothing is to be removed
RETRY_S: Final = 30.0  # after an API server that refuses or does not answer; one request each
TRIES_MAX: Final = 3  # at a Node that others write at the same time, as its kubelet does

_JOB_UID: Final = "kueue.x-k8s.io/job-uid"  # Kueue's label on a Workload

IsWanted = Callable[[str, NodeTaint], bool]
IsBadElsewhere = Callable[[str, str], bool]


class TaintRefusedError(Exception):
    """A node is not tainted: for want of evidence, by a limit, or because the taints that there are are not known."""


@dataclass(slots=True)
class NodeTaints:
    """Knows the nodes that are tainted; `run` it beside the work.

    Args:
        limits: None taints nothing, and lets no plan ask for it.
        is_bad_elsewhere: say whether a JobSet of another namespace than the second argument finds a node bad.
        namespace: whose taints are ours; None for all.
    """

    client: KubeClient
    limits: TaintLimits | None
    is_bad_elsewhere: IsBadElsewhere
    recorder: EventRecorder
    namespace: str | None
    clock: Clock
    log: Log
    _known: dict[str, NodeTaint] = field(default_factory=dict)
    _unread: str = "they are not read yet"  # why earlier taints are not known; "" once they are

    async def perform(self, group: Group, actions: Sequence[TaintNode]) -> None:
        """Taint the nodes that a plan names, and let their Pods leave; where that is refused they restart in place."""
        for action in actions:
            node, pod = action.pod.spec.node_name or "", action.pod
            try:
                async with self.clock.timeout(ANSWER_S_MAX):
                    limits = await self.place(node, group.jobset, action)
            except (TaintRefusedError, ApiError, TransportError, TimeoutError) as error:
                why = str(error) or f"no answer within {ANSWER_S_MAX:g} s"
                cure = "; apply deploy/overlays/taints" if isinstance(error, Forbidden) else ""
                text = f"node {node} is bad, but was not tainted: {why}{cure}; pod {pod.metadata.name} restarts there"
                self.recorder.emit(group.jobset.raw, Note(STAYS, text, warning=True))
                continue
            text = f"node {node} is tainted for {limits.seconds} s at most, so that the queue moves its pod"
            self.recorder.emit(group.jobset.raw, Note(TAINTED, text, warning=True))
            marked = MarkedPod(pod, leaves=True, why=f"node {node} is bad, and tainted for the queue to choose another")
            group.ledgers[action.scope].marked.answer(pod.metadata.uid, marked)

    async def place(self, node: str, jobset: JobSet, action: TaintNode) -> TaintLimits:
        """Taint a node for a JobSet; a node that has a taint keeps it anew. Return the limits.

        Raises:
            TaintRefusedError: nothing was written.
            ApiError, TransportError: the API server refused it, or did not answer.
        """
        limits = self.limits
        if limits is None or self._unread:
            raise TaintRefusedError(f"expected to know the nodes that are tainted already: {self._unread}")
        namespace = jobset.namespace
        if namespace not in limits.trusted and not self.is_bad_elsewhere(node, namespace):
            raise TaintRefusedError(
                f"expected JobSets of two namespaces to find it bad, saw those of {namespace} alone; an administrator "
                f"who trusts this namespace adds /{namespace} to --taint-bad-nodes"
            )
        labels = action.pod.metadata.labels
        await self._check_queue(jobset, (labels and labels.replicated_job) or "")
        until = precise_time(self.clock.wall_s() + limits.seconds)
        taint = NodeTaint(namespace, jobset.name, jobset.uid, until)

        def change(stored: Mapping[str, Any]) -> KubeObject:
            if is_of_control_plane(stored):
                raise TaintRefusedError("expected a node of workers, saw one of the control plane")
            self._check_limits(limits, node, taint, action.nodes_max)
            self._known[node] = taint  # BEFORE the write, whose outcome may stay unknown
            return tainting(stored, taint)

        await self._change(node, change)
        self.log.info("node_tainted", node=node, namespace=namespace, jobset=jobset.name, until=until)
        return limits

    async def _check_queue(self, jobset: JobSet, replicated_job: str) -> None:
        """Check that Kueue chose the nodes of a replicatedJob's Pods: anybody may write its annotations."""
        query = {"labelSelector": f"{_JOB_UID}={jobset.uid}"}
        try:
            found = (await self.client.list(WORKLOADS, jobset.namespace, query=query))["items"]
        except NotFound:  # no Kueue
            found = []
        if not any(has_assigned_hosts(workload, replicated_job) for workload in found):
            raise TaintRefusedError(
                f"expected Kueue to have chosen the node, saw no admitted Workload of the jobset with hosts for "
                f"{replicated_job}"
            )

    def _check_limits(self, limits: TaintLimits, node: str, taint: NodeTaint, nodes_max: int) -> None:
        """Check that one node more may be tainted."""
        others = [other for name, other in self._known.items() if name != node]
        if len(others) >= limits.nodes:
            raise TaintRefusedError(f"{len(others)} nodes are tainted, the most that the controller may taint")
        of_namespace = sum(other.namespace == taint.namespace for other in others)
        if of_namespace >= limits.nodes_of_a_namespace:
            raise TaintRefusedError(
                f"{of_namespace} nodes are tainted for namespace {taint.namespace}, the most of one namespace"
            )
        if (own := sum(other.uid == taint.uid for other in others)) >= nodes_max:
            raise TaintRefusedError(f"{own} nodes are tainted for this jobset, the most that it may avoid")

    async def run(self, is_wanted: IsWanted) -> None:
        """Find the taints of earlier leaders, and remove each that is not wanted any more, until cancelled."""
        while not await self._find():
            await self.clock.sleep(RETRY_S)
        while self._known or self.limits is not None:
            is_answered = True
            for node, taint in list(self._known.items()):
                if is_answered and not is_wanted(node, taint):
                    is_answered = await self._remove(node, taint)
            await self.clock.sleep(CHECK_S if is_answered else RETRY_S)

    async def _find(self) -> bool:
        """Read which nodes are tainted; say False if that has to be tried again."""
        try:
            if self.limits is None and not await is_allowed(self.client, {"resource": NODES.plural, "verb": "patch"}):
                return True  # as installed by default: this controller has never tainted a node
            found = await self.client.list(NODES, query={"labelSelector": wire.BAD_NODE})
        except (ApiError, TransportError) as error:
            self._unread = str(error)
            self.log.warning("tainted_nodes_not_read", message=self._unread, then="no node is tainted")
            return False
        for node in found["items"]:
            taint = read_taint(node)
            if taint is not None and self.namespace in (None, taint.namespace):
                self._known[node["metadata"]["name"]] = taint
        self._unread = ""
        return True

    async def _remove(self, node: str, taint: NodeTaint) -> bool:
        """Remove a taint; say False if that has to be tried again."""

        def change(stored: Mapping[str, Any]) -> KubeObject | None:
            found = read_taint(stored)
            if found is None or found == taint:
                return None if found is None else untainting(stored)
            # The write of `taint` never came, or there is a newer one by now: that is judged for itself.
            if self._known.get(node) is taint:
                self._known[node] = found
            return None

        try:
            is_removed = await self._change(node, change)
        except NotFound:
            is_removed = False
        except (ApiError, TransportError) as error:
            self.log.warning("node_not_untainted", node=node, message=str(error), then="it is tried again")
            return False
        if self._known.get(node) is taint:
            del self._known[node]
        if is_removed:
            self.log.info("node_untainted", node=node, namespace=taint.namespace, jobset=taint.jobset)
        return True

    async def _change(self, node: str, change: Callable[[Mapping[str, Any]], KubeObject | None]) -> bool:
        """Change a Node as it is now; say False if there is nothing to change.

        Raises:
            ApiError, TransportError: the API server refused it, or did not answer.
        """
        for attempt in range(1, TRIES_MAX + 1):
            patch = change(await self.client.get(NODES, None, node))
            if patch is None:
                return False
            try:
                await self.client.patch(NODES, None, node, patch)
            except Conflict:
                if attempt == TRIES_MAX:
                    raise
            else:
                break
        return True
