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

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from dataclasses import replace as changed
from typing import Any, Final, NamedTuple

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
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members, Sizes, members_of
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.resume import NOTHING, Saved
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire.members import Announced, announcement_text, members_text, read_announcement, read_members
from tests.model.configurations import kinds
from tests.model.explore import Result, explore_world
from tests.model.frozen import freeze, thaw
from tests.model.moves import Explored, Move
from tests.model.rules import INVARIANT, M1, M2, M3, M4, S1, S2, S4, S6, S8

JOB: Final = "workers"
LIVE, LEAVING, GONE, COMPLETE = "live", "leaving", "gone", "complete"
LIVES: Final = {LIVE: PodLife.LIVE, LEAVING: PodLife.LEAVING, COMPLETE: PodLife.SUCCEEDED}
NO_WORKER: Final = (0, 0)
PATIENT: Final = 99  # restarts
SEEN, ENDED, VANISHED = "seen", "ended", "vanished"
KINDS: Final = kinds(
    "agent worker patch delete force cut success hang controller handover relist write torn grow stripped lost"
)


@dataclass(frozen=True, slots=True)
class MembersConfig:
    """The bounds and faults of one exploration.

    Args:
        faults: how many faults one run may hold.
        kinds: of KINDS. A spare that is late may "hang"; a sync is "torn" when S is stored before its members.
        sizes: how many members there may be.
        slots: n.
        lag: how many events a controller may be behind.
        stale: how many versions of the status a watch cache may answer with.
        restarts_max: maxRestarts.
        is_first: nobody has started; else epoch 1 runs.
        is_patient: the barrier waits for full strength for ever.
        absent, silent, upstream: see above.
        shows_epochs: the plain fields, which an upstream agent reads, show S and D; for a planted bug.
    """

    faults: int
    kinds: frozenset[str]
    sizes: Sizes = field(default_factory=lambda: Sizes(2, 2))
    slots: int = 3
    lag: int = 1
    stale: int = 2
    restarts_max: int = PATIENT
    is_first: bool = False
    is_patient: bool = True
    absent: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    upstream: frozenset[int] = frozenset()
    shows_epochs: bool = False

    def __str__(self) -> str:
        """Return the line that names a configuration in the report."""
        assert self.kinds <= KINDS, f"expected faults of {sorted(KINDS)}, saw {sorted(self.kinds)}"
        names = "all" if self.kinds == KINDS else ",".join(sorted(self.kinds))
        size = f"{self.sizes.least}-{self.sizes.most} of {self.slots}"
        named = [(name, getattr(self, name)) for name in ("absent", "silent", "upstream")]
        options = [f"{name}={','.join(map(str, sorted(slots)))}" for name, slots in named if slots]
        options += ["from the first start"] if self.is_first else []
        options += [] if self.restarts_max == PATIENT else [f"maxRestarts={self.restarts_max}"]
        options += [f"lag={self.lag}"] if self.lag > 1 else []
        return " ".join([f"members {size} faults={self.faults} {names}", *options])


class MemberPod(NamedTuple):
    """One Pod: its object, its agent and its worker."""

    uid: str
    slot: int
    life: str = LIVE
    agent: Any = None  # AgentState; None: it never starts, or has ended
    epoch: int = 0  # as announced
    ran: int = 0  # as announced
    memory: int = 0  # the last epoch that it ran, in its own file
    request: int = 0  # the epoch of a PATCH that is not stored
    stored: bool = False  # that PATCH was stored before, and its answer lost
    asked: bool = False  # this process asked for a consistent view
    worker: tuple[int, int] = NO_WORKER  # epoch, rank + 1
    cut: bool = False
    saved: Saved = NOTHING  # as announced
    tells: Saved = NOTHING  # by that PATCH
    files: Any = None  # what its workers saved (`tests.model.resume`)


class Stored(NamedTuple):
    """A version of the status, as it is read."""

    synced: int = 0
    deprecated: int = 0
    members: Members | None = None


