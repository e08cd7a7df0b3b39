"""One slot of the world: its Pods, their containers, agents and PATCHes in flight, and all their moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import (
    Accepted,
    AgentPhase,
    AgentState,
    Announce,
    LiftBarrier,
    NotAccepted,
    RestartInPlace,
    StillWaiting,
    TakeConsistentView,
    View,
)
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.errors import InvariantError
from tests.model.leases import LeaseMoves, Over
from tests.model.memo import One, memo, one
from tests.model.pods import (
    COMPLETE,
    CUT,
    FAILED,
    HEALS,
    LEAVING,
    LIVE,
    NO_WORKER,
    RUNNING,
    SUCCEEDED,
    Config,
    Pod,
    SlotState,
    broken_by_start,
    reached,
    remembering,
    without_agent,
)
from tests.model.rules import INVARIANT, Version
from tests.model.statuses import Statuses
from tests.model.supervisors import SupervisorMoves

Move = tuple[str, SlotState, str, str]  # text, next state, the kind of fault or "", the rule broken or ""


class SlotMoves:
    """Knows every move of a slot, given the recent versions of the status."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._read = Statuses().read
        self._supervised = SupervisorMoves(config) if config.supervisor else None
        self._leases = LeaseMoves(self._supervised.stepped) if self._supervised and config.fence else None

    def is_lifted(self, pod: Pod) -> bool:
        """Say whether the Pod's agent has lifted its barrier."""
        if pod.agent is None:
            return False
        agent = pod.agent if self._supervised is None else pod.agent.agent
        return bool(agent.phase is AgentPhase.LIFTED)

    def first(self, index: int) -> SlotState:
        """Return a slot whose Pod has just started."""
        return SlotState(index, self._new_pod(index, 0, (0, 0, 0), 0))

    def at_work(self, index: int) -> SlotState:
        """Return a slot whose worker runs in epoch 1."""
        floor = 1 if self.config.overlap else 0
        state = AgentState(phase=AgentPhase.LIFTED, epoch=1, view=View(1, 0))
        pod = Pod(f"{index}.0", annotation=1, machine=one(state), worker=(1, RUNNING), floor=floor)
        if self._supervised is not None:
            pod = pod._replace(machine=one(self._supervised.at_work()), container=(1, RUNNING), seen=(0, 1, 0))
        return SlotState(index, pod, announced=1, ran=1)

    def moves(self, slot: SlotState, versions: tuple[Version, ...], over: Over = ()) -> Iterator[Move]:
        """Yield every move.

        Args:
            slot: before it.
            versions: what a cache may still answer with, the current one last.
            over: with a fence, for how long which epochs have been over.
        """
        for name in ("live", "leaving"):
            pod: Pod | None = getattr(slot, name)
            if pod is None:
                continue
            for text, moved, kind in self._moves_of_pod(slot.ran, pod, versions, over):
                if moved != pod:
                    after = moved._replace(rule="") if moved.rule else moved
                    yield f"pod {pod.uid}: {text}", settled(slot, name, after), kind, moved.rule
        yield from self._replacements(slot, versions[-1])

    def _replacements(self, slot: SlotState, now: Version) -> Iterator[Move]:
        live, leaving = slot.live, slot.leaving
        # A slot has one leaving Pod here: where its replacement is cut off, too, the first node ends before the second.
        if leaving is not None and (not leaving.cut or (live is not None and live.cut)):
            yield f"pod {leaving.uid}: is gone", slot._replace(leaving=None), "", ""
        for name in ("live", "leaving") if self.config.fence else ():
            pod = getattr(slot, name)
            if pod is not None:
                text = "is reachable again" if pod.cut else "is cut off with its node"
                kind = HEALS if pod.cut else CUT
                yield f"pod {pod.uid}: {text}", slot._replace(**{name: pod._replace(cut=not pod.cut)}), kind, ""
        expected = slot.number < self.config.slots - self.config.ghosts
        if live is not None and leaving is None and not expected:
            gone = live._replace(life=LEAVING)
            yield f"pod {live.uid}: is deleted with its Job", slot._replace(live=None, leaving=gone), "", ""
        elif live is not None and live.life == LIVE and leaving is None:
            gone = live._replace(life=LEAVING, given_up=live.cut)
            kind = "" if live.cut else "replace"  # Kubernetes gives a node up that it does not hear of
            yield f"pod {live.uid}: is evicted", slot._replace(live=None, leaving=gone), kind, ""
        if live is None and expected and (leaving is None or self.config.overlap):
            pod = self._new_pod(slot.number, slot.generation + 1, now, slot.ran)
            text = f"pod {pod.uid}: replaces its predecessor"
            yield text, slot._replace(live=pod, generation=slot.generation + 1), "", ""

    def _new_pod(self, index: int, generation: int, now: Version, ran: int) -> Pod:
        floor = ran if self.config.overlap else 0
        if self._supervised is None:
            return Pod(f"{index}.{generation}", machine=one(AgentState()), started=now, floor=floor)
        agent, uid = self._supervised.first(), f"{index}.{generation}"
        return Pod(uid, machine=one(agent), started=now, floor=floor, container=(1, RUNNING))

    @memo
    def _moves_of_pod(
        self, ran: int, pod: Pod, versions: tuple[Version, ...], over: Over
    ) -> tuple[tuple[str, Pod, str], ...]:
        return tuple(self._pod_moves(ran, pod, versions, over))

    def _pod_moves(
        self, ran: int, pod: Pod, versions: tuple[Version, ...], over: Over
    ) -> Iterator[tuple[str, Pod, str]]:
        if pod.orphan:
            refused = self.config.admission and pod.orphan < pod.annotation
            annotation = pod.annotation if refused else pod.orphan
            text = f"a late PATCH {pod.orphan} is {'refused' if refused else 'stored'}"
            yield text, pod._replace(annotation=annotation, orphan=0), ""
        if epoch := pod.telling:
            stored = pod._replace(telling=0, failed=epoch)
            yield f"the news of a death in epoch {epoch} is stored", stored, ""
            yield f"the news of a death in epoch {epoch} is lost", pod._replace(telling=0), ""
        if pod.life == COMPLETE:
            return
        if self._supervised is not None:
            yield from self._supervised.moves(ran, pod, versions)
            if self._leases is not None:
                yield from self._leases.moves(ran, pod, versions[-1], over)
            return
        if pod.agent is not None:
            yield from self._agent_moves(ran, pod, versions)
        if pod.life == LIVE and (pod.agent is None or pod.worker[1] == FAILED):
            dropped = "previous" in self.config.dropped
            reborn = self._restarted(ran, pod, versions[-1], pod.annotation - dropped)
            yield "kubelet removes all containers and starts them", reborn, ""
        yield from self._worker_moves(pod)

    def _restarted(self, ran: int, pod: Pod, now: Version, previous: int) -> Pod:
        dropped = self.config.dropped
        return pod._replace(
            machine=one(AgentState(previous=previous if previous > 0 else None, reached=reached(self.config, pod))),
            life_seen=0,
            request=0,
            reply=0,
            orphan=(pod.request or pod.orphan) if "late patch" in dropped else 0,
            worker=NO_WORKER,
            asked=False,
            started=now,
            floor=ran if self.config.overlap else 0,
        )

    def _worker_moves(self, pod: Pod) -> Iterator[tuple[str, Pod, str]]:
        epoch, state = pod.worker
        if state == RUNNING and pod.life == LIVE:
            yield f"the worker of epoch {epoch} dies", pod._replace(worker=(epoch, FAILED)), "worker"
            yield f"the worker of epoch {epoch} completes", pod._replace(worker=(epoch, SUCCEEDED)), "success"
        knows = state == FAILED and pod.agent is not None and pod.agent.epoch == epoch and self.is_lifted(pod)
        if self.config.tells and knows and not pod.telling and pod.failed != epoch:
            yield f"tells that its worker of epoch {epoch} died", pod._replace(telling=epoch), ""
        if state == SUCCEEDED and pod.life == LIVE and pod.agent is not None:
            yield "kubelet reports the Pod Succeeded", without_agent(pod)._replace(life=COMPLETE), ""
        if self.config.early and pod.reported != pod.worker:
            text = f"kubelet reports the worker of epoch {epoch} {state}" if epoch else "kubelet reports no worker"
            yield text, pod._replace(reported=pod.worker), ""

    def _agent_moves(self, ran: int, pod: Pod, versions: tuple[Version, ...]) -> Iterator[tuple[str, Pod, str]]:
        now = versions[-1]
        for version in versions:
            if version[0] < pod.life_seen:
                continue  # a list and its watch go forward; only a new process may begin with a stale cache
            seen = pod._replace(life_seen=version[0])
            epochs = self._read(version)
            text = f"sees S={version[1]} D={version[2]}"
            yield self._stepped(ran, seen, View(*epochs), now, text)
            if pod.asked and pod.started is not None and version >= pod.started:
                yield self._stepped(ran, seen, View(*epochs, consistent=True), now, f"{text} consistently")
        if epoch := pod.request:
            yield f"PATCH {epoch} is stored", pod._replace(annotation=epoch, request=0, reply=epoch), ""
            refused, unknown = pod._replace(request=0), pod._replace(request=0, orphan=epoch)
            event = NotAccepted(epoch)
            yield self._stepped(ran, refused, event, now, f"PATCH {epoch} is refused", "patch")
            yield self._stepped(ran, unknown, event, now, f"PATCH {epoch} times out on the wire", "patch")
        if epoch := pod.reply:
            answered = pod._replace(reply=0)
            yield self._stepped(ran, answered, Accepted(epoch), now, f"PATCH {epoch} is answered")
            text = f"the answer to PATCH {epoch} is lost"
            yield self._stepped(ran, answered, NotAccepted(epoch), now, text, "patch")
        if pod.agent.phase is AgentPhase.WAITING:
            yield self._stepped(ran, pod, StillWaiting(), now, "has waited for long", "remind")
        yield "the agent dies", without_agent(pod), "agent"

    def _stepped(self, ran: int, pod: Pod, event: Any, now: Version, text: str, kind: str = "") -> tuple[str, Pod, str]:
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
            match action:
                case TakeConsistentView():
                    pod = pod._replace(asked=True)
                case Announce(epoch):
                    pod = pod._replace(request=epoch, orphan=pod.request or pod.orphan)
                case LiftBarrier(int(epoch)):
                    pod = self._lifted(ran, pod, epoch, now)
                case RestartInPlace():
                    pod = without_agent(pod)
        return text, pod, kind

    @memo
    def _step(self, machine: One[AgentState], event: Any) -> tuple[One[AgentState] | None, bool, tuple[Any, ...]]:
        """Return the machine after an event (None: it raised), whether its epoch is chosen, and its actions."""
        try:
            state, actions = step_agent(machine.value, event)
        except InvariantError:
            return None, False, ()
        is_chosen = state.phase not in (AgentPhase.STARTING, AgentPhase.CONFIRMING)
        if is_chosen:  # nothing reads `consistent` any more; without it, equal states are equal
            state = replace(state, view=replace(state.view, consistent=False))
        return one(state), is_chosen, tuple(actions)

    def _lifted(self, ran: int, pod: Pod, epoch: int, now: Version) -> Pod:
        """Start the worker at once: kubelet does so after the probe, and the earliest is the hardest."""
        rule = broken_by_start(self.config, ran, pod, epoch, now)
        return remembering(self.config, pod._replace(worker=(epoch, RUNNING), rule=rule))


def settled(slot: SlotState, name: str, pod: Pod) -> SlotState:
    """Put a Pod back into its slot and keep the slot's history."""
    live, leaving = (pod, slot.leaving) if name == "live" else (slot.live, pod)
    announced, ran = max(slot.announced, pod.annotation), max(slot.ran, pod.worker[0])
    return SlotState(slot.number, live, leaving, slot.generation, announced, ran)
