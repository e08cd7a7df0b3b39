"""Every edge of the machines of agent, Pod and guard, found by a walk through all reachable states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import agent, failure_report, guard
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import AgentPhase, AgentState, Verdict, View
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.guard import ENDING, GONE, HALTING, RUNNING, STOPPING, WAITING, GuardState
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod import PodState, WorkerLife

FINAL_CODE: Final = 3
SIGUSR1: Final = 10  # stands for any signal that asks nobody to end
GUARD_PHASES: Final = (WAITING, RUNNING, HALTING, ENDING, STOPPING, GONE)
# Small epochs, and the last one. Other epochs add no edges: a machine only compares epochs and adds one.
COUNTED: Final = 5  # the version up to which announcements are counted
# In groups with spares slot 0 is a member, and slot 1 a spare.
WITH_MEMBERS: Final = [View(synced, 0, members=Members(synced, 1, seen=COUNTED)) for synced in (1, 2)]
VIEWS: Final = WITH_MEMBERS + [
    View(synced, deprecated, in_place, consistent)
    for synced, deprecated in ((0, 0), (1, 0), (2, 0), (2, 2), (INT32_MAX, 2))
    for in_place in (True, False)
    for consistent in (True, False)
]
STARTS: Final = [AgentState(previous=1, slot=slot) for slot in (0, 1)] + [
    AgentState(previous=previous, reached=reached) for previous in (None, 1, 2) for reached in (0, 2)
]
_WITHOUT: Final = "no lease"
_AGENTS_OWN: Final = (agent.Announce, agent.TakeConsistentView)


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """One way from a state to a state.

    Args:
        event: the event's name, without the verdict.
        verdict: of the newest view, or the condition on which a guard's edge is taken; "" where the event has none.
        actions: the machine's actions, in words.
    """

    source: str
    target: str
    event: str
    verdict: str
    actions: str


@cache
def agent_edges() -> frozenset[Edge]:
    """Return the edges between the agent's phases, and those back to the same phase that do something."""

    def edge(before: AgentState, event: Any, after: AgentState, actions: tuple[Any, ...]) -> Edge | None:
        if before.phase is after.phase and not actions:
            return None
        return Edge(before.phase.value, after.phase.value, *_asked(before, event), _words(actions))

    def events(state: AgentState) -> Iterator[Any]:
        if state.phase not in agent.TERMINAL:
            yield from _agent_events(state)

    return _walk(STARTS, agent.step, events, edge)


@cache
def pod_edges() -> frozenset[Edge]:
    """Return the edges between a worker's lives, and those back to the same life that act on the worker."""

    def edge(before: PodState, event: Any, after: PodState, actions: tuple[Any, ...]) -> Edge | None:
        if before.life is after.life and not any(not isinstance(action, _AGENTS_OWN) for action in actions):
            return None
        happened = _happened(before, event) or _asked(before.agent, event)
        return Edge(before.life.value, after.life.value, *happened, _words(actions))

    starts = [PodState(restart_code=code) for code in (None, 88)]
    return _walk(starts, pod_machine.step, _pod_events, edge)


@cache
def guard_edges(*, stays: bool) -> frozenset[Edge]:
    """Return the edges between a guard's phases, and those back to the same phase that do something.

    Args:
        stays: depth `process`, whose first word, `StayOn`, is then in each guard's past.
    """

    def edge(before: GuardState, event: Any, after: GuardState, actions: tuple[Any, ...]) -> Edge | None:
        if before.phase == after.phase and not actions:
            return None
        return Edge(before.phase, after.phase, *_guard_event(before, event), _words(actions))

    return _walk([GuardState(final_codes=frozenset((FINAL_CODE,)), stays=stays)], guard.step, _guard_events, edge)


def _guard_events(state: GuardState) -> Iterator[Any]:
    """Yield the possible events of a guard; `AgentSignal` comes from agents of depth `process` only."""
    if state.phase == GONE:
        return
    yield from (guard.Signalled(number) for number in (guard.SIGTERM, SIGUSR1))
    yield from (guard.BarrierLifted(epoch) for epoch in (0, 1, 2)) if state.phase != STOPPING else ()
    yield from (guard.LinkEnded(), guard.AgentSignal(guard.SIGTERM)) if state.stays else (guard.LinkEnded(),)
    if state.phase != WAITING:
        yield from (guard.WorkerEnded(code, gone) for code in (0, 1, FINAL_CODE) for gone in (True, False))
    if state.phase == STOPPING:
        yield guard.GraceOver()