class GroupState(NamedTuple):
    """A state of the world.

    Args:
        versions: of the status, the current one last.
        pods: by slot, the newest last; without those of which nothing is left.
        events: that the leader has not seen: what happened, and a PodView or a uid.
        leader, old: numbers of ledgers; old is -1 for none.
        counted: the uid of each rank of S.
        started: (epoch, rank + 1) of the workers that were started, of S.
        marks: for each slot, the highest epoch that a Pod had announced when it was hurt.
        exempt: epochs that are no counted restarts; only with a restarts_max.
    """

    versions: tuple[Stored, ...]
    pods: tuple[MemberPod, ...]
    events: tuple[tuple[str, Any], ...]
    leader: int
    old: int
    left: int
    counted: tuple[str, ...] = ()
    started: frozenset[tuple[int, int]] = frozenset()
    marks: tuple[int, ...] = ()
    exempt: int = 0
    failed: bool = False
    generations: tuple[int, ...] = ()
    lines: Any = None  # of training (`tests.model.resume`)


Frozen = tuple[Any, ...]
OWN: Final = (
    "_playing",
    "_arrived",
    "_spares",
    "_blocking",
    "_doubted",
    "_lost",
    "_back",
    "_done",
    "_gone",
    "_trusted",
)
_OTHERS: Final = ("sizes", "since")


class MemberLedgers:
    """Interns ledgers: a controller in a state is one number."""

    def __init__(self, config: MembersConfig) -> None:
        known = [each.name for each in fields(MemberLedger)][len(fields(Ledger)) :]
        assert sorted(known) == sorted((*OWN, *_OTHERS)), f"expected fields {OWN} and {_OTHERS}, saw {known}"
        self.config = config
        self.shape = Shape({JOB: (1, config.slots)})
        self._frozen: list[Frozen] = []
        self._numbers: dict[Frozen, int] = {}
        self._renumbered: dict[tuple[int, tuple[int, ...]], int] = {}

    def begun(self, stored: Stored, since: int) -> MemberLedger:
        """Return the ledger of a controller that begins."""
        sizes = self.config.sizes
        return MemberLedger(self.shape, *stored[:2], sizes=sizes, members=stored.members, since=since)

    def thaw(self, number: int) -> MemberLedger:
        """Return a ledger that may be changed."""
        body, own, since, seen, members = self._frozen[number]
        base = thaw(self.shape, body)
        ledger = MemberLedger(self.shape, base.synced, base.deprecated, sizes=self.config.sizes)
        for each in fields(base):
            setattr(ledger, each.name, getattr(base, each.name))
        for name, value in zip(OWN, own, strict=True):
            kept = getattr(ledger, name)
            kept.clear()
            kept.update(dict(value) if isinstance(kept, dict) else value)
        ledger.since, ledger._seen, ledger.members = since, seen, members
        return ledger

    def intern(self, ledger: MemberLedger) -> int:
        """Return the number of a ledger."""
        for record in ledger._records.values():
            ran = record.pod.ran if record.pod.ran >= ledger.synced else 0
            version = record.pod.version if record.pod.uid in ledger._ahead else 0  # else nothing reads it again
            if (version, ran) != (record.pod.version, record.pod.ran):
                record.pod = changed(record.pod, version=version, ran=ran)
        parts = [getattr(ledger, name) for name in OWN]
        own = tuple(tuple(sorted(part.items() if isinstance(part, dict) else part)) for part in parts)
        return self._number((freeze(ledger), own, ledger.since, ledger._seen, ledger.members))

    def versions(self, number: int) -> tuple[int, ...]:
        """Return the versions that a ledger compares others with."""
        *_, since, seen, members = self._frozen[number]
        return since, seen, members.seen if members is not None else 0

    def renumbered(self, number: int, order: tuple[int, ...]) -> int:
        """Return a ledger with other numbers for its versions."""
        found = self._renumbered.get((number, order))
        if found is None:
            body, own, since, seen, members = self._frozen[number]
            frozen = (body, own, placed(order, since), placed(order, seen), _renumbered(members, order))
            found = self._renumbered[number, order] = self._number(frozen)
        return found

    def _number(self, frozen: Frozen) -> int:
        number = self._numbers.setdefault(frozen, len(self._frozen))
        if number == len(self._frozen):
            self._frozen.append(frozen)
        return number


def placed(order: tuple[int, ...], version: int) -> int:
    """Return the new number of a version: its place among those that others are compared with."""
    return bisect_left(order, version) + 1 if version else 0


