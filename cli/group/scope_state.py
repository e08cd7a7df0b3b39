"""
Combine one scope of a JobSet and its Pods: which slots are where, and for whom it waits. Pure.

Of a group with spares only members count while an epoch runs: its other slots have a spare each, or are vacant, and
nobody waits for them. While it gathers, any slot may give it a member. Where whole Jobs are members, Jobs are counted:
a Job is where its worst Pod is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice

from inplace.cli.group.pod_facts import PodFact, Roles, slot_state
from inplace.cli.group.straggler import Straggler, Why, straggler_of
from inplace.cli.terminal.moments import count_text
from inplace.common.bare.record import replace as changed
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.headline import PHASES, GroupPhase, Slots, SlotState
from inplace.common.jobset.scopes import Saving, Scope
from inplace.common.protocol.members import SLOTS_MAX, Members, Sizes, of_epoch
from inplace.common.protocol.resume import Resume
from inplace.common.protocol.slot import Shape, Slot

RANKS_SHOWN = 5  # that another slot plays; `-o json` has them all


@dataclass(frozen=True, slots=True)
class ScopeState:
    """One scope: what restarts together.

    Args:
        name: "" for the whole JobSet.
        synced: S.
        deprecated: D.
        target: the epoch that its Pods gather at, or run.
        expected: N; of a group with spares its members, Pods or Jobs: of the epoch that runs, else at full strength.
        epochs: how many slots announced which epoch; 0 for none yet, slots without a Pod left out, and spares while
            an epoch runs.
        working: Pods whose workers of this epoch were started.
        idle: names of the Pods at the epoch that runs whose workers were not.
        slots: what is known of its slots, which says its phase.
        arrived: how many of `expected` announced `target`.
        late: how many of them the others wait for.
        stragglers: slots that are not at `target` with a Pod, then the first of those without one. A group with spares
            waits for some of them.
        unnamed: how many slots without a Pod are not in `stragglers`.
        goodput: what its restarts cost in training time, where Pods told.
        saving: the restart that waits for its workers to save.
        members: who runs, in a group with spares; None of one without, and while none runs.
        resume: from which step the epoch that runs went on, as its barrier decided; None where nobody could say.
        shared: the newest step on shared storage that its Pods told of then; None for none.
        vacant: the slots of such a group that neither train nor wait as spares, and why; of a Job the first one.
    """

    name: str
    synced: int
    deprecated: int
    target: int
    expected: int
    epochs: Mapping[int, int]
    working: int
    arrived: int
    late: int
    unnamed: int
    stragglers: Sequence[Straggler]
    slots: Slots
    goodput: Goodput | None = None
    saving: Saving | None = None
    idle: Sequence[str] = ()
    members: Members | None = None
    vacant: Sequence[Straggler] = ()
    resume: Resume | None = None
    shared: int | None = None

    @property
    def phase(self) -> GroupPhase:
        """Return where it is."""
        return self.slots.phase

    @property
    def noun(self) -> str:
        """Return what `expected` counts."""
        return "Pod" if self.slots.sizes is None else self.slots.noun


def noun_of(scopes: Iterable[ScopeState]) -> str:
    """Return what is counted in several scopes together: Pods only where all count Pods."""
    return next((one.noun for one in scopes if one.noun != "Pod"), "Pod")


def scope_state(
    scope: Scope,
    shape: Shape,
    pods: Mapping[Slot, PodFact],
    named_max: int,
    roles: Mapping[str, Roles],
    written: Set[str],
    reporting: Set[str],
    sizes: Sizes | None = None,
) -> ScopeState:
    """Count the Pods of a scope.

    Args:
        scope: what the status says of it.
        shape: its slots.
        pods: of each slot the one that counts.
        named_max: how many slots without a Pod get a name.
        roles: of each replicatedJob.
        written: the replicatedJobs whose template has an agent.
        reporting: names of Pods whose ranks are known to report steps.
        sizes: how many members a group with spares may have; None of one without.
    """
    found = {slot: pod for slot, pod in pods.items() if shape.expects(slot)}
    of_s = of_epoch(scope.ranks, scope.synced) if scope.is_running else None
    members = of_s if sizes is not None else None
    numbers = None if members is None else frozenset(members.slots())
    playing = {slot: pod for slot, pod in found.items() if _plays(shape, slot, numbers)}
    live = {slot: pod for slot, pod in playing.items() if pod.is_live}
    # No group has an epoch beyond S + 1 yet: the controller ignores such an announcement.
    newest = max((pod.epoch for pod in live.values() if pod.epoch <= scope.synced + 1), default=0)
    target = max(newest, scope.synced, scope.deprecated + 1)
    size = shape.size
    if target == scope.synced:  # who is done with the epoch that runs keeps nobody waiting
        live |= {slot: pod for slot, pod in playing.items() if pod.is_done}
        size = shape.size if members is None else members.pods_in_all
    else:
        playing, live = found, {slot: pod for slot, pod in found.items() if pod.is_live}
    behind = sorted(slot for slot in playing if slot not in live or live[slot].epoch != target)
    expected, arrived = size, len(playing) - len(behind)
    absent = size - len(playing)
    if sizes is not None and shape.pods:
        units, here = _units(shape, numbers if target == scope.synced else None), playing.keys() - set(behind)
        expected = len(units)
        arrived = sum(all(slot in here for slot in shape.slots_of(unit)) for unit in units)
    if sizes is not None and target != scope.synced:
        expected, arrived = sizes.most, min(arrived, sizes.most)
        if arrived == expected:  # it waits for nobody but slots in which a worker may still run
            behind, absent = [slot for slot in behind if _may_run(slot, found[slot], scope)], 0
    awaited: Iterable[Slot] = shape
    if numbers is not None and target == scope.synced:
        awaited = (slot for unit in sorted(numbers) for slot in shape.slots_of(unit))
    missing = list(islice((slot for slot in awaited if slot not in found), min(named_max, absent)))
    stragglers = [
        straggler_of(str(slot), found.get(slot), scope.deprecated, target, has_agent=slot.replicated_job in written)
        for slot in (*behind, *missing)
    ]
    states = {
        slot: slot_state(pod, scope, roles.get(slot.replicated_job, Roles()), reporting)
        for slot, pod in sorted(found.items())
        if _plays(shape, slot, numbers)
    }
    if sizes is not None and shape.pods:
        counts = _of_jobs(shape, _units(shape, numbers), states, gathers=target != scope.synced)
    else:
        trained = shape.size if numbers is None else len(numbers)
        counts = Counter(states.values()) + Counter({SlotState.VACANT: trained - len(states)})
    first = _first_of(states, found, stragglers)
    if sizes is not None and arrived == expected and not scope.is_running:
        first.pop(SlotState.PENDING, None)  # any other slot keeps nobody waiting
        first |= {SlotState.PENDING: f"{one.name} ({one.reason})" for one in stragglers[:1]}  # noqa: B035 - one or none
    vacant = _vacant(shape, found, numbers, scope) if sizes is not None else []
    resume = None if of_s is None else of_s.resume
    told = (pod.shared_step for pod in live.values() if pod.epoch == scope.synced) if resume else ()
    slots = Slots(
        counts,
        scope.synced,
        scope.deprecated,
        scope.name,
        first,
        is_unequipped=len(found) == shape.size > 0
        and not any(slot.replicated_job in written or pod.may_have_agent for slot, pod in found.items()),
    )
    return ScopeState(
        scope.name,
        scope.synced,
        scope.deprecated,
        target,
        expected,
        dict(sorted(Counter(pod.epoch for pod in live.values()).items())),
        sum(state in (SlotState.RUNS, SlotState.STEPS) for state in states.values()),
        arrived,
        len(stragglers) if arrived == expected else max(expected - arrived, 0),
        absent - len(missing),
        stragglers,
        slots if sizes is None else _with_spares(slots, shape, vacant, sizes),
        scope.goodput,
        scope.saving_now,
        sorted(found[slot].name for slot, state in states.items() if state is SlotState.STARTS),
        members,
        vacant,
        resume,
        max((step for step in told if step is not None), default=None),
    )


def _plays(shape: Shape, slot: Slot, numbers: Set[int] | None) -> bool:
    """Say whether a slot may be a member's; where nobody knows the members, any may."""
    return numbers is None or shape.unit_of(slot) in numbers


