"""
Groups whose Pods save steps, and go on from the newest that all can load (`common.protocol.resume`).

Agents, controllers and the status are those of `tests.model.members`; `plain` is a group without spares. Here a worker
makes steps, and saves each in its own Pod, or on storage that all can read. What a Pod has outlives every restart of
its containers and goes with the Pod.

* A copy knows which epoch made it, as which rank of how many. Epochs go on from one step each, so the copies of a step
  that one epoch made are parts of one whole, and all others are not.
* An agent tells, as `agent.progress` does, what the epoch before made, and of older copies those that the list of that
  epoch leaves (`local_after`). The others are forgotten then.
* A step may turn out to be unfit when its worker loads it; the Pod remembers it until it makes that step again.
* With `resize` a plain group loses its last slot.

The rules are R1 to R3 of `tests.model.rules`, checked whenever a worker starts; L1: the group can always come together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Final, NamedTuple

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import AgentPhase, AgentState, Announce, LiftBarrier, View
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.members import Members, Sizes
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, Resume, Saved, local_after
from inplace.common.protocol.slot import Shape
from tests.model.configurations import kinds
from tests.model.explore import Result, explore_world
from tests.model.frozen import freeze, thaw
from tests.model.member_ledgers import Known, MemberLedgers, newest
from tests.model.member_parts import (
    GONE,
    JOB,
    LIVE,
    NO_WORKER,
    GroupState,
    MemberPod,
    MembersConfig,
    Stored,
    led,
    on_the_wire,
    stored_with,
    with_pod,
)
from tests.model.member_pods import PodMove
from tests.model.members import MembersWorld
from tests.model.memo import memo, one
from tests.model.rules import INVARIANT, R1, R2, R3, S2, S4

RESUME_KINDS: Final = kinds("unfit resize")


@dataclass(frozen=True, slots=True)
class ResumeConfig(MembersConfig):
    """The bounds and faults of one exploration.

    Args:
        plain: no spares: each of the `slots` is a member.
        steps: so many steps are made.
        shared: steps are saved for all, too.
        sparse: a worker may make a step and save nothing.
        listed: epoch 1 has a list.
    """

    plain: bool = True
    steps: int = 2
    shared: bool = False
    sparse: bool = False
    listed: bool = False

    @property
    def ranks(self) -> int:
        """Return how many workers run at full strength."""
        return self.slots if self.plain else self.sizes.most * (self.pods or 1)

    def __str__(self) -> str:
        """Return the line that names a configuration in the report."""
        names = ",".join(sorted(self.kinds))
        size = str(self.slots) if self.plain else f"{self.sizes.least}-{self.sizes.most} of {self.units}"
        size += f" Jobs of {self.pods} Pods" if self.pods else ""
        options = [name for name in ("shared", "sparse", "listed") if getattr(self, name)]
        options += [f"lag={self.lag}"] if self.lag > 1 else []
        return " ".join([f"resume {size} faults={self.faults} steps={self.steps} {names}", *options])


class Copy(NamedTuple):
    """A Pod's own part of a step."""

    step: int
    made: int  # in this epoch
    rank: int
    size: int


class Files(NamedTuple):
    """What a Pod has.

    Args:
        copies: its own, the newest first.
        shared: the newest step on storage that it knows of; 0 for none.
        unfit: could not be loaded; 0 for none.
        at: the step at which its worker is.
        told: from where its worker was told to go on.
        fresh: the worker has made no step.
    """

    copies: tuple[Copy, ...] = ()
    shared: int = 0
    unfit: int = 0
    at: int = 0
    told: Resume | None = None
    fresh: bool = True


class Lines(NamedTuple):
    """What the group trained.

    Args:
        epoch: the newest in which a worker started.
        start: what it began with: the step, and which epoch made it (0 for a shared one); None: whatever it found.
        ranks: how many S has.
        slots: how many are expected.
        shared: steps that a member told.
    """

    epoch: int = 0
    start: tuple[int, int] | None = None
    ranks: int = 0
    slots: int = 0
    shared: frozenset[int] = frozenset()