def _renumbered(members: Members | None, order: tuple[int, ...]) -> Members | None:
    return None if members is None else replace(members, seen=placed(order, members.seen))


class Known(NamedTuple):
    """What one ledger says, computed once."""

    decisions: tuple[tuple[bool, Decision, Stored, tuple[str, ...]], ...]  # waited, it, the status, each rank's uid
    doubted: tuple[int, ...]
    leaving: tuple[str, ...]  # uids of Pods that leave, and are not fenced
    grown: bool
    synced: int


class MembersWorld(Explored[GroupState]):
    """Knows every move."""

    def __init__(self, config: MembersConfig) -> None:
        self.config = config
        self._ledgers = self._make_ledgers()
        self._afters: dict[tuple[int, Any], int] = {}
        self._known: dict[tuple[int, int], Known] = {}
        self._seen: dict[tuple[MemberPod, tuple[Stored, ...]], tuple[tuple[str, MemberPod], ...]] = {}

    def _make_ledgers(self) -> MemberLedgers:
        return MemberLedgers(self.config)

    def initial(self) -> GroupState:
        """Return the first ranks at work in epoch 1 (or nobody yet), new Pods in the other slots, and a controller."""
        config, slots = self.config, range(self.config.slots)
        pods = [self._new_pod(slot, 0) for slot in slots if slot not in config.absent]
        stored, counted = Stored(), tuple[str, ...]()
        if not config.is_first:
            members = self._first_members()
            stored = Stored(1, 0, members_of(1, members, 1))
            for rank, slot in enumerate(members):
                agent = AgentState(phase=AgentPhase.LIFTED, epoch=1, view=View(1, 0), slot=slot)
                at = next(at for at, pod in enumerate(pods) if pod.slot == slot)
                pods[at] = pods[at]._replace(agent=agent, epoch=1, memory=1, worker=(1, rank + 1))
                counted = (*counted, pods[at].uid)
        ledger = MemberLedger(self._ledgers.shape, *stored[:2], sizes=config.sizes, members=stored.members)
        for pod in pods:
            ledger.observe(self._shown_pod(pod, 1))
        none, started = (0,) * len(slots), frozenset(pod.worker for pod in pods if pod.worker != NO_WORKER)
        leader = self._ledgers.intern(ledger)
        return GroupState(
            (stored,), tuple(pods), (), leader, -1, config.faults, counted, started, none, generations=none
        )

    def broken(self, state: GroupState) -> str:
        """Name the rule that a state itself breaks, or return ""."""
        return S1 if len({pod.worker[0] for pod in state.pods if pod.worker != NO_WORKER}) > 1 else ""

    def is_good(self, state: GroupState) -> bool:
        """Say whether every rank of S is at work, or completed; or the JobSet failed."""
        synced, deprecated, members = state.versions[-1]
        if state.failed:
            return True
        if synced <= deprecated or members is None:
            return False
        ran = {pod.worker for pod in state.pods if pod.life == LIVE}
        done = {pod.slot for pod in state.pods if pod.life == COMPLETE}
        return all((synced, rank + 1) in ran or slot in done for rank, slot in enumerate(members.slots()))

    def moves(self, state: GroupState) -> Iterator[Move[GroupState]]:
        """Yield every move of a state."""
        for text, after, kind, rule in () if state.failed else self._all_moves(state):
            if kind in ("", "free"):
                yield Move(text, after, bool(kind), rule)
            elif self._may(state, kind):
                yield Move(text, after._replace(left=after.left - 1), True, rule)

    def _may(self, state: GroupState, kind: str) -> bool:
        """Say whether a fault may happen now."""
        return state.left > 0 and kind in self.config.kinds

    def _all_moves(self, state: GroupState) -> Iterator[tuple[str, GroupState, str, str]]:
        for at, pod in enumerate(state.pods):
            for text, after, kind in self._moves_of(state, at, pod):
                yield f"pod {pod.uid}: {text}", after, kind, ""
            for text, moved in self._sights(pod, state.versions):
                rule, after = self._start(state, pod, moved)
                yield f"pod {pod.uid}: {text}", _with(after, at, moved), "", rule
            if pod.request and pod.life == LIVE and len(state.events) < self.config.lag:
                yield from self._patches(state, at, pod)
        yield from self._new_pods(state)
        yield from self._controller_moves(state)

    # Pods.

    def _new_pod(self, slot: int, generation: int) -> MemberPod:
        number = None if slot in self.config.upstream else slot
        is_silent = slot in self.config.silent and (generation > 0 or slot not in self._first_members())
        agent = None if is_silent else AgentState(slot=number)
        return MemberPod(f"{slot}.{generation}", slot, agent=agent)

    def _first_members(self) -> list[int]:
        apart = self.config.absent | self.config.upstream
        return [slot for slot in range(self.config.slots) if slot not in apart][: self.config.sizes.most]

    def _new_pods(self, state: GroupState) -> Iterator[tuple[str, GroupState, str, str]]:
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
            yield "its containers end", _without(state, at), "free"
        is_full = len(state.events) >= self.config.lag
        if pod.life == LEAVING and not is_full:
            ended = _without(state, at)._replace(events=(*state.events, (ENDED, pod.uid)))
            yield "has ended", ended, "free" if pod.cut else ""
        if state.left == 0:
            return
        if pod.life == LIVE and pod.agent is not None:
            hurt, (synced, _, members) = self._hurt(state, pod), state.versions[-1]
            is_member = members is None or members.rank_of(pod.slot) is not None
            if 0 < pod.epoch <= synced and not pod.request and not is_member:
                yield "its agent hangs", _with(state, at, pod._replace(agent=None, asked=False)), "hang"
            if pod.worker != NO_WORKER:
                yield "its worker dies", _with(hurt, at, self._restarted(pod, pod.epoch)), "worker"
            yield "its agent dies", _with(hurt, at, self._restarted(pod, pod.epoch)), "agent"
            yield "its agent dies, and forgets", _with(hurt, at, self._restarted(pod, 0)), "agent"
        if is_full:
            return
        leaving = pod._replace(life=LEAVING)
        if pod.life == LIVE:
            yield "is deleted", self._hurt(self._happened(_with(state, at, leaving), leaving), pod), "delete"
            cut = leaving._replace(cut=True)
            yield "is deleted with its node", self._hurt(self._happened(_with(state, at, cut), cut), pod), "cut"
        if pod.life in (LIVE, LEAVING):
            gone = _with(state, at, pod._replace(life=GONE, asked=False))
            yield (
                "is deleted by force",
                self._hurt(gone._replace(events=(*gone.events, (VANISHED, pod.uid))), pod),
                "force",
            )
        if pod.life == LIVE and pod.worker != NO_WORKER:
            done = pod._replace(life=COMPLETE, agent=None, worker=NO_WORKER, request=0)
            yield "its worker completes", self._happened(_with(state, at, done), done), "success"

    def _sights(self, pod: MemberPod, versions: tuple[Stored, ...]) -> tuple[tuple[str, MemberPod], ...]:
        """Return what a Pod does when it sees one of these versions."""
        if pod.agent is None:
            return ()
        key = (pod, versions)
        if key not in self._seen:
            found = [self._stepped(pod, self._shown(pod, stored), f"sees {_said(stored)}") for stored in versions]
            if pod.asked:
                view = replace(self._shown(pod, versions[-1]), consistent=True)
                found.append(self._stepped(pod, view, f"sees {_said(versions[-1])} consistently"))
            self._seen[key] = tuple((text, moved) for text, moved in found if moved != pod)
        return self._seen[key]

    def _patches(self, state: GroupState, at: int, pod: MemberPod) -> Iterator[tuple[str, GroupState, str, str]]:
        """Store an announcement; its answer may be lost."""
        epoch, version = pod.request, _newest(self._ledgers, state) + 1
        after, stored = state, pod._replace(epoch=epoch, ran=pod.memory, request=0, stored=False, saved=pod.tells)
        if not pod.stored:
            after = self._happened(state, stored)
        text, moved = self._stepped(
            stored, Accepted(epoch, version, stored.saved != NOTHING), f"PATCH {epoch} is accepted"
        )
        rule, accepted = self._start(after, pod, moved)
        yield f"pod {pod.uid}: {text}", _with(accepted, at, moved), "", rule
        if not pod.stored:
            text, moved = self._stepped(stored, NotAccepted(epoch), f"the answer to PATCH {epoch} is lost")
            moved = moved._replace(stored=moved.request == epoch)
            yield f"pod {pod.uid}: {text}", self._hurt(_with(after, at, moved), stored), "patch", ""

    def _shown(self, pod: MemberPod, stored: Stored) -> View:
        if pod.slot in self.config.upstream:  # it reads other fields, which stay at "never"
            return View(stored.synced, stored.deprecated) if self.config.shows_epochs else View(0, 0)
        return View(stored.synced, stored.deprecated, members=stored.members)

    def _stepped(self, pod: MemberPod, event: Any, text: str) -> tuple[str, MemberPod]:
        """Step the machine and perform its actions."""
        try:
            agent, actions = step_agent(pod.agent, event)
        except InvariantError:
            return f"{text} -> InvariantError", pod._replace(agent=None, worker=(0, -1))
        pod = pod._replace(agent=agent, asked=pod.asked and agent.phase is AgentPhase.CONFIRMING)
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
        return text, pod._replace(agent=self._forgetful(pod.agent))

    def _announcing(self, pod: MemberPod, action: Announce) -> MemberPod:
        return pod._replace(request=action.epoch)

    def _lifted(self, pod: MemberPod, members: Members | None, action: LiftBarrier) -> MemberPod:
        rank, epoch = members.rank_of(pod.slot) if members is not None else None, action.epoch or 0
        return pod._replace(worker=(epoch, -1 if rank is None else rank + 1), memory=epoch)

    def _restarted(self, pod: MemberPod, previous: int) -> MemberPod:
        """Start all containers of a Pod anew; of one that leaves, nobody does."""
        agent = None
        if pod.life == LIVE:
            reached = max(pod.memory, pod.epoch - 1, 0) if "lost" in self.config.kinds else 0
            agent = AgentState(previous=previous or None, slot=pod.agent.slot, reached=reached)
        return pod._replace(agent=agent, request=0, stored=False, asked=False, worker=NO_WORKER)

    def _forgetful(self, agent: Any) -> Any:
        """Drop what no later step reads, so that equal states are equal."""
        if agent is None or agent.view is None or agent.phase in (AgentPhase.STARTING, AgentPhase.CONFIRMING):
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

    # What a controller sees.

    def _happened(self, state: GroupState, pod: MemberPod) -> GroupState:
        """Let the leader see a Pod, later."""
        version = _newest(self._ledgers, state) + 1
        return state._replace(events=(*state.events, (SEEN, self._shown_pod(pod, version))))

    def _shown_pod(self, pod: MemberPod, version: int) -> PodView:
        """Return a Pod as a watch event shows it."""
        text = "" if pod.slot in self.config.upstream else announcement_text(pod.epoch, Announced(pod.ran, pod.saved))
        told = read_announcement(text, pod.epoch) if pod.epoch else None
        epoch = None if told is None else pod.epoch
        saved = None if told is None or told.saved == NOTHING else told.saved
        slot, ran = Slot(JOB, 0, pod.slot), told.ran if told is not None else 0
        return PodView(pod.uid, slot, epoch, LIVES[pod.life], version=version, ran=ran, saved=saved)

    def _hurt(self, state: GroupState, pod: MemberPod) -> GroupState:
        marks = list(state.marks)
        marks[pod.slot] = max(marks[pod.slot], pod.epoch)
        return state._replace(marks=tuple(marks))

    # Controllers.

    def _controller_moves(self, state: GroupState) -> Iterator[tuple[str, GroupState, str, str]]:
        if state.events:
            what, seen = state.events[0]
            after = state._replace(leader=self._after(state.leader, (what, seen)), events=state.events[1:])
            yield f"controller: sees {what} {getattr(seen, 'uid', seen)}", after, "", ""
        yield from self._moves_of_controller(state, "leader")
        if state.old >= 0:
            yield from self._moves_of_controller(state, "old")
            yield "old: stops", state._replace(old=-1), "", ""
        yield from self._changes_of_leader(state)
        synced, deprecated, members = state.versions[-1]
        if members is not None and self._may(state, "stripped"):
            marks = tuple(max(mark, synced) for mark in state.marks)
            after = self._stored(state, Stored(synced, deprecated), marks)
            yield "the members are taken out of the status", after, "stripped", ""
        if synced and self._may(state, "lost"):
            yield "the status is lost", state._replace(versions=(Stored(),)), "lost", ""

    def _changes_of_leader(self, state: GroupState) -> Iterator[tuple[str, GroupState, str, str]]:
        newest = _newest(self._ledgers, state) + 1
        if self._may(state, "controller") or self._may(state, "handover"):
            ledger = self._ledgers.begun(state.versions[-1], newest)
            begun = state._replace(leader=self._listed(ledger, state), events=())
            yield "controller: dies; the next one lists everything", begun, "controller", ""
            if state.old < 0:
                yield "controller: loses its lease without noticing", begun._replace(old=state.leader), "handover", ""
        if self._may(state, "relist"):
            ledger = self._ledgers.thaw(state.leader)
            for uid in sorted(set(ledger._records) - {pod.uid for pod in state.pods if pod.life != GONE}):
                ledger.vanish(uid)
            number = self._listed(ledger, state, newest)
            yield "controller: lists again after a gap", state._replace(leader=number, events=()), "relist", ""

    def _moves_of_controller(self, state: GroupState, name: str) -> Iterator[tuple[str, GroupState, str, str]]:
        number, now = getattr(state, name), state.versions[-1]
        learned = self._after(number, ("learn", now))
        if learned != number:
            yield f"{name}: sees {_said(now)}", _led(state, name, learned), "", ""
            return
        known = self._know(number, state.exempt)
        for waited, decision, want, uids in known.decisions:
            if decision.exceeded:
                rule = S8 if decision.restarts <= self.config.restarts_max else ""
                yield f"{name}: fails the JobSet", state._replace(failed=True), "", rule
            elif want != now:
                yield from self._write(state, name, want, uids, grows=want.synced > known.synced, waited=waited)
            elif decision.recreate and len(state.events) < self.config.lag:
                for at, pod in enumerate(state.pods):
                    if pod.life == COMPLETE:
                        ended = _without(state, at)._replace(events=(*state.events, (ENDED, pod.uid)))
                        yield f"{name}: recreates the Job of pod {pod.uid}", ended, "", ""
        is_over = now.deprecated >= now.synced
        for slot in known.doubted if is_over else ():
            after = self._fenced(state, [pod for pod in state.pods if pod.slot == slot and pod.life == GONE])
            yield f"{name}: trusts slot {slot}", _led(after, name, self._after(number, ("trust", slot))), "", ""
        for uid in known.leaving if is_over else ():
            after = self._fenced(state, [pod for pod in state.pods if pod.uid == uid])
            if any(pod.uid == uid and pod.cut for pod in state.pods):
                fenced = self._after(number, ("fence", uid))
                yield f"{name}: fences pod {uid}", _led(after, name, fenced), "", ""
        if known.grown:
            grown = self._stored(state, now._replace(deprecated=now.synced), state.marks)
            yield f"{name}: ends epoch {now.synced} so that the group grows", self._exempt(grown), "grow", ""

    def _know(self, number: int, exempt: int) -> Known:
        """Return what a ledger says."""
        found = self._known.get((number, exempt))
        if found is None:
            ledger, decisions = self._ledgers.thaw(number), []
            for waited in (False, True) if ledger.is_short and not self.config.is_patient else (False,):
                decision = ledger.decide(restarts_max=self.config.restarts_max, uncounted=exempt, waited=waited)
                want = Stored(decision.synced, decision.deprecated, _on_the_wire(decision.members))
                is_sync = want.synced > max(ledger.synced, want.deprecated) and want.members is not None
                slots = want.members.slots() if is_sync and want.members is not None else []
                uids = tuple(next(iter(ledger._occupants[Slot(JOB, 0, slot)])) for slot in slots)
                decisions.append((waited, decision, want, uids))
            records = ledger._records.values()
            leaving = tuple(one.pod.uid for one in records if one.pod.life is PodLife.LEAVING and not one.fenced)
            found = Known(tuple(decisions), tuple(sorted(ledger.doubted)), leaving, bool(ledger.grown), ledger.synced)
            self._known[number, exempt] = found
        return found

    def _fenced(self, state: GroupState, pods: list[MemberPod]) -> GroupState:
        """End the workers of these Pods that have ended by now, as was promised; nor do such workers start later."""
        deprecated = state.versions[-1].deprecated
        for pod in pods:
            if pod.agent is not None and 0 < pod.agent.epoch <= deprecated:
                ended = pod._replace(agent=None, worker=NO_WORKER, request=0)
                state = _with(state, state.pods.index(pod), ended)
        return state

    def _write(
        self, state: GroupState, name: str, want: Stored, uids: tuple[str, ...], *, grows: bool, waited: bool
    ) -> Iterator[tuple[str, GroupState, str, str]]:
        """Write the status; the writer learns it from the answer, or later when that is lost."""
        after = self._stored(state, want, state.marks)
        if grows:  # else a status that was lost is written again
            after = after._replace(counted=uids, started=frozenset())
            after = self._exempt(after) if want.synced == want.deprecated else after
        text = f"{name}: writes {_said(want)}{', tired of waiting' if waited else ''}"
        rule = self._broken_by(state, want)
        yield text, _led(after, name, self._after(getattr(state, name), ("learn", want))), "", rule
        yield f"{text}, the answer is lost", after, "write", rule
        if grows and self._may(state, "torn"):
            torn = want._replace(members=state.versions[-1].members)
            yield f"{text}, in two writes", after._replace(versions=(*after.versions[:-1], torn, want)), "torn", rule

    def _broken_by(self, state: GroupState, want: Stored) -> str:
        """Name the rule that a write breaks, or return ""."""
        now, sizes = state.versions[-1], self.config.sizes
        if want.synced < now.synced or not now.deprecated <= want.deprecated <= want.synced:
            return S4
        members = range(self.config.slots) if now.members is None else now.members.slots()
        has_ended = now.synced > now.deprecated and (want.synced > now.synced or want.deprecated >= now.synced)
        if has_ended and not any(state.marks[slot] >= now.synced for slot in members):
            return M3
        if not want.synced > max(now.synced, want.deprecated):
            return ""
        if want.members is None or want.members.epoch != want.synced:
            return M2
        size, slots = want.members.size, want.members.slots()
        if not sizes.least <= size <= sizes.most or len(set(slots)) < size or max(slots) >= self.config.slots:
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
        return self._ledgers.intern(ledger)

    def _after(self, number: int, event: tuple[str, Any]) -> int:
        """Return the ledger after an event."""
        found = self._afters.get((number, event))
        if found is None:
            ledger, (what, seen) = self._ledgers.thaw(number), event
            match what:
                case "seen":
                    ledger.observe(seen)
                case "ended":
                    record = ledger._records.get(seen)
                    if record is not None:
                        ledger.observe(changed(record.pod, life=PodLife.FAILED))
                    ledger.vanish(seen)
                case "vanished":
                    ledger.vanish(seen)
                case "learn":
                    ledger.learn(seen.synced, seen.deprecated, seen.members)
                case "trust":
                    ledger.trust(seen)
                case "fence":
                    ledger.fence(seen)
            found = self._afters[number, event] = self._ledgers.intern(ledger)
        return found

    def canonical(self, state: GroupState) -> GroupState:
        """Number the versions anew."""
        order, synced = tuple(sorted(_compared(self._ledgers, state))), state.versions[-1].synced
        versions = tuple(each._replace(members=_renumbered(each.members, order)) for each in state.versions)
        events = tuple(
            (what, changed(seen, version=placed(order, seen.version)) if what == SEEN else seen)
            for what, seen in state.events
        )
        pods = tuple(_present(_renumbered_pod(pod, order), synced) for pod in state.pods)
        leader = self._ledgers.renumbered(state.leader, order)
        old = self._ledgers.renumbered(state.old, order) if state.old >= 0 else -1
        return state._replace(versions=versions, events=events, pods=pods, leader=leader, old=old)


