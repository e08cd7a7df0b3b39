"""Who plays which rank, and how many play."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import AgentPhase, AgentState, View, is_spare
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import EXCHANGES_MAX, Members, Sizes, choose, members_of
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Shape, Slot

JOB = "workers"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(Sizes(2, 2), [0, 0, 2, 2, 2]), (Sizes(1, 3), [0, 1, 2, 3, 3]), (Sizes(1, 4, 2), [0, 0, 2, 2, 4])],
)
def test_a_size_fits(sizes: Sizes, expected: list[int]) -> None:
    """The largest size for 0 to 4 slots is the largest one, less a number of steps; below the least there is none."""
    assert [sizes.fit(available) for available in range(5)] == expected


@st.composite
def choices(draw: st.DrawFn) -> tuple[set[int], Members, int, frozenset[int]]:
    """Return slots that arrived, a members before, a size, and slots to avoid."""
    before = draw(st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True))
    arrived = draw(st.sets(st.integers(0, 12), min_size=1))
    avoided = draw(st.frozensets(st.integers(0, 12)))
    return arrived, members_of(1, before, 1), draw(st.integers(1, min(8, len(arrived)))), avoided


@given(choices())
def test_who_plays_a_rank_keeps_it(choice: tuple[set[int], Members, int, frozenset[int]]) -> None:
    """Each rank has a slot of its own that arrived; who is there and need not be avoided stays; spares go first."""
    arrived, before, size, avoided = choice
    slots = choose(arrived, before, size, avoided)
    assert slots is not None
    assert len(set(slots)) == size
    assert set(slots) <= arrived
    for rank, slot in enumerate(before.slots()[:size]):
        if slot in arrived - avoided:
            assert slots[rank] == slot
    if avoided.intersection(slots):
        assert not (arrived - avoided).difference(slots)


def test_an_avoided_player_gives_its_rank_away() -> None:
    """An avoided player gives its rank away, where a spare is left once the lost ranks are taken."""
    before = Members(1, 3)
    assert choose([0, 1, 2, 3], before, 3, avoided=frozenset({1})) == [0, 3, 2]
    assert choose([0, 1, 3], before, 3, avoided=frozenset({1})) == [0, 1, 3]


SPARE = AgentState(phase=AgentPhase.WAITING, epoch=3, slot=4, view=View(2, 1, members=Members(2, 3)), accepted=9)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (SPARE, True),
        (replace(SPARE, phase=AgentPhase.ANNOUNCING), True),  # again, after a long wait
        (replace(SPARE, phase=AgentPhase.ANNOUNCING, accepted=0), False),
        (replace(SPARE, phase=AgentPhase.RESTARTING), False),
        (replace(SPARE, slot=2), False),  # its worker of S ended
        (replace(SPARE, slot=None), False),
        (replace(SPARE, epoch=2), False),  # not yet told
        (replace(SPARE, view=View(2, 2, members=Members(2, 3))), False),  # nobody runs
        (replace(SPARE, view=View(2, 1, members=Members(1, 3))), False),
        (replace(SPARE, view=View(2, 1)), False),
        (replace(SPARE, view=View(2, 1, in_place=False, members=Members(2, 3))), False),
        (AgentState(slot=4), False),
    ],
)
def test_a_spare_waits_while_its_group_runs(state: AgentState, expected: bool) -> None:
    """It announced S + 1, S runs, and its slot plays no rank in it."""
    assert is_spare(state) is expected


def test_too_many_exchanges_wait() -> None:
    """Ranks go back to their owners before a members has too many exchanges; with more of them lost, it waits."""
    swapped = members_of(1, [*range(600, 1200), *range(600)], 1)
    assert choose(range(1200), swapped, 1200) == list(range(1200))
    assert choose(range(EXCHANGES_MAX + 1, 1200), Members(1, 600), 600) is None


def ledger_of(slots: int, sizes: Sizes) -> MemberLedger:
    """Return a ledger of new Pods that announced epoch 1."""
    ledger = MemberLedger(Shape({JOB: (1, slots)}), sizes=sizes)
    for number in range(slots):
        ledger.observe(PodView(f"uid-{number}", Slot(JOB, 0, number), 1, version=number + 1))
    return ledger


def test_a_large_group_costs_little() -> None:
    """5,000 Pods announce, and a decision is asked at each event: with O(slots) at each this would take a minute."""
    ledger = MemberLedger(Shape({JOB: (1, 5000)}), sizes=Sizes(4000, 4990))
    for number in range(5000):
        ledger.observe(PodView(f"uid-{number}", Slot(JOB, 0, number)))
    for number in range(4989):
        ledger.observe(PodView(f"uid-{number}", Slot(JOB, 0, number), 1, version=number + 1))
        assert ledger.decide(restarts_max=0).synced == 0
    ledger.observe(PodView("uid-4999", Slot(JOB, 0, 4999), 1, version=5000))
    members = ledger.decide(restarts_max=0).members
    assert members == Members(1, 4990, ((4989, 4999),), 5000)


def test_planned_exchanges_are_the_callers() -> None:
    """A slot to be avoided plays no rank of the next epoch where a spare is there."""
    ledger = ledger_of(3, Sizes(2, 2))
    assert ledger.decide(restarts_max=0, avoided=frozenset({1})).members == Members(1, 2, ((1, 2),), 3)


def test_a_planned_move_waits_for_a_pod_that_ends() -> None:
    """Members leave for spares that are not avoided; one that ends already only where workers may save."""
    ledger, one, two = ledger_of(4, Sizes(2, 2)), frozenset({1}), frozenset({1, 2})
    ledger.learn(1, 0, Members(1, 2, seen=4))
    for number in (2, 3):
        ledger.observe(PodView(f"uid-{number}", Slot(JOB, 0, number), 2, version=number + 5))
    assert [ledger.movable(one, avoided, lambda: False) for avoided in (one, two, two | {3})] == [1, 1, 0]
    ledger.observe(PodView("uid-1", Slot(JOB, 0, 1), 1, PodLife.LEAVING, version=9))
    assert [ledger.movable(one, one, saves) for saves in (lambda: False, lambda: True)] == [0, 1]


views = st.builds(
    PodView,
    st.sampled_from(["uid-0", "uid-1", "uid-2", "uid-3", "uid-4"]),
    st.builds(Slot, st.just(JOB), st.integers(0, 1), st.integers(0, 3)),
    st.none() | st.integers(1, 4),
    st.sampled_from(PodLife),
    version=st.integers(1, 9),
    ran=st.integers(0, 3),
)
uids = st.sampled_from(["uid-0", "uid-1", "uid-2", "uid-3", "uid-4"])
statuses = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.sampled_from([None, [0], [0, 1], [2, 1]]), st.integers(0, 9)
)
events = st.one_of(
    st.tuples(st.just("observe"), views),
    st.tuples(st.sampled_from(["vanish", "forget", "fence"]), uids),
    st.tuples(st.just("learn"), statuses),
    st.tuples(st.just("trust"), st.builds(Slot, st.just(JOB), st.integers(0, 1), st.integers(0, 2))),
    st.tuples(st.just("relisted"), st.integers(0, 2)),
)


@pytest.mark.parametrize("shape", [(1, 3), (3, 2)], ids=["pods", "jobs"])
@given(history=st.lists(events, max_size=30))
def test_what_is_kept_up_to_date_is_what_is_there(shape: tuple[int, int], history: list[tuple[str, Any]]) -> None:
    """After any events each slot is judged as it would be by looking at all Pods; and a decision only grows S and D."""
    ledger = MemberLedger(Shape({JOB: shape}), sizes=Sizes(1, 2))
    for name, value in history:
        if name == "learn":
            synced, deprecated, slots, seen = value
            members = members_of(synced, slots, seen, pods=ledger.shape.pods) if slots and synced else None
            ledger.learn(synced, min(synced, deprecated), members)
        else:
            getattr(ledger, name)(value)
        kept = judged(ledger)
        ledger._weigh_all()
        assert kept == judged(ledger)
        decision = ledger.decide(restarts_max=9, waited=True)
        assert ledger.synced <= decision.synced
        assert ledger.deprecated <= decision.deprecated <= decision.synced
        if decision.members is not None:
            assert decision.members.is_sound()


def judged(ledger: MemberLedger) -> tuple[Any, ...]:
    """Return copies of the units and slots by what they mean for the barrier."""
    units = (ledger._arrived, ledger._spares, ledger._coming, ledger._here, ledger._there)
    slots = (ledger._blocking, ledger.doubted, ledger._lost, ledger._back)
    return {slot: flags for slot, flags in ledger._weights.items() if flags}, *(one.copy() for one in (*units, *slots))


def test_a_pod_of_a_job_has_a_place_among_all_pods() -> None:
    """Its Job's rank times the Pods of a Job, and its own number in it; no place for a spare's, or a new Pod."""
    of_jobs, of_pods = Members(1, 2, ((0, 2),), pods=4), Members(1, 2, ((0, 2),))
    assert [of_jobs.place_of(job, 3) for job in range(3)] == [None, 7, 3]
    assert of_jobs.place_of(2, 4) is None
    assert [of_pods.place_of(0, index) for index in range(3)] == [None, 1, 0]
    assert (of_jobs.pods_in_all, of_pods.pods_in_all) == (8, 2)


def test_large_jobs_cost_little() -> None:
    """10 Jobs of 500 Pods announce, and a decision is asked at each event: no event costs the Pods of its Job."""
    ledger = MemberLedger(Shape({JOB: (10, 500)}), sizes=Sizes(8, 9))
    slots = [Slot(JOB, job, index) for job in range(10) for index in range(500)]
    for version, slot in enumerate(slots[500:], 1):
        assert ledger.decide(restarts_max=0).synced == 0
        ledger.observe(PodView(str(slot), slot, 1, version=version))
    assert ledger.decide(restarts_max=0).members == Members(1, 9, ((0, 9),), 4500, pods=500)
    assert (ledger.gathered(), ledger.expected) == (4500, 4500)


def test_a_job_that_shrinks_still_doubts_the_worker_that_nobody_saw_end() -> None:
    """A Pod of it was deleted by force, and its slot is not expected any more: no barrier lifts beside its worker."""
    ledger = MemberLedger(Shape({JOB: (2, 2)}), sizes=Sizes(1, 1))
    slots = [Slot(JOB, job, index) for job in range(2) for index in range(2)]
    for version, slot in enumerate(slots, 1):
        ledger.observe(PodView(str(slot), slot, 1, version=version))
    ledger.learn(1, 0, Members(1, 1, seen=4, pods=2))
    ledger.vanish(str(slots[1]))
    ledger.learn(1, 1, Members(1, 1, seen=4, pods=2))
    ledger.reshape(Shape({JOB: (2, 1)}))
    ledger.vanish(str(slots[3]))  # of the spare Job
    for version, slot in enumerate((slots[0], slots[2]), 5):
        ledger.observe(PodView(str(slot), slot, 2, version=version))
    assert (ledger.decide(restarts_max=9).synced, ledger.doubted) == (1, {slots[1]})
    ledger.trust(slots[1])
    assert ledger.decide(restarts_max=9).members == Members(2, 1, seen=6, pods=1)


def test_a_pod_outside_the_shape_may_still_wait_at_the_barrier() -> None:
    """It went while its slot was not expected. Both may come back, so the epoch that it announced is skipped."""
    ledger = ledger_of(3, Sizes(1, 2))
    ledger.learn(1, 0, Members(1, 2, seen=3))
    ledger.observe(PodView("uid-2", Slot(JOB, 0, 2), 2, version=4))
    ledger.reshape(Shape({JOB: (1, 2)}))
    ledger.vanish("uid-2")
    ledger.reshape(Shape({JOB: (1, 3)}))
    ledger.observe(PodView("uid-0", Slot(JOB, 0, 0), 2, version=5))
    ledger.observe(PodView("new-2", Slot(JOB, 0, 2), 2, version=6))
    ledger.observe(PodView("uid-1", Slot(JOB, 0, 1), life=PodLife.SUCCEEDED, version=7))
    decision = ledger.decide(restarts_max=9)
    assert (decision.synced, decision.deprecated) == (2, 2)
    assert decision.members is not None
    assert decision.members.skipped


def test_a_job_that_grows_lost_nobody() -> None:
    """Its new slots are empty until Pods come; the first one that announces ends the epoch, as without spares."""
    ledger = MemberLedger(Shape({JOB: (2, 1)}), sizes=Sizes(1, 1))
    ledger.observe(PodView("uid-0", Slot(JOB, 0, 0), 1, version=1))
    ledger.learn(1, 0, Members(1, 1, seen=1, pods=1))
    ledger.reshape(Shape({JOB: (2, 2)}))
    assert ledger.decide(restarts_max=9).deprecated == 0
    ledger.observe(PodView("uid-1", Slot(JOB, 0, 1), 2, version=2))
    assert ledger.decide(restarts_max=9).deprecated == 1
