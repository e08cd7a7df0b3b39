"""
Combine one scope of a JobSet and its Pods: which slots are where, and for whom it waits. Pure.

Of a group with spares only members count while an epoch runs: its other slots have a spare each, or are vacant, and
nobody waits for them. While it gathers, any slot may give it a member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice

from inplace.cli.group.pod_facts import PodFact, Roles, slot_state
from inplace.cli.group.straggler import Straggler, Why, straggler_of
from inplace.cli.terminal.moments import count_text
from inplace.common.bare.record import replace as changed
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.headline import GroupPhase, Slots, SlotState
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
        expected: N; of a group with spares its members: those of the epoch that runs, else at full strength.
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
        vacant: the slots of such a group that neither train nor wait as spares, and why.
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

    @property
    def phase(self) -> GroupPhase:
        """Return where it is."""
        return self.slots.phase

    @property
    def noun(self) -> str:
        """Return what `expected` counts."""
        return "Pod" if self.slots.sizes is None else "member"


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
    playing = {slot: pod for slot, pod in found.items() if _plays(slot, numbers)}
    live = {slot: pod for slot, pod in playing.items() if pod.is_live}
    # No group has an epoch beyond S + 1 yet: the controller ignores such an announcement.
    newest = max((pod.epoch for pod in live.values() if pod.epoch <= scope.synced + 1), default=0)
    target = max(newest, scope.synced, scope.deprecated + 1)
    size = shape.size
    if target == scope.synced:  # who is done with the epoch that runs keeps nobody waiting
        live |= {slot: pod for slot, pod in playing.items() if pod.is_done}
        size = shape.size if members is None else members.size
    else:
        playing, live = found, {slot: pod for slot, pod in found.items() if pod.is_live}
    behind = sorted(slot for slot in playing if slot not in live or live[slot].epoch != target)
    expected, arrived = size, len(playing) - len(behind)
    absent = size - len(playing)
    if sizes is not None and target != scope.synced:
        expected, arrived = sizes.most, min(arrived, sizes.most)
        if arrived == expected:  # it waits for nobody but slots in which a worker may still run
            behind, absent = [slot for slot in behind if _may_run(slot, found[slot], scope)], 0
    awaited = shape if numbers is None or target != scope.synced else _slots(shape, sorted(numbers))
    missing = list(islice((slot for slot in awaited if slot not in found), min(named_max, absent)))
    stragglers = [
        straggler_of(str(slot), found.get(slot), scope.deprecated, target, has_agent=slot.replicated_job in written)
        for slot in (*behind, *missing)
    ]
    states = {
        slot: slot_state(pod, scope, roles.get(slot.replicated_job, Roles()), reporting)
        for slot, pod in sorted(found.items())
        if _plays(slot, numbers)
    }
    trained = shape.size if numbers is None else len(numbers)
    first = _first_of(states, found, stragglers)
    if sizes is not None and arrived == expected and not scope.is_running:
        first.pop(SlotState.PENDING, None)  # any other slot keeps nobody waiting
        first |= {SlotState.PENDING: f"{one.name} ({one.reason})" for one in stragglers[:1]}  # noqa: B035 - one or none
    vacant = _vacant(shape, found, numbers, scope) if sizes is not None else []
    slots = Slots(
        Counter(states.values()) + Counter({SlotState.VACANT: trained - len(states)}),
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
        of_s.resume if of_s is not None else None,
    )


def _plays(slot: Slot, numbers: Set[int] | None) -> bool:
    """Say whether a slot may be a member's; where nobody knows the members, any may."""
    return numbers is None or slot.completion_index in numbers


def _slots(shape: Shape, numbers: Iterable[int]) -> Iterator[Slot]:
    """Yield the slots of a group with spares by their numbers: it is one replicatedJob with one Job."""
    return (Slot(job, 0, number) for job in islice(shape.replicated_jobs, 1) for number in numbers)


def _may_run(slot: Slot, pod: PodFact, scope: Scope) -> bool:
    """Say whether a worker of an epoch that is over may run in a slot with a Pod, which keeps spares from its rank."""
    last = scope.ranks
    played = last is None or last.epoch != scope.synced or last.rank_of(slot.completion_index) is not None
    return played and bool(pod.epoch) and not pod.has_ended


def _vacant(shape: Shape, pods: Mapping[Slot, PodFact], numbers: Set[int] | None, scope: Scope) -> list[Straggler]:
    """Return the slots that are no member's and have no spare; none where nobody knows the members."""
    apart = [] if numbers is None else sorted(set(range(min(shape.size, SLOTS_MAX))).difference(numbers))
    slots = (slot for slot in _slots(shape, apart) if slot not in pods or not pods[slot].is_spare(scope.synced))
    found = [straggler_of(str(slot), pods.get(slot), scope.deprecated, scope.synced + 1) for slot in slots]
    # At S a Pod that plays no rank announces S + 1: it waits for no controller.
    return [replace(one, why=Why.SILENT) if one.why is Why.UNTOLD else one for one in found]


def _with_spares(slots: Slots, shape: Shape, vacant: Sequence[Straggler], sizes: Sizes) -> Slots:
    """Add what the slots do that do not train."""
    words, trained = "", sum(slots.counts.values())
    if vacant:
        words = f"slot {vacant[0].slot.rpartition('-')[2]}"
        words = f"{len(vacant):,} slots are vacant, the first is {words}" if vacant[1:] else f"{words} is vacant"
        words = f"{words}: {vacant[0].reason}"
    counts = Counter(slots.counts) + Counter({SlotState.SPARE: max(0, shape.size - trained - len(vacant))})
    return changed(slots, counts=counts, sizes=sizes, spares_max=max(0, shape.size - sizes.most), vacant=words)


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
    return ", ".join(f"rank {rank} is slot {slot}" for rank, slot in exchanged[:RANKS_SHOWN]) + more


def resume_text(scope: ScopeState) -> str:
    """Say from which step the epoch that runs went on; "" where nobody could say."""
    if scope.resume is None:
        return ""
    whose = (
        f"all {count_text(scope.expected, scope.noun)} have it themselves" if scope.resume.local else "shared storage"
    )
    return f"went on from step {scope.resume.step:,} ({whose})"