def _present(pod: MemberPod, synced: int) -> MemberPod:
    """Forget what a Pod ran before S."""
    is_past = (0 < pod.ran < synced) or (0 < pod.memory < synced)
    if not is_past:
        return pod
    return pod._replace(ran=pod.ran * (pod.ran >= synced), memory=pod.memory * (pod.memory >= synced))


def _renumbered_pod(pod: MemberPod, order: tuple[int, ...]) -> MemberPod:
    agent = pod.agent
    if agent is None or not (agent.accepted or (agent.view is not None and agent.view.members is not None)):
        return pod
    view = replace(agent.view, members=_renumbered(agent.view.members, order))
    return pod._replace(agent=replace(agent, accepted=placed(order, agent.accepted), view=view))


def _compared(ledgers: MemberLedgers, state: GroupState) -> set[int]:
    """Return the versions that others are compared with."""
    found = {*ledgers.versions(state.leader), *(ledgers.versions(state.old) if state.old >= 0 else ())}
    found |= {each.members.seen for each in state.versions if each.members is not None}
    found |= {seen.version for what, seen in state.events if what == SEEN}
    views = [pod.agent.view for pod in state.pods if pod.agent is not None and pod.agent.view is not None]
    found |= {view.members.seen for view in views if view.members is not None}
    return found - {0}


