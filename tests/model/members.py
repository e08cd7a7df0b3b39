"""
A group with spares: three slots, of which some run (`common.protocol.members`).

The agents' machine, the ledger and the texts on the wire are production's. Here a restart of a Pod's containers, of
which `tests.model.world` explores every part, is one move: the worker ends, and a new process of the agent begins.

* A controller sees all Pod events in one order, with a lag of at most `lag` events; a new one lists everything. With
  `relist` it misses what happened in between. An old leader goes on writing, from Pod caches that never change again.
* A Pod that is deleted LEAVES, then its containers end. One that is deleted by force is GONE at once: nobody says when
  its containers end. With `cut` its node is cut off: it is LEAVING, and nobody says when it ends. Its replacement may
  come at once. A GONE Pod announces nothing, because the server knows it no more; it sees views, and may lift.
* A promise (a lease): once D >= S is stored, workers of such Pods end, and start no more, before the controller trusts
  their slots.
* `silent` slots get no new Pod that starts, `absent` ones have none at first. The Pod of an `upstream` slot has an
  agent that reads no members.
* A person may take the members out of the status (`stripped`), or lose the status (`lost`).
* Versions are numbered anew in every state: only their order counts.

Not modelled: an old leader whose caches move on, a PATCH that outlives its agent (`tests.model.world` has both), an
announcement of a Pod that LEAVES, lease timing (`tests.model.promises`), scopes.

Every fault costs one of `faults`. That a barrier waits no longer for missing slots costs nothing and may come at any
time; that a group grows is a fault, because it is a restart without need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import AgentPhase, AgentState, View
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import members_of
from tests.model.explore import Result, explore_world
from tests.model.member_ledgers import MemberLedgers, compared, newest, placed, renumbered
from tests.model.member_parts import (
    COMPLETE,
    ENDED,
    GONE,
    LIVE,
    NO_WORKER,
    PATIENT,
    Event,
    GroupState,
    MemberPod,
    MembersConfig,
    Stored,
    led,
    said,
    stored_with,
    with_pod,
    without_pod,
)
from tests.model.member_pods import PodMove, PodMoves
from tests.model.memo import One, memo, one
from tests.model.moves import Explored, Move
from tests.model.rules import M1, M2, M3, S1, S4, S6, S8


class MembersWorld(PodMoves, Explored[GroupState]):
    """Knows every move."""

    def __init__(self, config: MembersConfig) -> None:
        self.config = config
        self.ledgers = self._make_ledgers()

    def _make_ledgers(self) -> MemberLedgers:
        return MemberLedgers(self.config)

    def initial(self) -> GroupState:
        """Return the first ranks at work in epoch 1 (or nobody yet), new Pods in the other slots, and a controller."""
        config, slots = self.config, range(self.config.slots)
        pods = [self._new_pod(slot, 0) for slot in slots if slot not in config.absent]
        stored, counted = Stored(), tuple[str, ...]()
        if not config.is_first:
            members = self._first_members()
            stored = stored_with(1, 0, members_of(1, members, 1, pods=config.pods))
            for rank, slot in enumerate(config.numbers(members)):
                agent = AgentState(phase=AgentPhase.LIFTED, epoch=1, view=View(1, 0), slot=config.unit(slot))
                at = next(at for at, pod in enumerate(pods) if pod.slot == slot)
                pods[at] = pods[at]._replace(machine=one(agent), epoch=1, memory=1, worker=(1, rank + 1))
                counted = (*counted, pods[at].uid)
        ledger = MemberLedger(self.ledgers.shape, *stored[:2], sizes=config.sizes, members=stored.members)
        for pod in pods:
            ledger.observe(self._shown_pod(pod, 1))
        none, started = (0,) * len(slots), frozenset(pod.worker for pod in pods if pod.worker != NO_WORKER)
        leader = self.ledgers.intern(ledger)
        return GroupState(
            (stored,), tuple(pods), (), leader, -1, config.faults, counted, started, none, generations=none
        )

    def broken(self, state: GroupState) -> str:
        """Name the rule that a state itself breaks, or return ""."""
        return S1 if len({pod.worker[0] for pod in state.pods if pod.worker != NO_WORKER}) > 1 else ""

    def is_good(self, state: GroupState) -> bool:
        """Say whether every rank of S is at work, or completed; or the JobSet failed."""
        synced, deprecated, members = *state.versions[-1][:2], state.versions[-1].members
        if state.failed:
            return True
        if synced <= deprecated or members is None:
            return False
        ran = {pod.worker for pod in state.pods if pod.life == LIVE}
        done = {pod.slot for pod in state.pods if pod.life == COMPLETE}
        slots = self.config.numbers(members.slots())
        return all((synced, rank + 1) in ran or slot in done for rank, slot in enumerate(slots))

    def moves(self, state: GroupState) -> Iterator[Move[GroupState]]:
        """Yield every move of a state."""
        for text, after, kind, rule in () if state.failed else self._all_moves(state):
            if kind in ("", "free"):
                yield Move(text, self._present(after), bool(kind), rule)
            elif self._may(state, kind):
                yield Move(text, self._present(after._replace(left=after.left - 1)), True, rule)

    def _may(self, state: GroupState, kind: str) -> bool:
        """Say whether a fault may happen now."""
        return state.left > 0 and kind in self.config.kinds

    def _all_moves(self, state: GroupState) -> Iterator[PodMove]:
        for at, pod in enumerate(state.pods):
            for text, after, kind in self._moves_of(state, at, pod):
                yield f"pod {pod.uid}: {text}", after, kind, ""
            for text, moved in self._sights(pod, state.versions):
                rule, after = self._start(state, pod, moved)
                yield f"pod {pod.uid}: {text}", with_pod(after, at, moved), "", rule
            if pod.request and pod.life == LIVE and len(state.events) < self.config.lag:
                yield from self._patches(state, at, pod)
        yield from self._new_pods(state)
        yield from self._controller_moves(state)

    # Controllers.

    def _controller_moves(self, state: GroupState) -> Iterator[PodMove]:
        if state.events:
            what, seen = state.events[0]
            after = state._replace(leader=self.ledgers.after(state.leader, what, seen), events=state.events[1:])
            yield f"controller: sees {what} {seen.value.uid if isinstance(seen, One) else seen}", after, "", ""
        yield from self._moves_of_controller(state, "leader")
        if state.old >= 0:
            yield from self._moves_of_controller(state, "old")
            yield "old: stops", state._replace(old=-1), "", ""
        yield from self._changes_of_leader(state)
        synced, deprecated, members = *state.versions[-1][:2], state.versions[-1].members
        if members is not None and self._may(state, "stripped"):
            marks = tuple(max(mark, synced) for mark in state.marks)
            after = self._stored(state, Stored(synced, deprecated), marks)
            yield "the members are taken out of the status", after, "stripped", ""
        if synced and self._may(state, "lost"):
            yield "the status is lost", state._replace(versions=(Stored(),)), "lost", ""

    def _changes_of_leader(self, state: GroupState) -> Iterator[PodMove]:
        version = newest(self.ledgers, state) + 1
        if self._may(state, "controller") or self._may(state, "handover"):
            ledger = self.ledgers.begun(state.versions[-1], version)
            begun = state._replace(leader=self._listed(ledger, state), events=())
            yield "controller: dies; the next one lists everything", begun, "controller", ""
            if state.old < 0:
                yield "controller: loses its lease without noticing", begun._replace(old=state.leader), "handover", ""
        if self._may(state, "relist"):
            ledger = self.ledgers.thaw(state.leader)
            for uid in sorted(set(ledger._records) - {pod.uid for pod in state.pods if pod.life != GONE}):
                ledger.vanish(uid)
            number = self._listed(ledger, state, version)
            yield "controller: lists again after a gap", state._replace(leader=number, events=()), "relist", ""

    def _moves_of_controller(self, state: GroupState, name: str) -> Iterator[PodMove]:
        number, now = getattr(state, name), state.versions[-1]
        learned = self.ledgers.after(number, "learn", now)
        if learned != number:
            yield f"{name}: sees {said(now)}", led(state, name, learned), "", ""
            return
        known = self.ledgers.known(number, state.exempt)
        for waited, decision, want, uids in known.decisions:
            if decision.exceeded:
                rule = S8 if decision.restarts <= self.config.restarts_max else ""
                yield f"{name}: fails the JobSet", state._replace(failed=True), "", rule
            elif want != now:
                yield from self._write(state, name, want, uids, grows=want.synced > known.synced, waited=waited)
            elif decision.recreate and len(state.events) < self.config.lag:
                for at, pod in enumerate(state.pods):
                    if pod.life == COMPLETE:
                        ended = without_pod(state, at)._replace(events=(*state.events, (ENDED, pod.uid)))
                        yield f"{name}: recreates the Job of pod {pod.uid}", ended, "", ""
        is_over = now.deprecated >= now.synced
        for slot in known.doubted if is_over else ():
            gone = [pod for pod in state.pods if self.config.slot(pod.slot) == slot and pod.life == GONE]
            after = self._fenced(state, gone)
            yield f"{name}: trusts slot {slot}", led(after, name, self.ledgers.after(number, "trust", slot)), "", ""
        for uid in known.leaving if is_over else ():
            after = self._fenced(state, [pod for pod in state.pods if pod.uid == uid])
            if any(pod.uid == uid and pod.cut for pod in state.pods):
                fenced = self.ledgers.after(number, "fence", uid)
                yield f"{name}: fences pod {uid}", led(after, name, fenced), "", ""
        if known.grown:
            grown = self._stored(state, now._replace(deprecated=now.synced), state.marks)
            yield f"{name}: ends epoch {now.synced} so that the group grows", self._exempt(grown), "grow", ""

    def _fenced(self, state: GroupState, pods: list[MemberPod]) -> GroupState:
        """End the workers of these Pods that have ended by now, as was promised; nor do such workers start later."""
        deprecated = state.versions[-1].deprecated
        for pod in pods:
            if pod.agent is not None and 0 < pod.agent.epoch <= deprecated:
                ended = pod._replace(machine=None, worker=NO_WORKER, request=0)
                state = with_pod(state, state.pods.index(pod), ended)
        return state

    def _write(
        self, state: GroupState, name: str, want: Stored, uids: tuple[str, ...], *, grows: bool, waited: bool
    ) -> Iterator[PodMove]:
        """Write the status; the writer learns it from the answer, or later when that is lost."""
        after = self._stored(state, want, state.marks)
        if grows:  # else a status that was lost is written again
            after = after._replace(counted=uids, started=frozenset())
            after = self._exempt(after) if want.synced == want.deprecated else after
        text = f"{name}: writes {said(want)}{', tired of waiting' if waited else ''}"
        rule = self._broken_by(state, want) or (M1 if grows and "" in uids else "")  # a place has no Pod
        yield text, led(after, name, self.ledgers.after(getattr(state, name), "learn", want)), "", rule
        yield f"{text}, the answer is lost", after, "write", rule
        if grows and self._may(state, "torn"):
            torn = want._replace(listed=state.versions[-1].listed)
            yield f"{text}, in two writes", after._replace(versions=(*after.versions[:-1], torn, want)), "torn", rule

    def _broken_by(self, state: GroupState, want: Stored) -> str:
        """Name the rule that a write breaks, or return ""."""
        now, sizes = state.versions[-1], self.config.sizes
        if want.synced < now.synced or not now.deprecated <= want.deprecated <= want.synced:
            return S4
        members = self.config.numbers(range(self.config.units) if now.members is None else now.members.slots())
        has_ended = now.synced > now.deprecated and (want.synced > now.synced or want.deprecated >= now.synced)
        if has_ended and not any(state.marks[slot] >= now.synced for slot in members):
            return M3
        if not want.synced > max(now.synced, want.deprecated):
            return ""
        if want.members is None or want.members.epoch != want.synced:
            return M2
        size, slots = want.members.size, want.members.slots()
        if not sizes.least <= size <= sizes.most or len(set(slots)) < size or max(slots) >= self.config.units:
            return M1
        return S6 if want.synced - 1 - state.exempt > self.config.restarts_max else ""

    def _exempt(self, state: GroupState) -> GroupState:
        return state if self.config.restarts_max == PATIENT else state._replace(exempt=state.exempt + 1)

    def _stored(self, state: GroupState, stored: Stored, marks: tuple[int, ...]) -> GroupState:
        marks = tuple(mark if mark >= stored.synced else 0 for mark in marks)
        return state._replace(versions=(*state.versions, stored)[-self.config.stale :], marks=marks)

    def _listed(self, ledger: MemberLedger, state: GroupState, again: int = 0) -> int:
        for pod in state.pods:
            if pod.life != GONE:
                ledger.observe(self._shown_pod(pod, 0))
        if again:
            ledger.relisted(again)
        return self.ledgers.intern(ledger)

    def _present(self, state: GroupState) -> GroupState:
        """Number the versions anew, and forget the past."""
        order, synced = tuple(sorted(compared(self.ledgers, state))), state.versions[-1].synced
        pods = tuple([self._present_pod(pod, order, synced) for pod in state.pods])
        if order == tuple(range(1, len(order) + 1)):
            return state._replace(pods=pods)
        return state._replace(
            versions=tuple([self._present_version(each, order) for each in state.versions]),
            events=tuple([self._present_event(event, order) for event in state.events]),
            pods=pods,
            leader=self.ledgers.renumbered(state.leader, order),
            old=self.ledgers.renumbered(state.old, order) if state.old >= 0 else -1,
        )

    @memo
    def _present_pod(self, pod: MemberPod, order: tuple[int, ...], synced: int) -> MemberPod:
        """Number the versions that an agent has seen anew, and forget what it ran before S."""
        pod, agent = pod._replace(ran=_not_before(synced, pod.ran), memory=_not_before(synced, pod.memory)), pod.agent
        if agent is None or agent.view is None or not (agent.accepted or agent.view.members is not None):
            return pod
        view = replace(agent.view, members=renumbered(agent.view.members, order))
        return pod._replace(machine=one(replace(agent, accepted=placed(order, agent.accepted), view=view)))

    @memo
    def _present_version(self, stored: Stored, order: tuple[int, ...]) -> Stored:
        return stored_with(stored.synced, stored.deprecated, renumbered(stored.members, order))

    @memo
    def _present_event(self, event: Event, order: tuple[int, ...]) -> Event:
        what, seen = event
        if not isinstance(seen, One):
            return event
        return what, one(changed(seen.value, version=placed(order, seen.value.version)))


def _not_before(synced: int, epoch: int) -> int:
    return epoch if epoch >= synced else 0


def explore_members(config: MembersConfig, states_max: int = 10**9) -> Result:
    """Visit every state of a group with spares."""
    return explore_world(str(config), MembersWorld(config), states_max)