def _units(shape: Shape, numbers: Set[int] | None) -> Collection[int]:
    """Return the units that may be members."""
    return shape.units() if numbers is None else numbers


def _of_jobs(
    shape: Shape, jobs: Iterable[int], states: Mapping[Slot, SlotState], *, gathers: bool
) -> Counter[SlotState]:
    """Count Jobs by the state of the Pod that decides; at a barrier one that waits there decides last."""
    counts = Counter[SlotState]()
    for job in jobs:
        found = {states.get(slot, SlotState.VACANT) for slot in shape.slots_of(job)}
        if gathers and len(found) > 1:
            found.discard(SlotState.WAITING)
        counts[next((state for state in PHASES if state in found), SlotState.SPARE)] += 1
    return counts


def _may_run(slot: Slot, pod: PodFact, scope: Scope) -> bool:
    """Say whether a worker of an epoch that is over may run in a slot with a Pod, which keeps spares from its rank."""
    last = scope.ranks
    played = last is None or last.epoch != scope.synced or last.place_of(*slot[1:]) is not None
    return played and bool(pod.epoch) and not pod.has_ended


def _vacant(shape: Shape, pods: Mapping[Slot, PodFact], numbers: Set[int] | None, scope: Scope) -> list[Straggler]:
    """Return the slots that are no member's and have no spare; none where nobody knows the members.

    Of a Job it is the first one.
    """
    apart = [] if numbers is None else sorted(set(shape.units()[:SLOTS_MAX]).difference(numbers))
    lacking = (
        next((one for one in shape.slots_of(unit) if one not in pods or not pods[one].is_spare(scope.synced)), None)
        for unit in apart
    )
    slots = (slot for slot in lacking if slot is not None)
    found = [straggler_of(str(slot), pods.get(slot), scope.deprecated, scope.synced + 1) for slot in slots]
    # At S a Pod that plays no rank announces S + 1: it waits for no controller.
    return [replace(one, why=Why.SILENT) if one.why is Why.UNTOLD else one for one in found]