def _newest(ledgers: MemberLedgers, state: GroupState) -> int:
    """Return the newest version there is."""
    accepted = [pod.agent.accepted for pod in state.pods if pod.agent is not None]
    return max((*_compared(ledgers, state), *accepted), default=0)


def _on_the_wire(members: Members | None) -> Members | None:
    """Return members as others read them."""
    return None if members is None else read_members(members_text(members))


def _said(stored: Stored) -> str:
    text = "" if stored.members is None else f" {members_text(stored.members)}"
    return f"S={stored.synced} D={stored.deprecated}{text}"


def _led(state: GroupState, name: str, number: int) -> GroupState:
    """Give a controller another ledger."""
    return state._replace(leader=number) if name == "leader" else state._replace(old=number)


def _with(state: GroupState, at: int, pod: MemberPod) -> GroupState:
    return state._replace(pods=(*state.pods[:at], pod, *state.pods[at + 1 :]))


def _without(state: GroupState, at: int) -> GroupState:
    return state._replace(pods=(*state.pods[:at], *state.pods[at + 1 :]))


def explore_members(config: MembersConfig, states_max: int = 10**9) -> Result:
    """Visit every state of a group with spares."""
    return explore_world(str(config), MembersWorld(config), states_max)


_TWO: Final = MembersConfig(2, frozenset(), sizes=Sizes(1, 1), slots=2)  # a member and a spare
_ONE: Final = changed(_TWO, slots=1, is_first=True)  # a member and its doubles
_THREE: Final = MembersConfig(2, frozenset())