class PlainLedgers(MemberLedgers):
    """Interns ledgers of groups without spares."""

    def __init__(self, config: MembersConfig) -> None:
        super().__init__(config)
        self._shapes = [Shape({JOB: (1, size)}) for size in range(config.slots + 1)]
        self.slots = config.slots  # that are expected when the next controller begins

    def begun(self, stored: Stored, since: int) -> Any:
        """Return the ledger of a controller that begins."""
        return Ledger(self._shapes[self.slots], stored.synced, stored.deprecated, stored.members)

    def thaw(self, number: int) -> Any:
        """Return a ledger that may be changed."""
        body, (size, resized), _, seen, members = self._frozen[number]
        ledger = thaw(self._shapes[size], body)
        ledger._seen, ledger.members, ledger._resized = seen, members, resized
        return ledger

    def intern(self, ledger: Any) -> int:
        """Return the number of a ledger."""
        for record in ledger._records.values():
            if record.pod.ran or record.pod.version:
                record.pod = changed(record.pod, ran=0, version=0)
        own = (ledger.shape.size, ledger._resized)
        return self._frozen.number((freeze(ledger), own, 0, ledger._seen, ledger.members))

    def _take_in(self, ledger: Any, what: str, seen: Any) -> None:
        if what == "reshape":
            ledger.reshape(self._shapes[seen])
        else:
            super()._take_in(ledger, what, seen)

    @memo
    def known(self, number: int, exempt: int) -> Known:
        """Return what a ledger says."""
        ledger = self.thaw(number)
        decision = ledger.decide(restarts_max=self.config.restarts_max)
        want = stored_with(decision.synced, decision.deprecated, on_the_wire(decision.members))
        return Known(((False, decision, want, ()),), (), (), grown=False, synced=ledger.synced)


