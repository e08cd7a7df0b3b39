"""The moves of the Pods of a group with spares: of their agents, their workers and their announcements."""

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
    TakeConsistentView,
    View,
)
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.resume import NOTHING
from inplace.common.wire.members import Announced, announcement_text, read_announcement
from tests.model.member_ledgers import MemberLedgers, newest
from tests.model.member_parts import (
    COMPLETE,
    ENDED,
    GONE,
    LEAVING,
    LIVE,
    LIVES,
    NO_WORKER,
    SEEN,
    VANISHED,
    GroupState,
    MemberPod,
    MembersConfig,
    Stored,
    said,
    with_pod,
    without_pod,
)
from tests.model.memo import One, memo, one
from tests.model.rules import INVARIANT, M1, M2, M4, S2

PodMove = tuple[str, GroupState, str, str]  # text, next state, the kind of fault or "", the rule broken or ""


class PodMoves:
    """Knows every move of a Pod."""

    config: MembersConfig
    ledgers: MemberLedgers

    def _new_pod(self, slot: int, generation: int) -> MemberPod:
        unit = self.config.unit(slot)
        is_silent = slot in self.config.silent and (generation > 0 or unit not in self._first_members())
        agent = None if is_silent else AgentState(slot=None if slot in self.config.upstream else unit)
        return MemberPod(f"{slot}.{generation}", slot, machine=None if agent is None else one(agent))

    def _first_members(self) -> list[int]:
        apart = {self.config.unit(slot) for slot in self.config.absent | self.config.upstream}
        return [unit for unit in range(self.config.units) if unit not in apart][: self.config.sizes.most]

    def _new_pods(self, state: GroupState) -> Iterator[PodMove]:
        for slot in range(self.config.slots):
            here = [pod for pod in state.pods if pod.slot == slot and pod.life != GONE and not pod.cut]
            if here or len(state.events) >= self.config.lag:
                continue
            generations = list(state.generations)
            generations[slot] += 1
            pod = self._new_pod(slot, generations[slot])
            pods = tuple(sorted((*state.pods, pod), key=lambda each: each.slot))
            after = state._replace(pods=pods, generations=tuple(generations))
            yield f"pod {pod.uid}: is made", self._happened(after, pod), "", ""

    def _moves_of(self, state: GroupState, at: int, pod: MemberPod) -> Iterator[tuple[str, GroupState, str]]:
        if pod.life == GONE:
            yield "its containers end", without_pod(state, at), "free"
        is_full = len(state.events) >= self.config.lag
        if pod.life == LEAVING and not is_full:
            ended = without_pod(state, at)._replace(events=(*state.events, (ENDED, pod.uid)))
            yield "has ended", ended, "free" if pod.cut else ""
        if state.left == 0:
            return
        if pod.life == LIVE and pod.agent is not None:
            hurt, synced, members = self._hurt(state, pod), state.versions[-1].synced, state.versions[-1].members
            is_member = members is None or members.rank_of(self.config.unit(pod.slot)) is not None
            if 0 < pod.epoch <= synced and not pod.request and not is_member:
                yield "its agent hangs", with_pod(state, at, pod._replace(machine=None, asked=False)), "hang"
            if pod.worker != NO_WORKER:
                yield "its worker dies", with_pod(hurt, at, self._restarted(pod, pod.epoch)), "worker"
            yield "its agent dies", with_pod(hurt, at, self._restarted(pod, pod.epoch)), "agent"
            yield "its agent dies, and forgets", with_pod(hurt, at, self._restarted(pod, 0)), "agent"
        if is_full:
            return
        leaving = pod._replace(life=LEAVING)
        if pod.life == LIVE:
            yield "is deleted", self._hurt(self._happened(with_pod(state, at, leaving), leaving), pod), "delete"
            cut = leaving._replace(cut=True)
            yield "is deleted with its node", self._hurt(self._happened(with_pod(state, at, cut), cut), pod), "cut"
        if pod.life in (LIVE, LEAVING):
            gone = with_pod(state, at, pod._replace(life=GONE, asked=False))
            yield (
                "is deleted by force",
                self._hurt(gone._replace(events=(*gone.events, (VANISHED, pod.uid))), pod),
                "force",
            )
        if pod.life == LIVE and pod.worker != NO_WORKER:
            done = pod._replace(life=COMPLETE, machine=None, worker=NO_WORKER, request=0)
            yield "its worker completes", self._happened(with_pod(state, at, done), done), "success"

    @memo
    def _sights(self, pod: MemberPod, versions: tuple[Stored, ...]) -> tuple[tuple[str, MemberPod], ...]:
        """Return what a Pod does when it sees one of these versions."""
        if pod.agent is None:
            return ()
        found = [self._stepped(pod, self._shown(pod, stored), f"sees {said(stored)}") for stored in versions]
        if pod.asked:
            view = replace(self._shown(pod, versions[-1]), consistent=True)
            found.append(self._stepped(pod, view, f"sees {said(versions[-1])} consistently"))
        return tuple((text, moved) for text, moved in found if moved != pod)

    def _patches(self, state: GroupState, at: int, pod: MemberPod) -> Iterator[PodMove]:
        """Store an announcement; its answer may be lost."""
        epoch, version = pod.request, newest(self.ledgers, state) + 1
        after, stored = state, pod._replace(epoch=epoch, ran=pod.memory, request=0, stored=False, saved=pod.tells)
        if not pod.stored:
            after = self._happened(state, stored)
        text, moved = self._stepped(
            stored, Accepted(epoch, version, stored.saved.value != NOTHING), f"PATCH {epoch} is accepted"
        )
        rule, accepted = self._start(after, pod, moved)
        yield f"pod {pod.uid}: {text}", with_pod(accepted, at, moved), "", rule
        if not pod.stored:
            text, moved = self._stepped(stored, NotAccepted(epoch), f"the answer to PATCH {epoch} is lost")
            moved = moved._replace(stored=moved.request == epoch)
            yield f"pod {pod.uid}: {text}", self._hurt(with_pod(after, at, moved), stored), "patch", ""

    def _shown(self, pod: MemberPod, stored: Stored) -> View:
        if pod.slot in self.config.upstream:  # it reads other fields, which stay at "never"
            return View(stored.synced, stored.deprecated) if self.config.shows_epochs else View(0, 0)
        return View(stored.synced, stored.deprecated, members=stored.members)

    def _stepped(self, pod: MemberPod, event: Any, text: str) -> tuple[str, MemberPod]:
        """Step the machine and perform its actions."""
        assert pod.machine is not None, "an agent that is gone hears nothing"
        machine, actions = self._step(pod.machine, event)
        if machine is None:
            return f"{text} -> InvariantError", pod._replace(machine=None, worker=(0, -1))
        agent = machine.value
        pod = pod._replace(machine=machine, asked=pod.asked and agent.phase is AgentPhase.CONFIRMING)
        for action in actions:
            text += f" -> {type(action).__name__} {getattr(action, 'epoch', '')}".rstrip()
            match action:
                case TakeConsistentView():
                    pod = pod._replace(asked=True)
                case Announce():
                    pod = self._announcing(pod, action)
                case LiftBarrier(int()):
                    pod = self._lifted(pod, agent.view.members if agent.view is not None else None, action)
                case RestartInPlace(epoch):
                    pod = self._restarted(pod, epoch)
        return text, pod if pod.machine is None else pod._replace(machine=self._forgetful(pod.machine))

    @memo
    def _step(self, machine: One[AgentState], event: Any) -> tuple[One[AgentState] | None, tuple[Any, ...]]:
        """Return the machine after an event (None: it raised), and its actions."""
        try:
            state, actions = step_agent(machine.value, event)
        except InvariantError:
            return None, ()
        return one(state), tuple(actions)

    @memo
    def _forgetful(self, machine: One[AgentState]) -> One[AgentState]:
        """Drop what no later step reads, so that equal states are equal."""
        return one(self._forgotten(machine.value))

    def _announcing(self, pod: MemberPod, action: Announce) -> MemberPod:
        return pod._replace(request=action.epoch)

    def _lifted(self, pod: MemberPod, members: Members | None, action: LiftBarrier) -> MemberPod:
        slot, epoch = self.config.slot(pod.slot), action.epoch or 0
        rank = members.place_of(slot.job_index, slot.completion_index) if members is not None else None
        return pod._replace(worker=(epoch, -1 if rank is None else rank + 1), memory=epoch)

    def _restarted(self, pod: MemberPod, previous: int) -> MemberPod:
        """Start all containers of a Pod anew; of one that leaves, nobody does."""
        machine = None
        if pod.life == LIVE and pod.agent is not None:
            reached = max(pod.memory, pod.epoch - 1, 0) if "lost" in self.config.kinds else 0
            machine = one(AgentState(previous=previous or None, slot=pod.agent.slot, reached=reached))
        return pod._replace(machine=machine, request=0, stored=False, asked=False, worker=NO_WORKER)

    def _forgotten(self, agent: AgentState) -> AgentState:
        if agent.view is None or agent.phase in (AgentPhase.STARTING, AgentPhase.CONFIRMING):
            return agent
        synced, deprecated = agent.view.synced, agent.view.deprecated
        is_pending = max(synced, deprecated) < agent.epoch  # then only later views decide
        keeps = agent.phase is AgentPhase.ANNOUNCING and synced == agent.epoch
        view = View(
            0 if is_pending else synced,
            0 if is_pending or deprecated < agent.epoch else deprecated,
            members=agent.view.members if keeps else None,
        )
        accepted = agent.accepted if agent.phase is AgentPhase.WAITING and agent.slot is not None else 0
        return replace(agent, view=view, previous=None, reached=0, accepted=accepted)

    def _start(self, state: GroupState, before: MemberPod, pod: MemberPod) -> tuple[str, GroupState]:
        """Name the rule that a worker's start breaks, and note the start."""
        if pod.worker in (before.worker, NO_WORKER):
            return "", state
        epoch, rank = pod.worker
        if epoch == 0:
            return INVARIANT, state
        rule = S2 if before.worker != NO_WORKER else M1 if pod.worker in state.started else ""
        player = state.counted[rank - 1] if 0 < rank <= len(state.counted) else ""
        if epoch != state.versions[-1].synced or player.partition(".")[0] != str(pod.slot):
            rule = rule or M2
        elif player != pod.uid:
            rule = rule or M4
        return rule, state._replace(started=state.started | {pod.worker})

    def _happened(self, state: GroupState, pod: MemberPod) -> GroupState:
        """Let the leader see a Pod, later."""
        version = newest(self.ledgers, state) + 1
        return state._replace(events=(*state.events, (SEEN, one(self._shown_pod(pod, version)))))

    @memo
    def _shown_pod(self, pod: MemberPod, version: int) -> PodView:
        """Return a Pod as a watch event shows it."""
        text = (
            ""
            if pod.slot in self.config.upstream
            else announcement_text(pod.epoch, Announced(pod.ran, pod.saved.value))
        )
        told = read_announcement(text, pod.epoch) if pod.epoch else None
        epoch = None if told is None else pod.epoch
        saved = None if told is None or told.saved == NOTHING else told.saved
        slot, ran = self.config.slot(pod.slot), told.ran if told is not None else 0
        return PodView(pod.uid, slot, epoch, LIVES[pod.life], version=version, ran=ran, saved=saved)

    def _hurt(self, state: GroupState, pod: MemberPod) -> GroupState:
        marks = list(state.marks)
        marks[pod.slot] = max(marks[pod.slot], pod.epoch)
        return state._replace(marks=tuple(marks))
