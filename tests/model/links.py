"""
The link of one Pod, explored: the real machines of a guard and of its agent, a worker, and everything between them.

What `tests.model.world` takes for granted of a guarded Pod is proved here: who is alive when, and what was told.
Messages on the link are taken in later than they are sent, in their order. Either process may die between any two
moves. kubelet starts all containers of the Pod again once one of them has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from inplace.common.protocol.agent import Accepted, AgentPhase, AgentState, GiveUp, LiftBarrier, RestartInPlace, View
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import ReportDue, ReportSent, ScheduleReport, SendReport, WorkerFailed
from inplace.common.protocol.guard import (
    BarrierLifted,
    GraceOver,
    GuardState,
    Leave,
    LinkEnded,
    Signalled,
    StartWorker,
    StopWorker,
    TellEnd,
    WorkerEnded,
)
from inplace.common.protocol.guard import step as step_guard
from inplace.common.protocol.sidecar import RestartPod, SidecarState
from inplace.common.protocol.sidecar import step as step_sidecar
from tests.model.explore import Result
from tests.model.search import canonical, search

FINAL_CODE: Final = 42
EPOCHS_MAX: Final = 3  # of one exploration: what happens in a third epoch has happened in the second
SIGTERM: Final = 15

G1: Final = "G1 a worker was started without a lift of its agent"
G2: Final = "G2 a worker runs on although nothing is left to happen but its own end"
G3: Final = "G3 an agent told twice of one death"
G4: Final = "G4 an agent left for a dead worker before its PATCH was answered, or its time was over"
G5: Final = "G5 a death was told that was none: code 0, a final code, or the end of the Pod"
G6: Final = "G6 a worker died, and its agent was not told"
INVARIANT: Final = "INV production code raised InvariantError"


class Pod(NamedTuple):
    """One Pod with a guard.

    Args:
        agent: SidecarState; None while its process is gone.
        guard: GuardState; None while its container is gone.
        worker: the epoch in which it runs; 0 for none.
        linked: guard and agent are connected.
        to_guard, to_agent: messages on their way, the oldest first.
        due: the agent's moment to tell is to come.
        patch: the PATCH that tells: "" none, "sent" or "answered".
        told: how often this agent's process told.
        dead: the worker died in this epoch of its agent, and the group must restart; 0 for none.
        ending: kubelet ends the Pod.
        stopping: the worker was told to end, or is about to be killed.
        others: how many deaths of other guarded containers this agent's process was told of.
        epoch: S.
        deprecated: D, 0 or S.
    """

    agent: Any
    guard: Any
    worker: int = 0
    linked: bool = False
    to_guard: tuple[Any, ...] = ()
    to_agent: tuple[Any, ...] = ()
    due: bool = False
    patch: str = ""
    told: int = 0
    dead: int = 0
    ending: bool = False
    stopping: bool = False
    others: int = 0
    epoch: int = 0
    deprecated: int = 0
    rule: str = ""


Move = tuple[str, Pod]


class LinkWorld:
    """Knows every move of such a Pod."""

    def first(self) -> Pod:
        """Return a Pod that has just started."""
        return Pod(SidecarState(), self._new_guard())

    def moves(self, pod: Pod) -> Iterator[Move]:
        """Yield every move."""
        yield from self._group_moves(pod)
        if pod.agent is not None:
            yield from self._agent_moves(pod)
        if pod.guard is not None:
            yield from self._guard_moves(pod)
        if pod.agent is not None and pod.guard is not None and not pod.linked and pod.guard.phase == "waiting":
            linked = pod._replace(linked=True, to_guard=(), to_agent=())
            if pod.agent.agent.phase is AgentPhase.LIFTED:
                linked = linked._replace(to_guard=(BarrierLifted(pod.agent.agent.epoch),))
            yield "guard and agent connect", linked
        if (pod.agent is None or pod.guard is None) and not pod.ending:
            yield "kubelet removes all containers and starts them", self._restarted(pod)

    def judge(self, pod: Pod) -> str:
        """Name the rule that a state breaks, or return ""."""
        if pod.rule:
            return pod.rule
        # Nothing but the worker's own end is left to happen, and nobody tells it to end.
        idle = pod.agent is None and pod.guard is not None and not pod.to_guard and not pod.linked
        if idle and pod.worker and not pod.stopping:
            return G2
        unheard = pod.guard is None and pod.agent is not None and not pod.to_agent and not pod.linked
        if pod.dead and unheard and pod.agent.agent.epoch == pod.dead and pod.agent.report.failure is None:
            return G6
        return ""

    def _group_moves(self, pod: Pod) -> Iterator[Move]:
        if pod.agent is None:
            return
        agent = pod.agent.agent
        if agent.epoch == pod.epoch + 1 and agent.phase is AgentPhase.WAITING:
            yield f"the group syncs at {agent.epoch}", pod._replace(epoch=agent.epoch)
        if pod.epoch > pod.deprecated:
            yield f"somebody else's worker dies: D={pod.epoch}", pod._replace(deprecated=pod.epoch)

    def _agent_moves(self, pod: Pod) -> Iterator[Move]:
        view = View(pod.epoch, pod.deprecated, consistent=True)
        yield self._agent_steps(pod, view, f"sees S={pod.epoch} D={pod.deprecated}")
        agent = pod.agent.agent
        if agent.phase is AgentPhase.ANNOUNCING:
            yield self._agent_steps(pod, Accepted(agent.epoch), f"has announced {agent.epoch}")
        if pod.due:
            yield self._agent_steps(pod._replace(due=False), ReportDue(), "its moment comes")
        if pod.patch == "sent":
            yield "the PATCH is answered, or its time is over", pod._replace(patch="answered")
        if pod.patch == "answered":
            yield self._agent_steps(pod._replace(patch="over"), ReportSent(), "has told")
        if agent.phase is AgentPhase.LIFTED and pod.others < 2:
            failed = WorkerFailed(agent.epoch, 1)
            text = f"hears that another container's worker of epoch {agent.epoch} died"
            yield self._agent_steps(pod._replace(others=pod.others + 1), failed, text)
        if pod.to_agent:
            heard = pod._replace(to_agent=pod.to_agent[1:])
            yield self._agent_steps(heard, pod.to_agent[0], f"hears {pod.to_agent[0]}")
        yield "the agent is killed", self._agent_gone(pod)

    def _guard_moves(self, pod: Pod) -> Iterator[Move]:
        if pod.to_guard:
            yield self._guard_steps(pod._replace(to_guard=pod.to_guard[1:]), pod.to_guard[0], "takes in")
        elif pod.linked and pod.agent is None:
            event = LinkEnded()
            yield self._guard_steps(pod._replace(linked=False), event, "sees the end of the link")
        if pod.worker:
            for code in (0, 1, FINAL_CODE):
                failed = code == 1 and not pod.ending and not pod.stopping and pod.linked and pod.agent is not None
                ended = pod._replace(worker=0, dead=pod.worker if failed else 0)
                yield self._guard_steps(ended, WorkerEnded(code), f"reaps its worker, which gave {code}")
        if pod.stopping:
            yield self._guard_steps(pod, GraceOver(), "the grace is over")
        if not pod.ending and (pod.guard.phase != "waiting" or pod.agent is not None):
            yield self._guard_steps(pod._replace(ending=True), Signalled(SIGTERM), "gets kubelet's SIGTERM")
        words: tuple[Any, ...] = ()
        if pod.guard.phase == "running" and pod.linked and pod.agent is not None:
            words = (WorkerFailed(pod.guard.epoch, None),)
        killed = pod._replace(guard=None, worker=0, linked=False, stopping=False, to_agent=pod.to_agent + words)
        yield "the guard is killed, and its container with it", killed

    def _agent_steps(self, pod: Pod, event: Any, text: str) -> Move:
        try:
            state, actions = step_sidecar(pod.agent, event)
        except InvariantError:
            return f"agent: {text}", pod._replace(agent=None, rule=INVARIANT)
        pod = pod._replace(agent=canonical(state))
        for action in actions:
            text += f" -> {type(action).__name__}"
            match action:
                case LiftBarrier(int(epoch)) if pod.linked:
                    pod = pod._replace(to_guard=(*pod.to_guard, BarrierLifted(epoch)))
                case ScheduleReport():
                    pod = pod._replace(due=True)
                case SendReport():
                    pod = pod._replace(patch="sent", told=pod.told + 1, rule=G3 if pod.told else pod.rule)
                case RestartPod():
                    pod = self._agent_gone(pod._replace(rule=pod.rule if pod.patch == "over" else G4))
                case RestartInPlace() | GiveUp():
                    pod = self._agent_gone(pod)
        return f"agent: {text}", pod

    def _guard_steps(self, pod: Pod, event: Any, text: str) -> Move:
        try:
            state, actions = step_guard(pod.guard, event)
        except InvariantError:
            return f"guard: {text}", pod._replace(guard=None, rule=INVARIANT)
        was_ending, pod = pod.guard.phase == "ending", pod._replace(guard=state)
        for action in actions:
            text += f" -> {type(action).__name__}"
            match action:
                case StartWorker(epoch):
                    lifted = event == BarrierLifted(epoch)
                    pod = pod._replace(worker=epoch, rule=pod.rule if lifted and not pod.worker else G1)
                case StopWorker():
                    pod = pod._replace(stopping=True)
                case TellEnd(epoch, code, failed):
                    if failed and (code in (0, FINAL_CODE) or was_ending):
                        pod = pod._replace(rule=G5)
                    if failed and pod.linked and pod.agent is not None:
                        pod = pod._replace(to_agent=(*pod.to_agent, WorkerFailed(epoch, code)))
                case Leave():
                    pod = pod._replace(guard=None, linked=False, stopping=False, worker=0)
        return f"guard: {text}", pod

    def _agent_gone(self, pod: Pod) -> Pod:
        return pod._replace(agent=None, to_agent=(), due=False, patch="", told=0, dead=0, others=0)

    def _restarted(self, pod: Pod) -> Pod:
        agent = SidecarState(AgentState(previous=None))
        return Pod(agent, self._new_guard(), epoch=pod.epoch, deprecated=pod.deprecated)

    def _new_guard(self) -> Any:
        return GuardState(final_codes=frozenset({FINAL_CODE}))


def explore_links() -> Result:
    """Visit every state of one guarded Pod, nearest first; stop at the first that breaks a rule."""
    return search(
        "one guarded Pod",
        LinkWorld(),
        is_last=lambda pod: pod.epoch > EPOCHS_MAX,
        may_be=lambda _: True,
    )