class ResumeWorld(MembersWorld):
    """Knows every move."""

    config: ResumeConfig

    def _make_ledgers(self) -> MemberLedgers:
        return PlainLedgers(self.config) if self.config.plain else MemberLedgers(self.config)

    def initial(self) -> GroupState:
        """Return a group at work in epoch 1 that has saved nothing."""
        config = self.config
        lines = Lines(epoch=1, ranks=config.ranks, slots=config.slots)
        if not config.plain:
            state = super().initial()
            pods = tuple(pod._replace(files=Files()) for pod in state.pods)
            return state._replace(pods=pods, lines=lines)
        first = Members(1, config.slots, seen=1, everyone=True) if config.listed else None
        stored = stored_with(1, 0, first)
        at_work = AgentState(phase=AgentPhase.LIFTED, epoch=1, view=View(1, 0))
        pods = tuple(
            MemberPod(f"{slot}.0", slot, machine=one(at_work), epoch=1, memory=1, worker=(1, slot + 1), files=Files())
            for slot in range(config.slots)
        )
        ledger = self.ledgers.begun(stored, 0)
        for pod in pods:
            ledger.observe(self._shown_pod(pod, 1))
        none = (0,) * config.slots
        return GroupState(
            (stored,),
            pods,
            (),
            self.ledgers.intern(ledger),
            -1,
            config.faults,
            marks=none,
            generations=none,
            lines=lines,
        )

    def is_good(self, state: GroupState) -> bool:
        """Say whether the group is at work."""
        if not self.config.plain:
            return super().is_good(state)
        synced, deprecated, _ = state.versions[-1]
        ran = {pod.slot for pod in state.pods if pod.life == LIVE and pod.worker[0] == synced}
        return synced > deprecated and ran >= set(range(state.lines.slots))

    # Pods.

    def _new_pod(self, slot: int, generation: int) -> MemberPod:
        pod = super()._new_pod(slot, generation)._replace(files=Files())
        if self.config.plain and pod.agent is not None:
            pod = pod._replace(machine=one(AgentState()))
        return pod

    def _new_pods(self, state: GroupState) -> Iterator[PodMove]:
        for text, after, kind, rule in super()._new_pods(state):
            if all(pod.slot < state.lines.slots or pod in state.pods for pod in after.pods):
                yield text, after, kind, rule

    def _all_moves(self, state: GroupState) -> Iterator[PodMove]:
        yield from super()._all_moves(state)
        for at, pod in enumerate(state.pods):
            if 0 < pod.worker[0] == state.versions[-1].synced and pod.life != GONE:
                for text, moved, kind in self._works(state, pod):
                    before = self._hurt(state, pod) if kind == "unfit" else state
                    yield f"pod {pod.uid}: {text}", with_pod(before, at, moved), kind, ""
        last = state.lines.slots - 1
        if self._may(state, "resize") and last and len(state.events) < self.config.lag:
            smaller = state._replace(lines=state.lines._replace(slots=last))
            for at, pod in enumerate(state.pods):
                if pod.slot == last and pod.life == LIVE:
                    leaving = pod._replace(life="leaving")
                    yield "a slot is removed", self._happened(with_pod(smaller, at, leaving), leaving), "resize", ""

    def _works(self, state: GroupState, pod: MemberPod) -> Iterator[tuple[str, MemberPod, str]]:
        """Make and save steps."""
        files, step = pod.files, pod.files.at + 1
        if step <= self.config.steps:
            made = Copy(step, pod.worker[0], pod.worker[1] - 1, state.lines.ranks)
            others = tuple(copy for copy in files.copies if copy.step != step)
            copies = tuple(sorted((*others, made), reverse=True))
            unfit = 0 if files.unfit == step else files.unfit
            after = files._replace(at=step, fresh=False)
            saved = after._replace(copies=copies, unfit=unfit)
            yield f"saves step {step}", pod._replace(files=saved), "free"
            if self.config.sparse:
                yield f"makes step {step}", pod._replace(files=after), "free"
        if self.config.shared and files.shared < files.at and not files.fresh:
            shared = files._replace(shared=files.at)
            yield f"saves step {files.at} for all", pod._replace(files=shared), "free"
        if files.fresh and files.told is not None and pod.life == LIVE:
            moved = self._restarted(pod._replace(files=files._replace(unfit=files.at)), pod.epoch)
            yield f"cannot load step {files.at}", moved, "unfit"

    def _announcing(self, pod: MemberPod, action: Announce) -> MemberPod:
        """Tell of the steps that the Pod could load, and forget the others."""
        files, last = pod.files, action.epoch - 1
        older = tuple(copy.step for copy in files.copies if copy.made != last)
        kept = local_after(older, action.resume)
        copies = tuple(copy for copy in files.copies if copy.made == last or copy.step in kept)
        local = tuple(copy.step for copy in copies if copy.step != files.unfit)[:LOCAL_STEPS_MAX]
        tells = Saved(local, files.shared or None, files.unfit or None)
        return super()._announcing(pod, action)._replace(tells=one(tells), files=files._replace(copies=copies))

    def _lifted(self, pod: MemberPod, members: Members | None, action: LiftBarrier) -> MemberPod:
        if self.config.plain:
            pod = pod._replace(worker=(action.epoch or 0, pod.slot + 1), memory=action.epoch or 0)
        else:
            pod = super()._lifted(pod, members, action)
        told = action.resume
        return pod._replace(files=pod.files._replace(at=told.step if told else 0, told=told, fresh=True))

    def _forgotten(self, agent: AgentState) -> AgentState:
        """Keep the list that says what a second announcement tells, and whether this Pod was counted."""
        if agent.view is None or agent.phase in (AgentPhase.STARTING, AgentPhase.CONFIRMING):
            return agent
        after, view = super()._forgotten(agent), agent.view
        if agent.phase is AgentPhase.ANNOUNCING and view.synced == agent.epoch - 1:
            kept = replace(after.view, synced=view.synced, members=view.members)
            return replace(after, view=kept)
        is_waiting = agent.phase is AgentPhase.WAITING
        return replace(after, accepted=agent.accepted if is_waiting else 0, told=agent.told and is_waiting)

    def _start(self, state: GroupState, before: MemberPod, pod: MemberPod) -> tuple[str, GroupState]:
        if pod.worker in (before.worker, NO_WORKER):
            return "", state
        rule = ""
        if self.config.plain:
            rule = INVARIANT if pod.worker[0] == 0 else S2 if before.worker != NO_WORKER else ""
        else:
            rule, state = super()._start(state, before, pod)
        return (rule, state) if rule else self._went_on(state, pod)

    def _went_on(self, state: GroupState, pod: MemberPod) -> tuple[str, GroupState]:
        """Judge from which step a worker goes on."""
        lines, files, (epoch, rank) = state.lines, pod.files, pod.worker
        told: Resume | None = files.told
        start: tuple[int, int] | None = None
        if told is not None:
            if told.step == files.unfit:
                return R2, state
            copy = next((copy for copy in files.copies if copy.step == told.step), None)
            if told.local and (copy is None or (copy.rank, copy.size) != (rank - 1, lines.ranks)):
                return R2, state
            if not told.local and told.step not in lines.shared:
                return R3, state
            start = (told.step, copy.made if told.local and copy is not None else 0)
        if lines.epoch != epoch:
            return "", state._replace(lines=lines._replace(epoch=epoch, start=start))
        if start != lines.start:
            is_mixed = start is not None and lines.start is not None and start[0] == lines.start[0]
            return R2 if is_mixed else R1, state
        return "", state

    # Controllers.

    def _patches(self, state: GroupState, at: int, pod: MemberPod) -> Iterator[PodMove]:
        lines, shared, members = state.lines, pod.tells.value.shared, state.versions[-1].members
        is_member = self.config.plain or members is None or members.rank_of(self.config.unit(pod.slot)) is not None
        if shared is not None and shared not in lines.shared and is_member:
            state = state._replace(lines=lines._replace(shared=lines.shared | {shared}))
        yield from super()._patches(state, at, pod)

    def _changes_of_leader(self, state: GroupState) -> Iterator[PodMove]:
        if isinstance(self.ledgers, PlainLedgers):
            self.ledgers.slots = state.lines.slots
        yield from super()._changes_of_leader(state)

    def _listed(self, ledger: Any, state: GroupState, again: int = 0) -> int:
        if not self.config.plain:
            return super()._listed(ledger, state, again)
        for pod in state.pods:
            ledger.observe(self._shown_pod(pod, newest(self.ledgers, state)))
        return self.ledgers.intern(ledger)

    def _moves_of_controller(self, state: GroupState, name: str) -> Iterator[PodMove]:
        if self.config.plain:
            shaped = self.ledgers.after(getattr(state, name), "reshape", state.lines.slots)
            if shaped != getattr(state, name):
                yield f"{name}: expects {state.lines.slots} slots", led(state, name, shaped), "", ""
                return
        yield from super()._moves_of_controller(state, name)

    def _write(self, state: GroupState, name: str, want: Stored, uids: tuple[str, ...], **options: bool) -> Any:
        """Keep how many ranks the new S has."""
        ranks = want.members.pods_in_all if want.members is not None else state.lines.slots
        for text, after, kind, rule in super()._write(state, name, want, uids, **options):
            if want.synced > state.versions[-1].synced:
                after = after._replace(lines=after.lines._replace(ranks=ranks))
            yield text, after, kind, rule

    def _broken_by(self, state: GroupState, want: Stored) -> str:
        if not self.config.plain:
            return super()._broken_by(state, want)
        now = state.versions[-1]
        return S4 if want.synced < now.synced or not now.deprecated <= want.deprecated <= want.synced else ""