def _with_spares(slots: Slots, shape: Shape, vacant: Sequence[Straggler], sizes: Sizes) -> Slots:
    """Add what the slots do that do not train."""
    words, trained, units = "", sum(slots.counts.values()), len(shape.units())
    if vacant:
        job, _, index = vacant[0].slot.rpartition("-")
        words, noun, pod = f"slot {index}", "slots", ""
        if shape.pods:
            words, noun, pod = f"Job {job}", "Jobs", f"Pod {index}: "
        words = f"{len(vacant):,} {noun} are vacant, the first is {words}" if vacant[1:] else f"{words} is vacant"
        words = f"{words}: {pod}{vacant[0].reason}"
    counts = Counter(slots.counts) + Counter({SlotState.SPARE: max(0, units - trained - len(vacant))})
    made = changed(slots, counts=counts, sizes=sizes, spares_max=max(0, units - sizes.most), vacant=words)
    return changed(made, noun="Job") if shape.pods else made


def _first_of(
    states: Mapping[Slot, SlotState], pods: Mapping[Slot, PodFact], stragglers: Iterable[Straggler]
) -> dict[SlotState, str]:
    """Return the first Pod of each state; of those that are waited for with the reason."""
    first: dict[SlotState, str] = {}
    late = {one.slot: f"{one.name} ({one.reason})" for one in stragglers}
    for slot, state in states.items():
        first.setdefault(state, late.pop(str(slot), pods[slot].name))
    for unseen in late.values():  # slots without a Pod
        first.setdefault(SlotState.VACANT, unseen)
    return first


def members_text(scope: ScopeState) -> str:
    """Say how many members it has at full strength and at least, and its spares while an epoch runs; else ""."""
    sizes = scope.slots.sizes
    if sizes is None:
        return ""
    bounds = f" (max {sizes.most:,}, min {sizes.least:,})" if scope.expected < sizes.most else ""
    spares = count_text(scope.slots.spares, "spare") if scope.slots.spares else "no spare"
    return bounds + (
        f" · {spares}" if scope.members is not None and (scope.slots.spares_max or scope.slots.spares) else ""
    )


def ranks_text(scope: ScopeState) -> str:
    """Say which ranks another slot plays than that of their own number; "" for none."""
    exchanged = scope.members.exchanged if scope.members is not None else ()
    more = f" and {len(exchanged) - RANKS_SHOWN:,} more" if len(exchanged) > RANKS_SHOWN else ""
    unit = "Job" if scope.members is not None and scope.members.pods else "slot"
    return ", ".join(f"rank {rank} is {unit} {slot}" for rank, slot in exchanged[:RANKS_SHOWN]) + more


def resume_text(scope: ScopeState) -> str:
    """Say from which step the epoch that runs went on; "" where nobody could say."""
    if scope.resume is None:
        return ""
    whose = "shared storage"
    if scope.resume.local:
        shared = "none" if scope.shared is None else f"{scope.shared:,}"
        whose = f"all {count_text(scope.expected, scope.noun)} have it themselves; shared: {shared}"
    return f"went on from step {scope.resume.step:,} ({whose})"
