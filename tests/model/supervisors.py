"""
A Pod in supervisor mode, agent and guard in one container: every move of the production agent and of the worker.

What `tests.model.guarded_pods` proves of guard and link is taken for granted: who dies takes the container with it, and
a worker that completes by itself ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import (
    Accepted,
    AgentPhase,
    AgentState,
    Announce,
    NotAccepted,
    StillWaiting,
    TakeConsistentView,
    Verdict,
    View,
)
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.pod import (
    Leave,
    PodState,
    StartWorker,
    StopWorker,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLife,
)
from inplace.common.protocol.pod import step as step_supervisor
from tests.model.memo import One, memo, one
from tests.model.pods import (
    COMPLETE,
    FAILED,
    LEAVING,
    LEFTOVERS,
    LIVE,
    NO_WORKER,
    RUNNING,
    SUCCEEDED,
    Config,
    Pod,
    broken_by_start,
    reached,
    remembering,
    without_agent,
)
from tests.model.rules import INVARIANT, Version
from tests.model.statuses import Statuses

SIGTERM: Final = 15
PodMove = tuple[str, Pod, str]  # text, next Pod, the kind of fault or ""


class SupervisorMoves:
    """Knows every move of a Pod in supervisor mode, given the recent versions of the status."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._read = Statuses().read

    def first(self, previous: int | None = None, reached: int = 0) -> Any:
        """Return the machine of a process that has just started."""
        leased = not self.config.fence
        return PodState(AgentState(previous=previous, reached=reached, leased=leased))

    def at_work(self) -> Any:
        """Return the machine of an agent whose worker runs in epoch 1."""
        lifted = AgentState(phase=AgentPhase.LIFTED, epoch=1, view=View(1, 0))
        return PodState(lifted, WorkerLife.RUNNING)

    def moves(self, ran: int, pod: Pod, versions: tuple[Version, ...]) -> Iterator[PodMove]:
        """Yield every move."""
        if pod.agent is None:
            if pod.life == LIVE:
                yield "kubelet starts the container again", self._restarted(ran, pod, versions[-1]), ""
        else:
            if not pod.cut:
                yield from self._views(ran, pod, versions)
            yield from self._outcomes(ran, pod, versions[-1])
            yield from self._worker(ran, pod, versions[-1])
            if pod.life == LEAVING and pod.agent.code is None and not self.config.fence:
                yield self.stepped(ran, pod, Terminate(SIGTERM), versions[-1], "gets SIGTERM")
            died = without_agent(pod)._replace(container=(pod.container[0], FAILED))
            yield "the supervisor dies", died, "agent"
        if self.config.early and pod.reported != pod.container:
            text = f"kubelet reports container {pod.container[0]} {pod.container[1]}"
            yield text, pod._replace(reported=pod.container), ""

    def _views(self, ran: int, pod: Pod, versions: tuple[Version, ...]) -> Iterator[PodMove]:
        """Deliver the versions that the open watch has not shown yet; a version is repeated only on request."""
        for version in versions:
            text = f"sees S={version[1]} D={version[2]}"
            if version > pod.seen:
                shown = pod._replace(seen=version)
                yield self.stepped(ran, shown, View(*self._read(version)), versions[-1], text)
            if pod.asked and pod.started is not None and version >= pod.started:
                shown = pod._replace(seen=max(pod.seen, version))
                view = View(*self._read(version), consistent=True)
                yield self.stepped(ran, shown, view, versions[-1], f"{text} consistently")

    def _outcomes(self, ran: int, pod: Pod, now: Version) -> Iterator[PodMove]:
        """Settle the PATCH on the wire, or begin another one."""
        if pod.agent.agent.phase is AgentPhase.WAITING:
            yield self.stepped(ran, pod, StillWaiting(), now, "has waited for long", "remind")
        if epoch := pod.request:
            late = self.config.fence and pod.life == LEAVING
            yield f"PATCH {epoch} is stored", pod._replace(annotation=epoch, request=0, reply=epoch, late=late), ""
            refused, unknown = pod._replace(request=0), pod._replace(request=0, orphan=epoch)
            event = NotAccepted(epoch)
            yield self.stepped(ran, refused, event, now, f"PATCH {epoch} is refused", "patch")
            yield self.stepped(ran, unknown, event, now, f"PATCH {epoch} times out on the wire", "patch")
        if (epoch := pod.reply) and not pod.cut:
            answered = pod._replace(reply=0, late=False)
            outcome: Accepted | NotAccepted = Accepted(epoch)
            text = f"PATCH {epoch} is answered"
            if pod.late and "leaving" not in self.config.dropped:
                outcome, text = NotAccepted(epoch), f"{text}: the Pod is being deleted"
            yield self.stepped(ran, answered, outcome, now, text)
            text = f"the answer to PATCH {epoch} is lost"
            yield self.stepped(ran, answered, NotAccepted(epoch), now, text, "patch")

    def _worker(self, ran: int, pod: Pod, now: Version) -> Iterator[PodMove]:
        """End the worker's main process, let the guard notice, and end the leftovers: three moves."""
        epoch, state = pod.worker
        failed, succeeded = pod._replace(worker=(epoch, FAILED)), pod._replace(worker=(epoch, SUCCEEDED))
        match state:
            case "running":
                yield f"the worker of epoch {epoch} dies", failed, "" if pod.told else "worker"
                if not self.config.fence:
                    yield f"the worker of epoch {epoch} exits 0", succeeded, "" if pod.told else "success"
            case "succeeded" if not pod.told:
                life, end = (COMPLETE, SUCCEEDED) if pod.life == LIVE else (pod.life, FAILED)
                over = without_agent(pod)._replace(life=life, container=(pod.container[0], end))
                yield "the guard leaves with the worker that completed", over, ""
            case "failed" | "succeeded":
                left = pod._replace(worker=(epoch, LEFTOVERS))
                yield self.stepped(ran, left, WorkerExited(1), now, "reaps its worker")
            case "leftovers":
                gone = pod._replace(worker=NO_WORKER, told=False, killed=False)
                yield self.stepped(ran, gone, WorkerGone(), now, "has nothing left of its worker")

    def stepped(self, ran: int, pod: Pod, event: Any, now: Version, text: str, kind: str = "") -> tuple[str, Pod, str]:
        """Step the production machine and perform its actions."""
        assert pod.machine is not None, "an agent that is gone hears nothing"
        machine, is_chosen, actions = self._step(pod.machine, event)
        if machine is None:
            return text, pod._replace(machine=None, rule=INVARIANT), kind
        pod = pod._replace(machine=machine)
        if is_chosen:
            pod = pod._replace(asked=False, started=None)
        for action in actions:
            text += f" -> {type(action).__name__} {getattr(action, 'epoch', '')}".rstrip()
            pod = self._performed(ran, pod, action, now)
        return text, pod, kind

    @memo
    def _step(self, machine: One[PodState], event: Any) -> tuple[One[PodState] | None, bool, tuple[Any, ...]]:
        """Return the machine after an event (None: it raised), whether its epoch is chosen, and its actions."""
        try:
            state, actions = step_supervisor(machine.value, event)
        except InvariantError:
            return None, False, ()
        agent = state.agent
        is_chosen = agent.view is not None and agent.phase not in (AgentPhase.STARTING, AgentPhase.CONFIRMING)
        if is_chosen:  # nothing reads `consistent` any more; without it, equal states are equal
            state = replace(state, agent=replace(agent, view=replace(agent.view, consistent=False)))
        return one(state), is_chosen, tuple(actions)

    def _performed(self, ran: int, pod: Pod, action: Any, now: Version) -> Pod:
        match action:
            case TakeConsistentView():
                return pod._replace(asked=True, started=now if pod.started is None else pod.started)
            case Announce(epoch):
                orphan = pod.request or pod.orphan
                if orphan != epoch and "late patch" not in self.config.dropped:
                    orphan = 0
                return pod._replace(request=epoch, reply=0, orphan=orphan)
            case StartWorker(int(epoch)):
                rule = broken_by_start(self.config, ran, pod, epoch, now)
                return remembering(self.config, pod._replace(worker=(epoch, RUNNING), rule=rule))
            case StopWorker(verdict):
                return pod._replace(told=True, killed=pod.killed or verdict is Verdict.FENCED)
            case Leave():
                return without_agent(pod)._replace(container=(pod.container[0], FAILED))
        return pod

    def _restarted(self, ran: int, pod: Pod, now: Version) -> Pod:
        """Start the container again: every process of it was removed before."""
        previous = pod.annotation - ("previous" in self.config.dropped)
        return pod._replace(
            machine=one(self.first(previous if previous > 0 else None, reached(self.config, pod))),
            request=0,
            reply=0,
            orphan=(pod.request or pod.orphan) if "late patch" in self.config.dropped else 0,
            worker=NO_WORKER,
            told=False,
            late=False,
            killed=False,
            container=(pod.container[0] + 1, RUNNING),
            seen=(-1, -1, -1),
            asked=False,
            started=now,
            floor=ran if self.config.overlap else 0,
        )