def explore_resume(config: ResumeConfig, states_max: int = 10**9) -> Result:
    """Visit every state of a group whose Pods save steps."""
    return explore_world(str(config), ResumeWorld(config), states_max)


_TWO: Final = ResumeConfig(2, frozenset(), slots=2)
_SPARES: Final = changed(_TWO, plain=False, slots=3, steps=1)
_JOBS: Final = changed(_SPARES, faults=1, slots=4, pods=2, sizes=Sizes(1, 1), stale=1)  # a Job trains, one is a spare


def _explored(config: ResumeConfig, names: str, **options: Any) -> ResumeConfig:
    return changed(config, kinds=kinds(names), **options)


RESUME_QUICK: Final = (
    _explored(_TWO, "worker delete agent patch", faults=1, shared=True),
    _explored(_TWO, "worker resize"),
    _explored(_TWO, "worker lost"),
    _explored(_SPARES, "worker delete", faults=1, sizes=Sizes(1, 2), is_patient=False, slots=2),
    _explored(_JOBS, "worker"),
)
# The largest first, so that two processes finish at about the same time.
RESUME_FULL: Final = (
    _explored(_TWO, "worker unfit", shared=True, sparse=True),
    _explored(_TWO, "worker lost delete", faults=3, steps=1),
    _explored(_TWO, "worker delete agent patch controller", shared=True),
    _explored(_TWO, "worker stripped delete", faults=3, steps=1),
    _explored(_TWO, "worker agent patch unfit write", sparse=True),
    _explored(_TWO, "worker delete controller handover agent", lag=2),
    _explored(_TWO, "worker resize controller", faults=3, listed=True),
    _explored(_TWO, "worker", slots=3, shared=True, steps=1),
    _explored(_SPARES, "worker delete", sizes=Sizes(1, 2), is_patient=False, slots=2),
    _explored(_JOBS, "worker delete", shared=True),
    _explored(_SPARES, "worker delete", faults=1, shared=True),
    _explored(_SPARES, "worker unfit patch", sizes=Sizes(1, 1), slots=2, shared=True, steps=2),
    *RESUME_QUICK,
)
