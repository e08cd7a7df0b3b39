"""One slot of the world: its Pods, their containers, agents and PATCHes in flight, and all their moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from common.epoch.errors import InvariantError
from common.record import replace
from tests.model.code import Code
from tests.model.rules import INVARIANT, S2, S3, Version

KINDS: Final = frozenset({"agent", "worker", "replace", "success", "patch", "controller", "handover", "write"})
ASSUMPTIONS: Final = frozenset(
    {
        "conflict",  # a status write with an old resourceVersion fails
        "late patch",  # a PATCH of an agent that is gone is stored before its Pod starts again, or never
        "previous",  # kubelet passes the current annotation
        "order",  # a controller sees the events of one slot in their order
        "uid",  # a Job is deleted with its UID as precondition
    }
)


@dataclass(frozen=True, slots=True)
class Config:
    """What may happen in one exploration.

    Args:
        slots: N.
        faults: how many faults one run may hold.
        kinds: the faults allowed, of KINDS.
        stale: how many versions of the status, the current one included, a watch cache may answer with.
        overlap: a replacement Pod may come while the old one is LEAVING.
        early: kubelet reports the worker's state, so that the controller may detect a death early.
        old_watches: an old leader goes on seeing Pods, with a lag of its own.
        supervisor: the agent is the worker's parent: it restarts itself, and remembers what it announced.
        admission: the API server refuses an epoch annotation that is lower than the one stored.
        ghosts: how many of the slots a scale-down has just removed; the group starts at work in epoch 1 then.
        restarts_max: maxRestarts.
        dropped: assumptions of ASSUMPTIONS that do not hold; for planted bugs.
    """

    slots: int
    faults: int
    kinds: frozenset[str]
    stale: int = 3
    overlap: bool = False
    early: bool = False
    old_watches: bool = False
    supervisor: bool = False
    admission: bool = False
    ghosts: int = 0
    restarts_max: int = 99
    dropped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        assert self.kinds <= KINDS, f"expected faults of {sorted(KINDS)}, saw {sorted(self.kinds)}"
        assert self.dropped <= ASSUMPTIONS, f"expected {sorted(ASSUMPTIONS)}, saw {sorted(self.dropped)}"

    def __str__(self) -> str:
        """Return the line that names a configuration in the report."""
        kinds = "all" if self.kinds == KINDS else ",".join(sorted(self.kinds))
        options = [
            name for name in ("overlap", "early", "old_watches", "supervisor", "admission") if getattr(self, name)
        ]
        options += [f"without: {assumption}" for assumption in sorted(self.dropped)]
        options += [f"ghosts={self.ghosts}"] if self.ghosts else []
        limit = [f"maxRestarts={self.restarts_max}"] if self.restarts_max < 99 else []
        return " ".join([f"N={self.slots} faults={self.faults} {kinds}", *options, *limit])


NONE, RUNNING, FAILED, SUCCEEDED = "", "running", "failed", "succeeded"
LIVE, LEAVING, COMPLETE = "live", "leaving", "complete"
Worker = tuple[int, str]  # epoch of this run of the container, state
NO_WORKER: Worker = (0, NONE)


class Pod(NamedTuple):
    """One Pod: what the API server holds and what runs."""

    uid: str
    annotation: int = 0  # as stored; 0 is absent
    life: str = LIVE
    agent: Any = None  # AgentState; None: the process is gone and kubelet has not started the next one
    request: int = 0  # the epoch of a PATCH that is on the wire
    reply: int = 0  # the epoch of a PATCH that was stored and is not answered yet
    orphan: int = 0  # the epoch of a PATCH on the wire that nobody waits for
    worker: Worker = NO_WORKER
    reported: Worker = NO_WORKER  # as kubelet last reported it
    asked: bool = False  # this process asked for a consistent view
    started: Version | None = None  # the status when this process started; None once it no longer matters
    floor: int = 0  # with overlap: the newest epoch a worker of this slot had run when this process started
    rule: str = ""  # the rule that this Pod just broke


class SlotState(NamedTuple):
    """One slot: the Pod that counts, the one that is on its way out, and what happened here so far."""

    number: int
    live: Pod | None
    leaving: Pod | None = None
    generation: int = 0
    announced: int = 0  # the highest epoch ever stored by a Pod of this slot
    ran: int = 0  # the newest epoch a worker of this slot ran


Move = tuple[str, SlotState, str, str]  # text, next state, the kind of fault or "", the rule broken or ""


class SlotMoves:
    """Knows every move of a slot, given the recent versions of the status."""

    def __init__(self, config: Config, code: Code) -> None:
        self.config = config
        self.agent = code.agent

    def first(self, index: int) -> SlotState:
        """Return a slot whose Pod has just started."""
        return SlotState(index, self._new_pod(index, 0, (0, 0), 0))

    def at_work(self, index: int) -> SlotState:
        """Return a slot whose worker runs in epoch 1."""
        agent = self.agent
        state = agent.AgentState(phase=agent.Phase.LIFTED, epoch=1, view=agent.View(1, 0))
        pod = Pod(
            f"{index}.0",
            annotation=1,
            agent=state,
            worker=(1, RUNNING),
            floor=1 if self.config.overlap else 0,
        )
        return SlotState(index, pod, announced=1, ran=1)

    def moves(self, slot: SlotState, versions: tuple[Version, ...]) -> Iterator[Move]:
        """Yield every move; `versions` are what a cache may still answer with, the current one last."""
        for name in ("live", "leaving"):
            pod: Pod | None = getattr(slot, name)
            if pod is None:
                continue
            for text, moved, kind in self._pod_moves(slot, pod, versions):
                if moved != pod:
                    yield (
                        f"pod {pod.uid}: {text}",
                        _settle(slot, name, moved._replace(rule="")),
                        kind,
                        moved.rule,
                    )
        yield from self._replacements(slot, versions[-1])

    def _replacements(self, slot: SlotState, now: Version) -> Iterator[Move]:
        live, leaving = slot.live, slot.leaving
        if leaving is not None:
            yield f"pod {leaving.uid}: is gone", slot._replace(leaving=None), "", ""
        expected = slot.number < self.config.slots - self.config.ghosts
        if live is not None and leaving is None and not expected:
            gone = live._replace(life=LEAVING)
            yield f"pod {live.uid}: is deleted with its Job", slot._replace(live=None, leaving=gone), "", ""
        elif live is not None and live.life == LIVE and leaving is None:
            gone = live._replace(life=LEAVING)
            yield f"pod {live.uid}: is evicted", slot._replace(live=None, leaving=gone), "replace", ""
        if live is None and expected and (leaving is None or self.config.overlap):
            pod = self._new_pod(slot.number, slot.generation + 1, now, slot.ran)
            text = f"pod {pod.uid}: replaces its predecessor"
            yield text, slot._replace(live=pod, generation=slot.generation + 1), "", ""

    def _new_pod(self, index: int, generation: int, now: Version, ran: int) -> Pod:
        floor = ran if self.config.overlap else 0
        return Pod(f"{index}.{generation}", agent=self.agent.AgentState(), started=now, floor=floor)

    def _pod_moves(self, slot: SlotState, pod: Pod, versions: tuple[Version, ...]) -> Iterator[tuple[str, Pod, str]]:
        if pod.orphan:
            refused = self.config.admission and pod.orphan < pod.annotation
            annotation = pod.annotation if refused else pod.orphan
            text = f"a late PATCH {pod.orphan} is {'refused' if refused else 'stored'}"
            yield text, pod._replace(annotation=annotation, orphan=0), ""
        if pod.life == COMPLETE:
            return
        if pod.agent is not None:
            yield from self._agent_moves(slot, pod, versions)
        if self.config.supervisor and pod.agent is not None:
            if pod.worker[1] == FAILED:
                reborn = self._restarted(slot, pod, versions[-1], pod.agent.epoch)
                yield "the supervisor sees its worker dead and starts anew", reborn, ""
        elif pod.life == LIVE and (pod.agent is None or pod.worker[1] == FAILED):
            dropped = "previous" in self.config.dropped
            reborn = self._restarted(slot, pod, versions[-1], pod.annotation - dropped)
            yield "kubelet removes all containers and starts them", reborn, ""
        yield from self._worker_moves(pod)

    def _restarted(self, slot: SlotState, pod: Pod, now: Version, previous: int) -> Pod:
        dropped = self.config.dropped
        return pod._replace(
            agent=self.agent.AgentState(previous=previous if previous > 0 else None),
            request=0,
            reply=0,
            orphan=(pod.request or pod.orphan) if "late patch" in dropped else 0,
            worker=NO_WORKER,
            asked=False,
            started=now,
            floor=slot.ran if self.config.overlap else 0,
        )

    def _worker_moves(self, pod: Pod) -> Iterator[tuple[str, Pod, str]]:
        epoch, state = pod.worker
        if state == RUNNING and pod.life == LIVE:
            yield f"the worker of epoch {epoch} dies", pod._replace(worker=(epoch, FAILED)), "worker"
            yield f"the worker of epoch {epoch} completes", pod._replace(worker=(epoch, SUCCEEDED)), "success"
        if state == SUCCEEDED and pod.life == LIVE and pod.agent is not None:
            yield "kubelet reports the Pod Succeeded", _without_agent(pod)._replace(life=COMPLETE), ""
        if self.config.early and pod.reported != pod.worker:
            text = f"kubelet reports the worker of epoch {epoch} {state}" if epoch else "kubelet reports no worker"
            yield text, pod._replace(reported=pod.worker), ""

    def _agent_moves(self, slot: SlotState, pod: Pod, versions: tuple[Version, ...]) -> Iterator[tuple[str, Pod, str]]:
        agent, now = self.agent, versions[-1]
        for version in versions:
            text = f"sees S={version[0]} D={version[1]}"
            yield self._stepped(slot, pod, agent.View(*version), now, text)
            if pod.asked and pod.started is not None and version >= pod.started:
                yield self._stepped(slot, pod, agent.View(*version, consistent=True), now, f"{text} consistently")
        if epoch := pod.request:
            yield f"PATCH {epoch} is stored", pod._replace(annotation=epoch, request=0, reply=epoch), ""
            refused, unknown = pod._replace(request=0), pod._replace(request=0, orphan=epoch)
            event = agent.NotAccepted(epoch)
            yield self._stepped(slot, refused, event, now, f"PATCH {epoch} is refused", "patch")
            yield self._stepped(slot, unknown, event, now, f"PATCH {epoch} times out on the wire", "patch")
        if epoch := pod.reply:
            answered = pod._replace(reply=0)
            yield self._stepped(slot, answered, agent.Accepted(epoch), now, f"PATCH {epoch} is answered")
            text = f"the answer to PATCH {epoch} is lost"
            yield self._stepped(slot, answered, agent.NotAccepted(epoch), now, text, "patch")
        yield "the agent dies", _without_agent(pod), "agent"

    def _stepped(
        self, slot: SlotState, pod: Pod, event: Any, now: Version, text: str, kind: str = ""
    ) -> tuple[str, Pod, str]:
        """Step the production machine and perform what it asks for."""
        agent = self.agent
        try:
            state, actions = agent.step(pod.agent, event)
        except InvariantError:
            return text, pod._replace(agent=None, rule=INVARIANT), kind
        if state.phase not in (agent.Phase.STARTING, agent.Phase.CONFIRMING):
            # Nothing reads `consistent` once the epoch is chosen; without it, equal states are equal.
            state = replace(state, view=replace(state.view, consistent=False))
            pod = pod._replace(asked=False, started=None)
        pod = pod._replace(agent=state)
        for action in actions:
            text += f" -> {type(action).__name__} {getattr(action, 'epoch', '')}".rstrip()
            match type(action).__name__:
                case "TakeConsistentView":
                    pod = pod._replace(asked=True)
                case "Announce":
                    pod = pod._replace(request=action.epoch, orphan=pod.request or pod.orphan)
                case "LiftBarrier":
                    pod = self._lifted(slot, pod, action.epoch, now)
                case "RestartInPlace" if self.config.supervisor:
                    pod = self._restarted(slot, pod, now, action.epoch)
                case "RestartInPlace":
                    pod = _without_agent(pod)
        return text, pod, kind

    def _lifted(self, slot: SlotState, pod: Pod, epoch: int, now: Version) -> Pod:
        """Start the worker at once: kubelet does so after the probe, and the earliest is the hardest."""
        last = pod.floor if self.config.overlap else slot.ran
        rule = S2 if epoch <= last or pod.worker != NO_WORKER else S3 if epoch > now[0] else ""
        return pod._replace(worker=(epoch, RUNNING), rule=rule)


def _without_agent(pod: Pod) -> Pod:
    """End the agent's process: what it had on the wire may still be stored."""
    return pod._replace(agent=None, orphan=pod.request or pod.orphan, request=0, reply=0, asked=False, started=None)


def _settle(slot: SlotState, name: str, pod: Pod) -> SlotState:
    """Put a Pod back into its slot and keep the slot's history."""
    slot = slot._replace(live=pod) if name == "live" else slot._replace(leaving=pod)
    return slot._replace(announced=max(slot.announced, pod.annotation), ran=max(slot.ran, pod.worker[0]))


def running_epochs(slot: SlotState) -> int:
    """Return the epochs whose workers run in this slot, as a bit mask."""
    mask = 0
    for pod in (slot.live, slot.leaving):
        if pod is not None and pod.worker[1] == RUNNING:
            mask |= 1 << pod.worker[0]
    return mask
