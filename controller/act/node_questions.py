"""Ask about the nodes of the Pods that failed first or are waited for, and take the answers to their JobSet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from inplace.common.kube.clock import Clock
from inplace.common.kube.informer import Informer
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.node_marks import NodeMarksReader, Question
from inplace.controller.plan.barrier import WaitingBarrier
from inplace.controller.spec.kinds import Pod
from inplace.controller.spec.marked_nodes import STAYS, MarkedPod, Toleration
from inplace.controller.spec.node_taints import is_moved_by_queue
from inplace.controller.spec.note import Note
from inplace.controller.tracking.group import Group, ScopeLedger
from inplace.controller.tracking.membership import Membership


@dataclass(frozen=True, slots=True)
class NodeQuestions:
    """Asks for one JobSet at a time.

    Args:
        taints_nodes: an administrator says, by the flag, that the queue moves Pods away from tainted nodes.
    """

    reader: NodeMarksReader
    membership: Membership
    pods: Informer[Pod]
    recorder: EventRecorder
    clock: Clock
    taints_nodes: bool = False

    def ask(self, group: Group, barriers: Mapping[str, WaitingBarrier]) -> None:
        """Ask about the first failure of each scope that restarts, and the Pods that a barrier names as missing."""
        jobset = group.jobset
        if not jobset.leaves_marked_nodes or jobset.suspended or jobset.is_finished or jobset.is_leaving:
            return
        now_s = self.clock.monotonic_s()
        for name, scope_ledger in group.ledgers.items():
            for pod in self._suspects(group, scope_ledger, barriers.get(name)):
                if _may_leave(pod) and scope_ledger.marked.ask(pod.metadata.uid, now_s):
                    others = partial(self._nodes_beside, group, pod)
                    answer = partial(self._take, group, scope_ledger, pod.metadata.uid, scope_ledger.ledger.next_epoch)
                    is_moved = self.taints_nodes and is_moved_by_queue(group.jobset, pod)
                    self.reader.ask(Question(pod, _tolerations(group, pod), others, answer, is_moved=is_moved))

    def _suspects(self, group: Group, scope_ledger: ScopeLedger, barrier: WaitingBarrier | None) -> Iterator[Pod]:
        cause = scope_ledger.cause
        if cause is not None and cause.failure is not None and cause.may_be_of_the_node:
            pod = self.pods.get(group.jobset.namespace, cause.failure.pod)
            if pod is not None and self.membership.home_of(pod.metadata.uid) is scope_ledger:
                yield pod
        for missing in barrier.missing if barrier is not None else ():
            if missing.pod is not None:
                yield missing.pod

    def _nodes_beside(self, group: Group, pod: Pod) -> tuple[str, ...]:
        """Return two nodes of other Pods of the group, far apart in its order; fewer where there are none."""
        jobs = self.membership.jobs_of(group.jobset).values()
        pods = (other for job in jobs for other in self.membership.pods_of(job) if other.status.phase == "Running")
        nodes = list(dict.fromkeys(other.spec.node_name for other in pods if other.spec.node_name))
        others = [node for node in nodes if node != pod.spec.node_name]
        return tuple(dict.fromkeys((*others[:1], *others[-1:])))

    def _take(self, group: Group, scope_ledger: ScopeLedger, uid: str, epoch: int, marked: MarkedPod | None) -> None:
        """Let the planner know of a Pod that leaves, unless its group runs again; tell of one that stays."""
        if scope_ledger.ledger.next_epoch != epoch:
            return
        leaves = marked is not None and marked.leaves
        scope_ledger.marked.answer(uid, marked if leaves else None)
        if leaves or scope_ledger.due_since_s is not None:
            self.membership.wake(group.key, 0.0)
        if marked is not None and not leaves:
            self.recorder.emit(group.jobset.raw, Note(STAYS, marked.why, warning=True))


def _may_leave(pod: Pod) -> bool:
    """Say whether a Pod has a node, and neither ends already nor has ended."""
    is_over = pod.status.phase in ("Failed", "Succeeded") or pod.is_disrupted
    return bool(pod.spec.node_name) and not is_over


def _tolerations(group: Group, pod: Pod) -> tuple[Toleration, ...]:
    labels = pod.metadata.labels
    job = group.jobset.find_replicated_job((labels and labels.replicated_job) or "")
    return job.form.tolerations if job is not None else ()
