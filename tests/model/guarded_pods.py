"""
One guarded Pod of either depth, explored: the real machines of its agent, of the link's two ends and of its guard.

Between the Pod's machine and the guard stand `common.protocol.linked_worker` and messages that are taken in later than
they are sent, in their order. A worker has a main process, and a tree that may outlive it. Agent, guard and connection
may each end between any two moves; kubelet then removes all containers and starts them. In depth `containers` the Pod
has another container, of whose guard only the death is of interest, and its worker may hang.

Behind an image's ENTRYPOINT kubelet starts the worker's container after the lift, at a moment of its own. What is in
it then is a guard, or the worker itself, which nobody but kubelet ends.

What `tests.model.world` takes for granted of a guarded Pod is proved here: who is alive when, and what was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from inplace.common.protocol import guard
from inplace.common.protocol.agent import Accepted, AgentPhase, Announce, GiveUp, View
from inplace.common.protocol.errors import InvariantError, RemoteProtocolError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ScheduleReport,
    SendReport,
    WorkerRaised,
    WorkerStalled,
)
from inplace.common.protocol.guard import (
    AgentSignal,
    BarrierLifted,
    GraceOver,
    GuardState,
    LinkEnded,
    Signalled,
    StayOn,
    TellAbsent,
    TellEnd,
    TellEnding,
    WorkerEnded,
)
from inplace.common.protocol.guard import step as step_guard
from inplace.common.protocol.link import Absent, Ended, Ending, Failed, Lifted, Started
from inplace.common.protocol.linked_worker import (
    Exited,
    Gone,
    Greeted,
    Heard,
    LinkedWorkerState,
    Lost,
    PeerLeft,
    SignalWorkers,
    Tell,
)
from inplace.common.protocol.linked_worker import step as step_linked_worker
from inplace.common.protocol.pod import (
    Leave,
    PodState,
    StartWorker,
    StopWorker,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLife,
    WorkerLost,
)
from inplace.common.protocol.pod import step as step_pod
from tests.model.explore import Result
from tests.model.search import canonical, search

OTHER: Final = 1  # the connection of the other container's guard
FINAL_CODE: Final = 42
CLEAN_CODE: Final = 88
CLEAN_AFTER: Final = 2  # failures in a row
FAULTS_MAX: Final = 2  # a worker that hangs or survives SIGKILL, an end of agent, guard, connection or Pod
SIGTERM, SIGKILL = 15, 9
END: Final = "end of the link"

P1: Final = "P1 a worker was started without a lift of its agent, or beside another one"
P2: Final = "P2 an epoch was announced beside a process of the last one"
P3: Final = "P3 a worker runs on although its agent is gone"
P4: Final = "P4 agent and guard wait for each other"
P5: Final = "P5 a worker's container is gone, and its agent was not told"
P6: Final = "P6 an agent left for clean containers before its PATCH was answered, or its time was over"
P7: Final = "P7 a process was restarted once more although its worker failed twice in a row"
P8: Final = "P8 an agent told twice of one worker"
P9: Final = "P9 a death was told that was none: code 0, a final code, or the end of the Pod"
INVARIANT: Final = "INV production code raised InvariantError"


class Pod(NamedTuple):
    """One guarded Pod.

    Args:
        agent: PodState; None while its process is gone.
        worker: LinkedWorkerState, the agent's.
        guard: GuardState; None while its container is gone.
        main: the epoch of the main process that runs; 0 for none.
        tree: the epoch whose processes are in the container; 0 for none.
        linked: guard and agent are connected.
        to_guard, to_agent: messages on their way, the oldest first.
        news: what the worker's machine reported, and the agent's is yet to take in.
        due: the agent's moment to tell is to come.
        patch: the PATCH that tells: "" none, "sent", "answered", "over".
        ending: kubelet ends the Pod.
        stopping: the guard gives its worker a grace.
        lost: the epoch of the worker whose container ended without its agent's doing; 0 for none.
        completed: the guard left, and its container is not started again by itself.
        epoch: S.
        deprecated: D, 0 or S.
        other: what the other container's guard said last: "", "started", "failed" or, when it is gone, "left".
        hung: this process found that its worker hangs, or that a rank of it has failed.
        faults: how many there were.
        entry: of a container behind an ENTRYPOINT: "held" before the lift, "let" until kubelet starts it, "bare" while
            a worker without a guard is in it; "" otherwise.
    """

    agent: Any
    worker: Any
    guard: Any
    main: int = 0
    tree: int = 0
    linked: bool = False
    to_guard: tuple[Any, ...] = ()
    to_agent: tuple[Any, ...] = ()
    news: tuple[Any, ...] = ()
    due: bool = False
    patch: str = ""
    ending: bool = False
    stopping: bool = False
    lost: int = 0
    completed: bool = False
    epoch: int = 0
    deprecated: int = 0
    other: str = ""
    hung: bool = False
    faults: int = 0
    entry: str = ""
    rule: str = ""


Move = tuple[str, Pod]


class GuardedPodWorld:
    """Knows every move of such a Pod.

    Args:
        stays: its guard stays when its worker ends: depth `process`.
        has_entrypoint: its guard comes by the image's ENTRYPOINT, or does not.
    """

    def __init__(self, *, stays: bool, has_entrypoint: bool = False) -> None:
        self._stays = stays
        self._has_entrypoint = has_entrypoint

    def first(self, epoch: int = 0, deprecated: int = 0) -> Pod:
        """Return a Pod whose containers have just started."""
        agent = PodState(
            restart_code=None if self._stays else CLEAN_CODE, clean_code=CLEAN_CODE, clean_after=CLEAN_AFTER
        )
        guard = None if self._has_entrypoint else GuardState(final_codes=frozenset({FINAL_CODE}))
        pod = Pod(agent, self._new_worker(), guard, epoch=epoch, deprecated=deprecated)
        return pod._replace(entry="held" if self._has_entrypoint else "")

    def moves(self, pod: Pod) -> Iterator[Move]:
        """Yield every move."""
        if pod.agent is not None:
            yield from self._agent_moves(pod)
        if pod.guard is not None:
            yield from self._guard_moves(pod)
        if pod.agent is not None and pod.guard is not None:
            if not pod.linked and pod.guard.phase == "waiting" and END not in pod.to_agent:
                hello = (StayOn(),) if self._stays else ()
                linked = pod._replace(linked=True, to_guard=hello, to_agent=())
                yield "guard and agent connect", self._carried(linked, Greeted(0))
            if pod.linked and self._stays:
                yield "the connection breaks", self._unlinked(_faulty(pod))
        if pod.entry == "let":
            yield from self._started(pod)
        if pod.entry == "bare":
            ended = pod._replace(entry="", main=0, tree=0)
            yield "the worker without a guard fails", ended
            yield "the worker without a guard completes", ended._replace(completed=True)
        is_over = pod.guard is None and not (pod.completed or pod.entry)
        if (pod.agent is None or is_over) and not pod.ending:
            yield "kubelet removes all containers and starts them", self._restarted(pod)

    def judge(self, pod: Pod) -> str:
        """Name the rule that a state breaks, or return ""."""
        if pod.rule:
            return pod.rule
        if pod.agent is None:
            idle = pod.guard is not None and not pod.to_guard and not pod.linked and not pod.stopping
            return P3 if idle and pod.main else ""
        if pod.to_agent or pod.to_guard or pod.news or pod.due or pod.patch in ("sent", "answered") or pod.ending:
            return ""
        life = pod.agent.life
        if pod.entry == "bare" and life in (WorkerLife.STOPPING, WorkerLife.LEFTOVERS):
            return P4
        if pod.guard is None:
            return P5 if life is WorkerLife.RUNNING and pod.lost == pod.agent.agent.epoch else ""
        if not pod.linked or pod.main != pod.tree:
            return ""
        if life is WorkerLife.RUNNING and pod.guard.phase == "waiting":
            return P4
        return (
            P4
            if life in (WorkerLife.STOPPING, WorkerLife.LEFTOVERS) and pod.guard.phase in ("waiting", "running")
            else ""
        )

    def _started(self, pod: Pod) -> Iterator[Move]:
        """Yield the start of the worker's container, with a guard in it and without."""
        guard = GuardState(final_codes=frozenset({FINAL_CODE}))
        yield "kubelet starts the container, in which a guard is", pod._replace(entry="", guard=guard)
        epoch = max(pod.epoch, 1)  # whichever the agent lifts or stops
        yield "kubelet starts the container, in which no guard is", pod._replace(entry="bare", main=epoch, tree=epoch)

    def _agent_moves(self, pod: Pod) -> Iterator[Move]:
        agent = pod.agent.agent
        if agent.epoch == pod.epoch + 1 and agent.phase is AgentPhase.WAITING:
            yield f"the group syncs at {agent.epoch}", pod._replace(epoch=agent.epoch)
        if pod.epoch > pod.deprecated:
            yield f"somebody else's worker dies: D={pod.epoch}", pod._replace(deprecated=pod.epoch)
        view = View(pod.epoch, pod.deprecated, consistent=True)
        yield self._stepped(pod, view, f"sees S={pod.epoch} D={pod.deprecated}")
        if agent.phase is AgentPhase.ANNOUNCING and pod.agent.life is WorkerLife.ABSENT:
            yield self._stepped(pod, Accepted(agent.epoch), f"has announced {agent.epoch}")
        if pod.due:
            yield self._stepped(pod._replace(due=False), ReportDue(), "its moment comes")
        if pod.patch == "sent":
            yield "the PATCH is answered, or its time is over", pod._replace(patch="answered")
        if pod.patch == "answered":
            yield self._stepped(pod._replace(patch="over"), ReportSent(), "has told")
        if pod.news:
            yield self._stepped(pod._replace(news=pod.news[1:]), pod.news[0], f"learns {pod.news[0]}")
        if pod.to_agent:
            heard = pod.to_agent[0]
            event = PeerLeft(0) if heard == END else Heard(0, heard)
            yield f"agent: hears {heard}", self._carried(pod._replace(to_agent=pod.to_agent[1:]), event)
        if pod.agent.life is WorkerLife.STOPPING and not any(
            getattr(each, "number", 0) == SIGKILL for each in pod.to_guard
        ):
            yield "agent: the grace is over", self._carried(pod, SignalWorkers(SIGKILL))
        if pod.agent.code is None:
            yield self._stepped(_faulty(pod), Terminate(SIGTERM), "gets SIGTERM")
        if pod.agent.life is WorkerLife.RUNNING and not pod.hung:
            stalled = WorkerStalled(agent.epoch, 60, None)
            yield self._stepped(_faulty(pod)._replace(hung=True), stalled, "finds that its worker hangs")
            raised = WorkerRaised(agent.epoch, 1)
            yield self._stepped(_faulty(pod)._replace(hung=True), raised, "finds that a rank of it has failed")
        if not self._stays and pod.agent.life in (WorkerLife.RUNNING, WorkerLife.LEFTOVERS):
            yield from self._other_moves(pod)
        yield "the agent is killed", self._agent_gone(_faulty(pod))

    def _other_moves(self, pod: Pod) -> Iterator[Move]:
        """Yield what the other container's worker does."""
        epoch = pod.agent.agent.epoch
        may_start = pod.worker.epoch is not None and not pod.worker.is_ending
        if not pod.other and may_start:
            greeted = self._carried(pod._replace(other="started"), Greeted(OTHER))
            yield "the other worker starts", self._carried(greeted, Heard(OTHER, Started(epoch)))
        elif pod.other == "started" and may_start:
            failed = pod._replace(other="failed")
            yield "the other worker fails", self._carried(failed, Heard(OTHER, Failed(epoch, 1)))
        if pod.other in ("started", "failed"):
            yield "the other container ends", self._carried(pod._replace(other="left"), PeerLeft(OTHER))

    def _guard_moves(self, pod: Pod) -> Iterator[Move]:
        if pod.to_guard:
            heard = pod.to_guard[0]
            taken = pod._replace(to_guard=pod.to_guard[1:])
            yield self._guarded(taken, LinkEnded() if heard == END else heard, f"takes in {heard}")
        if pod.main:
            yield "the worker's main process ends", pod._replace(main=0)
        elif pod.tree:
            for code in (0, 1, FINAL_CODE):
                event = WorkerEnded(code)
                yield self._guarded(pod._replace(tree=0), event, f"has nothing left of its worker, which gave {code}")
            stuck = WorkerEnded(1, is_tree_gone=False)
            yield self._guarded(_faulty(pod), stuck, "cannot end what its worker left")
        if pod.stopping:
            yield self._guarded(pod, GraceOver(), "the grace is over")
        if not pod.ending:
            yield self._guarded(_faulty(pod)._replace(ending=True), Signalled(SIGTERM), "gets kubelet's SIGTERM")
        yield "the guard is killed, and its container with it", self._guard_gone(_faulty(pod), completed=False)

    def _stepped(self, pod: Pod, event: Any, text: str) -> Move:
        """Step the agent's machine, and perform its actions."""
        try:
            state, actions = step_pod(pod.agent, event)
        except InvariantError:
            return f"agent: {text}", pod._replace(rule=INVARIANT)
        pod = pod._replace(agent=canonical(state))
        for action in actions:
            text += f" -> {type(action).__name__}"
            match action:
                case Announce() if pod.tree or pod.entry == "let":
                    pod = pod._replace(rule=P2)
                case Announce() if state.failures >= CLEAN_AFTER:
                    pod = pod._replace(rule=P7)
                case StartWorker(epoch):
                    fresh = pod._replace(due=False, patch="", hung=False)
                    fresh = fresh._replace(entry="let" if pod.entry else "")
                    pod = self._carried(fresh, Lifted(epoch or 0))
                case StopWorker():  # after a rank's failure the signal ends nobody, and all the rest is the same
                    pod = self._carried(pod, SignalWorkers(SIGTERM))
                case ScheduleReport():
                    pod = pod._replace(due=True)
                case SendReport():
                    pod = pod._replace(patch="sent", rule=P8 if pod.patch else pod.rule)
                case Leave(code):
                    silent = code == CLEAN_CODE and pod.patch != "over" and pod.deprecated < state.agent.epoch
                    pod = self._agent_gone(pod._replace(rule=P6 if silent else pod.rule))
                    break
                case GiveUp():
                    pod = self._agent_gone(pod)
                    break
        return f"agent: {text}", pod

    def _carried(self, pod: Pod, event: Any) -> Pod:
        """Step the agent's end of the link; what it reports, the agent learns a moment later."""
        try:
            state, actions = step_linked_worker(pod.worker, event)
        except InvariantError:
            return pod._replace(rule=INVARIANT)
        except RemoteProtocolError:  # never of a guard of ours
            return pod._replace(rule=INVARIANT)
        pod = pod._replace(worker=state)
        for action in actions:
            match action:
                case Tell(_, Lifted(epoch)) if pod.linked:
                    pod = pod._replace(to_guard=(*pod.to_guard, BarrierLifted(epoch)))
                case Tell(_, said) if pod.linked:
                    signal = AgentSignal(getattr(said, "number", 0))
                    pod = pod._replace(to_guard=(*pod.to_guard, signal))
                case Exited(code):
                    pod = pod._replace(news=(*pod.news, WorkerExited(code)))
                case Gone():
                    pod = pod._replace(news=(*pod.news, WorkerGone()))
                case Lost():
                    pod = pod._replace(news=(*pod.news, WorkerLost()))
        return pod

    def _guarded(self, pod: Pod, event: Any, text: str) -> Move:
        """Step the guard's machine, and perform its actions."""
        try:
            state, actions = step_guard(pod.guard, event)
        except InvariantError:
            return f"guard: {text}", pod._replace(rule=INVARIANT)
        was_ending, pod = pod.guard.phase == "ending", pod._replace(guard=state)
        for action in actions:
            text += f" -> {type(action).__name__}"
            match action:
                case guard.StartWorker(epoch):
                    lifted = event == BarrierLifted(epoch)
                    pod = pod._replace(rule=pod.rule if lifted and not pod.tree else P1)
                    pod = self._said(pod._replace(main=epoch, tree=epoch), Started(epoch))
                case guard.StopWorker():
                    pod = pod._replace(stopping=True)
                case TellEnding(epoch):
                    pod = self._said(pod, Ending(epoch))
                case TellEnd(epoch, code, failed):
                    if failed and (code in (0, FINAL_CODE) or was_ending):
                        pod = pod._replace(rule=P9)
                    pod = self._said(pod, Failed(epoch, code) if failed else Ended(epoch, code))
                case TellAbsent():
                    pod = self._said(pod, Absent(0))
                case guard.Leave(code):
                    pod = self._guard_gone(pod, completed=code in (0, FINAL_CODE))
        return f"guard: {text}", pod

    def _said(self, pod: Pod, message: Any) -> Pod:
        return pod._replace(to_agent=(*pod.to_agent, message)) if pod.linked and pod.agent is not None else pod

    def _unlinked(self, pod: Pod) -> Pod:
        """End the connection: each side that is still there takes in what was said before, then the end."""
        to_guard = (*pod.to_guard, END) if pod.guard is not None and pod.linked else pod.to_guard
        to_agent = (*pod.to_agent, END) if pod.agent is not None and pod.linked else pod.to_agent
        return pod._replace(linked=False, to_guard=to_guard, to_agent=to_agent)

    def _guard_gone(self, pod: Pod, *, completed: bool) -> Pod:
        lost = 0 if completed else pod.tree
        pod = self._unlinked(pod._replace(guard=None, lost=lost, main=0, tree=0, stopping=False))
        return pod._replace(to_guard=(), completed=completed)

    def _restarted(self, pod: Pod) -> Pod:
        return self.first(pod.epoch, pod.deprecated)._replace(faults=pod.faults)

    def _agent_gone(self, pod: Pod) -> Pod:
        pod = self._unlinked(pod._replace(agent=None, lost=0))
        return pod._replace(worker=self._new_worker(), to_agent=(), news=(), due=False, patch="", other="", hung=False)

    def _new_worker(self) -> Any:
        return LinkedWorkerState(stays=self._stays, awaited=int(self._has_entrypoint))


def _faulty(pod: Pod) -> Pod:
    return pod._replace(faults=pod.faults + 1)


def explore_process_pod() -> Result:
    """Visit every state of one Pod of depth `process`, nearest first; stop at the first that breaks a rule."""
    # What happens in a third epoch has happened in the second.
    return _explore("one guarded Pod, depth process", stays=True, epochs_max=2)


def explore_containers_pod() -> Result:
    """Visit every state of one Pod of depth `containers`."""
    # No process outlives an epoch.
    return _explore("one guarded Pod, depth containers", stays=False, epochs_max=1)


def explore_entrypoint_pod() -> Result:
    """Visit every state of one Pod of depth `process` whose guard may not come."""
    return _explore("one Pod behind an ENTRYPOINT, depth process", stays=True, epochs_max=2, has_entrypoint=True)


def _explore(name: str, *, stays: bool, epochs_max: int, has_entrypoint: bool = False) -> Result:
    return search(
        name,
        GuardedPodWorld(stays=stays, has_entrypoint=has_entrypoint),
        is_last=lambda pod: pod.epoch > epochs_max,
        may_be=lambda pod: pod.faults <= FAULTS_MAX,
    )
