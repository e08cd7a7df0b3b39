"""The world of a protocol script: Pods and controllers around a toy API server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from inplace.common.protocol import agent as machine
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import Accepted, AgentPhase, AgentState, NotAccepted, StillWaiting, View
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members, Sizes
from inplace.common.protocol.pod import PodState
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, NOTHING, Resume, Saved, local_after
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire.members import Announced, announcement_text, members_text, read_announcement, read_members
from inplace.common.wire.names import (
    MEMBERS_FIELD,
    RAN,
    SYNCED_EPOCH,
    epoch_annotations,
    epoch_of_pod,
    epochs_of_status,
    status_of_epochs,
)

JOB: Final = "workers"
CLEAN_CODE: Final = 88


@dataclass(slots=True)
class ScriptPod:
    """A Pod: its object, its containers and its PATCH in flight."""

    name: str
    uid: str
    slot: int
    annotations: dict[str, str] = field(default_factory=dict)
    life: PodLife = PodLife.LIVE
    agent: AgentState | None = None
    guarded: PodState | None = None  # where guards run the worker; `agent` is then its part of the same state
    on_the_wire: int = 0
    stale: View | None = None  # the status in this Pod's watch cache
    worker: Worker = field(default_factory=Worker)
    reported: Worker = field(default_factory=Worker)
    lagging: bool = False  # kubelet does not report this Pod
    ran: list[int] = field(default_factory=list)  # epochs of its workers; 0 under bypass
    announced: int = 0  # the epoch in its own file, independent of the annotation
    version: int = 0  # of its object
    copies: dict[int, int] = field(default_factory=dict)  # its own steps, and the epoch that made each
    shared: int | None = None
    unfit: int | None = None
    tells: Saved = NOTHING  # with the PATCH on the wire


@dataclass(slots=True)
class Controller:
    """A leader, or a controller that believes to lead."""

    ledger: Ledger
    seen: set[str] = field(default_factory=set)


class ScriptCluster:
    """Holds the world and moves its parts; `ScriptWorld` adds the commands."""

    def __init__(self) -> None:
        self.pods: dict[str, ScriptPod] = {}
        self.status: dict[str, Any] = {}
        self.held: set[str] = set()
        self.ran: dict[str, list[int]] = {}  # for each slot, the epochs its workers ran
        self.in_place = True
        self.spent = {"watches": 0, "patches": 0, "status writes": 0}
        self.serial = 0
        self.parallelism = 1
        self.shape = Shape({JOB: (3, 1)})
        self.restarts_max, self.uncounted = 5, 0
        self.sizes: Sizes | None = None  # how many members; None without spares
        self.version = 0  # the newest of an object; counted where there are spares
        self.controllers = {"controller": Controller(Ledger(self.shape))}

    def slot_of(self, number: int) -> Slot:
        """Return a slot by its number among all."""
        return Slot(JOB, *divmod(number, self.parallelism))

    def _pods(self, names: tuple[str, ...]) -> list[ScriptPod]:
        return [self.pods[name] for name in names or sorted(self.pods)]

    def _live(self, names: tuple[str, ...], life: PodLife) -> list[str]:
        for pod in self._pods(names):
            pod.life = life
            if life is not PodLife.LEAVING:
                pod.agent, pod.worker = None, Worker(pod.worker.instance)
                self._report(pod)
        return []

    def _previous(self, pod: ScriptPod) -> int | None:
        try:
            return epoch_of_pod(pod.annotations)
        except RemoteProtocolError:
            return None

    def _view(self, pod: ScriptPod | None, *, consistent: bool = False) -> View:
        if pod is not None and pod.stale is not None:
            return pod.stale
        synced, deprecated = epochs_of_status(self.status)
        lists = (self.status.get(SYNCED_EPOCH) or 0) >= synced
        return View(synced, deprecated, self.in_place, consistent, self._members(), lists)

    def _members(self) -> Members | None:
        return read_members(self.status.get(MEMBERS_FIELD))

    def _changed(self, pod: ScriptPod) -> None:
        self.version += 1
        pod.version = self.version

    def _new_ledger(self) -> Ledger:
        """Return the ledger of a controller that begins with a consistent list."""
        epochs = epochs_of_status(self.status)
        if self.sizes is None:
            return Ledger(self.shape, *epochs, self._members())
        if self.pods:
            self.version += 1  # of the list
        since = self.version if self.pods else 0
        return MemberLedger(self.shape, *epochs, sizes=self.sizes, members=self._members(), since=since)

    def _learn(self, ledger: Ledger) -> None:
        ledger.learn(*epochs_of_status(self.status), self._members())

    def _boot(self, pod: ScriptPod, previous: int | None) -> list[str]:
        """Start the agent; like the shell, it reads consistently at once when `previous` is unknown."""
        slot = self.shape.unit_of(self.slot_of(pod.slot)) if self.sizes is not None else None
        pod.agent = AgentState(previous, reached=max(0, *pod.ran, pod.announced - 1), slot=slot)
        if pod.guarded is not None:
            pod.guarded = PodState(pod.agent, restart_code=pod.guarded.restart_code, clean_code=CLEAN_CODE)
        self.spent["watches"] += 1
        return self._step(pod, self._view(pod, consistent=previous is None))

    def _step(self, pod: ScriptPod, event: pod_machine.Event) -> list[str]:
        """Step the machine; perform its actions in order."""
        assert pod.agent is not None, f"pod {pod.name} has no agent"
        actions: tuple[machine.Action | pod_machine.Action, ...]
        if pod.guarded is not None:
            pod.guarded, actions = pod_machine.step(pod.guarded, event)
            pod.agent = pod.guarded.agent
        else:
            assert isinstance(event, machine.View | Accepted | NotAccepted | StillWaiting)
            pod.agent, actions = machine.step(pod.agent, event)
        lines = [f"pod {pod.name}: {_shown(action)}" for action in actions] or [f"pod {pod.name}: {_idle(pod)}"]
        for action in actions:
            lines += self._perform(pod, action)
        return lines

    def _perform(self, pod: ScriptPod, action: machine.Action | pod_machine.Action) -> list[str]:
        match action:
            case machine.TakeConsistentView():
                self.spent["watches"] += 1
            case machine.Announce(epoch, resume):
                self.spent["patches"] += 1
                pod.on_the_wire = pod.announced = epoch
                pod.tells = _told_of(pod, epoch, resume)
                if pod.name not in self.held:
                    return self._answer(pod, stored=True, answered=True)
            case machine.LiftBarrier() | pod_machine.StartWorker():
                rank = self._rank_of(pod)
                pod.ran.append(action.epoch or 0)
                self.ran.setdefault(str(pod.slot), []).append(action.epoch or 0)
                pod.worker = Worker(f"{pod.uid}/{len(pod.ran)}", running=True)
                self._report(pod)
                said = [] if rank is None else [f"pod {pod.name}: runs as rank {rank}"]
                resume = action.resume
                return said if resume is None else [*said, f"pod {pod.name}: from {resume.kind} step {resume.step}"]
            case machine.RestartInPlace() | machine.GiveUp() | pod_machine.Leave():
                pod.agent = None
        return []

    def _answer(self, pod: ScriptPod, *, stored: bool, answered: bool) -> list[str]:
        """Settle the PATCH on the wire. Nothing is printed while the machine only waits for the next view."""
        epoch, pod.on_the_wire = pod.on_the_wire, 0
        if stored:
            pod.annotations = epoch_annotations(epoch)
            if self.sizes is not None or pod.tells != NOTHING:
                pod.annotations[RAN] = announcement_text(epoch, Announced(max((0, *pod.ran)), pod.tells))
            self._changed(pod)
        if pod.agent is None:
            return []
        accepted = Accepted(epoch, pod.version, pod.tells != NOTHING)
        lines = self._step(pod, accepted if answered else NotAccepted(epoch))
        return [line for line in lines if not line.endswith((": waits", ": runs"))]

    def _report(self, pod: ScriptPod) -> None:
        if not pod.lagging:
            pod.reported = pod.worker

    def _rank_of(self, pod: ScriptPod) -> int | None:
        """Return the rank that a Pod's agent has read for it."""
        view = pod.agent.view if pod.agent is not None else None
        if self.sizes is None or view is None or view.members is None:
            return None
        return view.members.place_of(*self.slot_of(pod.slot)[1:])

    def _decide(self, controller: Controller, *, waited: bool = False) -> Decision:
        ledger = controller.ledger
        if isinstance(ledger, MemberLedger):
            return ledger.decide(restarts_max=self.restarts_max, uncounted=self.uncounted, waited=waited)
        return ledger.decide(restarts_max=self.restarts_max, uncounted=self.uncounted)

    def _observe(self, controller: Controller, names: tuple[str, ...]) -> list[str]:
        """Feed Pod events to a ledger, as the controller's Pod informer does."""
        lines = []
        controller.ledger.reshape(self.shape)
        present = {pod.uid for pod in self.pods.values()}
        for uid in sorted(controller.seen - present) if names else ():
            if self.sizes is None:
                controller.ledger.forget(uid)
            else:  # these worlds tell a Pod whose end was seen from one that vanished
                controller.ledger.vanish(uid)
            controller.seen.discard(uid)
        for name in sorted(names):
            pod = self.pods[name]
            try:
                epoch = epoch_of_pod(pod.annotations)
            except RemoteProtocolError as error:
                lines.append(f"controller: pod {name}: {error}")
                epoch = None
            slot = self.slot_of(pod.slot)
            told = read_announcement(pod.annotations.get(RAN), epoch)
            epoch = None if told is None and self.sizes is not None else epoch
            saved = None if told is None or told.saved == NOTHING else told.saved
            view = PodView(pod.uid, slot, epoch, pod.life, pod.reported, version=pod.version, saved=saved)
            controller.ledger.observe(view if told is None else replace(view, ran=told.ran))
            controller.seen.add(pod.uid)
        return lines

    def _write(self, controller: Controller, decision: Decision, by: str) -> list[str]:
        """Perform a decision."""
        if decision.exceeded and decision.restarts <= self.restarts_max:
            return [f"{by}: JobSet failed, no epoch is left in int32"]
        if decision.exceeded:
            return [f"{by}: JobSet failed, {decision.restarts} restarts > maxRestarts {self.restarts_max}"]
        synced, deprecated = epochs_of_status(self.status)
        said = []
        if decision.synced > synced:
            said.append(f"synced={decision.synced}")
        if decision.deprecated > deprecated:
            said.append(f"deprecated={decision.deprecated}")
        text = None if decision.members is None else members_text(decision.members)
        if text != self.status.get(MEMBERS_FIELD):
            said.append(f"members={text}")
        if said:
            self.spent["status writes"] += 1
            self.status = dict[str, Any](status_of_epochs(decision.synced, decision.deprecated))
            if text is not None:
                self.status[MEMBERS_FIELD] = text
            self._learn(controller.ledger)
        said += [f"recreate Job {job}" for _, job in sorted(decision.recreate)]
        return [f"{by}: {', '.join(said) or '-'}"]