def _explored(config: MembersConfig, names: str, **options: Any) -> MembersConfig:
    return changed(config, kinds=kinds(names), **options)


MEMBERS_QUICK: Final = (
    changed(_THREE, faults=1, kinds=KINDS),
    _explored(_TWO, "worker controller stripped lost", stale=1),
    _explored(_THREE, "worker delete", faults=1, sizes=Sizes(1, 2), is_patient=False, silent=frozenset({0})),
)
# The largest first, so that two processes finish at about the same time.
MEMBERS_FULL: Final = (
    _explored(_THREE, "delete grow", sizes=Sizes(1, 2), is_patient=False, absent=frozenset({1})),
    _explored(_TWO, "force handover", lag=2),
    _explored(_THREE, "worker delete success", restarts_max=1),
    _explored(_THREE, "worker controller stripped lost", stale=1),
    _explored(_TWO, "worker force controller"),
    _explored(_TWO, "force relist write"),
    _explored(_TWO, "worker cut controller"),
    _explored(_TWO, "force delete cut controller", faults=1, lag=3, is_first=True),
    _explored(_THREE, "worker hang agent", is_first=True),
    _explored(_THREE, "delete", faults=1, is_first=True),
    _explored(_THREE, "worker delete force cut controller", faults=1, sizes=Sizes(1, 2), is_patient=False),
    _explored(_ONE, "force controller relist handover write"),
    _explored(_THREE, "worker agent patch success write torn"),
    _explored(_THREE, "worker grow", sizes=Sizes(1, 2), is_patient=False, absent=frozenset({2})),
    _explored(_THREE, "worker delete", upstream=frozenset({2})),
    *MEMBERS_QUICK,
)
