"""
The escalation's world with nodes: two Jobs of one Pod, each in a domain of its own, and bad nodes that they leave.

A worker's first failure makes its node bad. A new Pod of the same Job comes to the domain's next node, or back to the
one that it was to avoid; the Pod of a new Job comes to another domain, or back. Checked is, from the world's own
record, that a Job was made anew only if its domain was bad, and that each failure was counted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from inplace.common.jobset.jobset import JobSet
from inplace.common.wire import names as wire
from inplace.controller.plan.bad_nodes import avoid_bad_nodes
from inplace.controller.plan.epochs import decide_epochs
from inplace.controller.plan.escalation import replace_pods
from inplace.controller.plan.failure import fail_or_restart
from inplace.controller.plan.leaving import leave_bad_domains
from inplace.controller.plan.steps import STEPS, Step
from tests.model.escalations import WORKERS, EscalationState, EscalationWorld, Pod
from tests.model.explore import Result
from tests.model.search import search

ANNOTATION: Final = "InPlace=9,window=9"  # wide: what is counted is checked, not what has no room
NODES_MAX: Final = 3  # of a domain

R7: Final = "R7 a Job was recreated whose domain is not bad"
R8: Final = "R8 a Job was recreated while its group ran"


def explore_bad_domains(*, faults: int = 3) -> Result:
    """Visit every state of two Jobs that leave bad domains."""
    world = BadDomainWorld(ANNOTATION, faults, uncounted=False, forgets=False)
    name = f"bad domains, {ANNOTATION} faults={faults}"
    return search(name, world, is_last=world.is_last, may_be=lambda state: state.now_s == 0)


class BadDomainWorld(EscalationWorld):
    """Knows every move."""

    steps: ClassVar[tuple[Step, ...]] = tuple(
        step
        for step in STEPS
        if step in (fail_or_restart, leave_bad_domains, avoid_bad_nodes, decide_epochs, replace_pods)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.apart = True

    def first(self) -> EscalationState:
        """Return a group at work in epoch 1, each Pod on the first node of its domain."""
        state = super().first()
        for index, pod in enumerate(state.pods):
            assert pod is not None, "both slots have a Pod at first"
            state = _with(state, index, pod._replace(node=_node(index, 0, 0)))
        return state

    def _new_pods(self, state: EscalationState, index: int, pod: Pod) -> Iterator[tuple[str, EscalationState]]:
        before = state.pods[index]
        assert before is not None, "here a Pod is there until the next one is"
        is_new_job, number = before.attempt != pod.attempt, int(before.node.rpartition(".")[2])
        there = _node(index, pod.attempt, 0 if is_new_job else number + 1)
        if is_new_job or number + 1 < NODES_MAX:
            yield f"slot {index} gets a new Pod on {there}", _with(state, index, pod._replace(node=there))
        after = _with(state, index, pod._replace(node=before.node))
        if any((slot, node) == (index, before.node) for slot, _, node in state.bad):
            leaders = tuple(one._replace(returned=tuple(sorted({*one.returned, before.node}))) for one in state.leaders)
            after = after._replace(leaders=leaders, back=state.back | {(index, pod.attempt, before.node)})
        yield f"slot {index} gets a new Pod, back on {before.node}", after

    def _faults(
        self, state: EscalationState, synced: int, deprecated: int, attempt: int
    ) -> Iterator[tuple[str, EscalationState]]:
        for text, after in super()._faults(state, synced, deprecated, attempt):
            failed = [new for old, new in zip(state.pods, after.pods, strict=True) if new is not None and old != new]
            bad = frozenset((int(pod.uid.partition(".")[0]), pod.attempt, pod.node) for pod in failed)
            for index, *_ in bad:  # a leader that began meanwhile may see the second to exit as the first
                if text.endswith("worker exits"):
                    after = _with(after, index, failed[0]._replace(guilty=synced))
            yield text, after._replace(bad=after.bad | bad)

    def _wrong_recreation(self, state: EscalationState, index: int, old: JobSet) -> str:
        attempt = old.job_restarts_of(WORKERS, index)
        bad = {one for one in state.bad if one[:2] == (index, attempt)}
        if len(bad) < 2 and not bad & state.back:
            return R7
        return R8 if old.epochs[0] > old.epochs[1] else ""

    def _annotations(self) -> dict[str, str]:
        return super()._annotations() | {wire.NODES: "1", wire.EXCLUSIVE_TOPOLOGY: "rack"}


def _node(index: int, attempt: int, number: int) -> str:
    """Return the name of a node in the domain that a Job's attempt has found."""
    return f"n{index}.{attempt}.{number}"


def _with(state: EscalationState, index: int, pod: Pod) -> EscalationState:
    pods = (pod, state.pods[1]) if index == 0 else (state.pods[0], pod)
    return state._replace(pods=pods)