def _told_of(pod: ScriptPod, epoch: int, resume: Resume | None) -> Saved:
    """Return what a Pod tells; of copies older than the epoch before, it keeps only those."""
    older = tuple(sorted((step for step, made in pod.copies.items() if made != epoch - 1), reverse=True))
    kept = local_after(older, resume)
    pod.copies = {step: made for step, made in pod.copies.items() if made == epoch - 1 or step in kept}
    local = sorted(set(pod.copies) - {pod.unfit}, reverse=True)[:LOCAL_STEPS_MAX]
    return Saved(tuple(local), pod.shared, pod.unfit)


def _shown(action: machine.Action | pod_machine.Action) -> str:
    """Return an action as scripts print it."""
    match action:
        case machine.Announce(epoch):
            return f"Announce {epoch}"
        case machine.LiftBarrier(None):
            return "LiftBarrier (in-place restart is off)"
        case pod_machine.StartWorker(epoch):
            return f"StartWorker {epoch}" if epoch else "StartWorker (in-place restart is off)"
        case pod_machine.StopWorker(verdict, at_once):
            why = verdict.value if verdict is not None else "the Pod ends"
            return f"StopWorker ({why}{', at once' if at_once else ''})"
        case pod_machine.Leave(code):
            return f"Leave {code}"
        case machine.RestartInPlace(epoch, verdict):
            return f"RestartInPlace ({epoch} is {verdict.value})"
        case machine.GiveUp(synced):
            return f"GiveUp (no epoch after {synced})"
        case _:
            return type(action).__name__


def _idle(pod: ScriptPod) -> str:
    """Return the state of a Pod without a new action."""
    if pod.guarded is not None and pod.guarded.life in (
        pod_machine.WorkerLife.STOPPING,
        pod_machine.WorkerLife.LEFTOVERS,
    ):
        return f"worker {pod.guarded.life.value}"
    assert pod.agent is not None
    return "runs" if pod.agent.phase in (AgentPhase.LIFTED, AgentPhase.BYPASSED) else "waits"