def _guard_event(state: GuardState, event: Any) -> tuple[str, str]:
    """Return the name of an event of the guard, and the condition that decides."""
    match event:
        case guard.BarrierLifted() if state.phase == WAITING:
            return "barrier lifted", ""
        case guard.BarrierLifted():
            return "lifted for another epoch", ""
        case guard.LinkEnded():
            return "the agent left", ""
        case guard.AgentSignal():
            return "the agent ends the worker", ""
        case guard.Signalled(number):
            return "SIGTERM" if number == guard.SIGTERM else "another signal", ""
        case guard.GraceOver():
            return "grace is over", ""
    is_clean = event.is_tree_gone or not state.stays  # asked only of a guard that stays
    if state.phase == HALTING:
        return "worker ended", "leaving nothing" if is_clean else "leaving processes"
    if state.phase != RUNNING:
        return "worker ended", ""
    if event.code in (0, FINAL_CODE):
        return "worker ended", "completed"
    if not state.epoch:
        return "worker ended", "in-place restart is off"
    return "worker ended", "failed" if is_clean else "failed leaving processes"


def _walk(
    starts: Iterable[Any],
    step: Callable[[Any, Any], tuple[Any, tuple[Any, ...]]],
    events: Callable[[Any], Iterable[Any]],
    edge: Callable[[Any, Any, Any, tuple[Any, ...]], Edge | None],
) -> frozenset[Edge]:
    """Return the edges of all reachable states; both views and states are finite."""
    known, found = set(starts), set[Edge]()
    ahead = list(known)
    while ahead:
        state = ahead.pop()
        for event in events(state):
            after, actions = step(state, event)
            if (seen := edge(state, event, after, actions)) is not None:
                found.add(seen)
            if after not in known:
                known.add(after)
                ahead.append(after)
    return frozenset(found)


def _agent_events(state: AgentState) -> Iterator[Any]:
    """Yield the possible events of an agent."""
    yield from VIEWS
    if state.phase is AgentPhase.ANNOUNCING:
        yield from (agent.Accepted(state.epoch, COUNTED), agent.NotAccepted(state.epoch))
    if state.phase is AgentPhase.WAITING:
        yield agent.StillWaiting()
    if state.phase in (AgentPhase.WAITING, AgentPhase.LIFTED):
        yield from (agent.Lease(held=True), agent.Lease(held=False))


def _pod_events(state: PodState) -> Iterator[Any]:
    """Yield the possible events of an agent and the worker."""
    if state.life is WorkerLife.LEFT:
        return
    yield from _agent_events(state.agent) if state.agent.phase not in agent.TERMINAL else VIEWS
    yield pod_machine.Terminate(15)
    if state.life is WorkerLife.RUNNING:
        yield failure_report.WorkerStalled(state.agent.epoch, 11, 1200)
    if state.life in (WorkerLife.RUNNING, WorkerLife.LEFTOVERS) and state.report.failure is not None:
        yield failure_report.ReportSent() if state.report.was_due else failure_report.ReportDue()
    if state.life is not WorkerLife.ABSENT:
        yield pod_machine.WorkerLost()
    if state.life in (WorkerLife.RUNNING, WorkerLife.STOPPING):
        yield pod_machine.WorkerExited(1)
    if state.life is WorkerLife.LEFTOVERS:
        yield pod_machine.WorkerGone()


def _asked(state: AgentState, event: Any) -> tuple[str, str]:
    """Return the name of an event of the agent's machine, and its verdict."""
    match event:
        case View():
            view = agent.newest(state.view, event)
            if state.epoch or not view.in_place:
                verdict = agent.judge_state(replace(state, view=view))
                return _WITHOUT if verdict is Verdict.SYNCED and not state.leased else "", verdict.value
            return _first(view, state), ""
        case agent.StillWaiting():
            return "long at the barrier", ""
        case agent.Lease(held):
            return "lease held" if held else "lease over", ""
    assert state.view is not None
    word = "accepted" if isinstance(event, agent.Accepted) else "refused or reply lost"
    accepted = state.accepted or (event.version if isinstance(event, agent.Accepted) else 0)
    verdict = agent.judge_state(replace(state, accepted=accepted))
    return f"{word}, {_WITHOUT}" if verdict is Verdict.SYNCED and not state.leased else word, verdict.value


def _first(view: View, state: AgentState) -> str:
    """Return the name of a view for a Pod that has not chosen its epoch."""
    if not agent.is_fresh(view, state.previous, state.reached):
        return "view that may be stale"
    return "no epoch after S" if view.synced == INT32_MAX else "fresh view"


def _happened(state: PodState, event: Any) -> tuple[str, str] | None:
    """Return the name of an event of the worker's processes; None for the agent's own events."""
    match event:
        case pod_machine.Terminate():
            return "told to end", ""
        case pod_machine.WorkerExited():
            return "main process exits", ""
        case failure_report.WorkerStalled():
            return "main process hangs", ""
        case failure_report.ReportDue():
            return "its moment comes", ""
        case failure_report.ReportSent():
            return "the failure is told", ""
        case pod_machine.WorkerLost():
            return "its container is gone", ""
        case pod_machine.WorkerGone():
            return "all processes gone, " + ("the Pod goes on" if state.code is None else "the Pod ends"), ""
    return None


def _words(actions: tuple[Any, ...]) -> str:
    """Return actions by the names of their classes: `lift barrier`."""
    return ", ".join(re.sub(r"(?<!^)(?=[A-Z])", " ", type(action).__name__).lower() for action in actions)
