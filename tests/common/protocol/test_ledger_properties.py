"""The ledger's counters agree with a simple count of all Pods, after any events in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.slot import Shape, Slot
from tests.common.protocol.dumb_ledger import DumbLedger

PODS = 7  # more than slots: duplicates and ghosts
SHAPES = [Shape({"a": (replicas, parallelism)}) for replicas in range(3) for parallelism in range(3)]

epochs = st.one_of(st.none(), st.integers(1, 5), st.just(INT32_MAX))
workers = st.builds(Worker, st.sampled_from(["", "x", "y"]), st.booleans(), st.booleans())


@st.composite
def pod_views(draw: st.DrawFn) -> PodView:
    """Draw a Pod; its uid fixes its slot, and some slots have two Pods."""
    number = draw(st.integers(0, PODS - 1))
    slot = Slot("a", *divmod(number % 5, 2))
    told = draw(st.one_of(st.none(), st.none(), st.integers(1, 5)))
    life = draw(st.sampled_from(PodLife))
    return PodView(f"uid-{number}", slot, draw(epochs), life, draw(workers), failed_epoch=told)


statuses = st.integers(0, 5).flatmap(lambda synced: st.tuples(st.just(synced), st.integers(0, synced)))
events = st.one_of(
    st.tuples(st.just("observe"), pod_views()),
    st.tuples(st.just("observe"), pod_views()),  # twice as often
    st.tuples(st.just("forget"), st.integers(0, PODS - 1).map("uid-{}".format)),
    st.tuples(st.just("vanish"), st.integers(0, PODS - 1).map("uid-{}".format)),
    st.tuples(st.just("learn"), statuses),
    st.tuples(st.just("obey"), st.none()),
    st.tuples(st.just("reshape"), st.sampled_from(SHAPES)),
)


def play(ledger: Ledger | DumbLedger, name: str, value: object, restarts_max: int = INT32_MAX) -> None:
    """Perform one event."""
    if name == "learn":
        assert isinstance(value, tuple)
        ledger.learn(*value)
    elif name == "obey":
        decision = ledger.decide(restarts_max=restarts_max)
        ledger.learn(decision.synced, decision.deprecated)
    else:
        getattr(ledger, name)(value)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=40))
def test_what_observe_calls_nothing_new_changes_no_decision(shape: Shape, history: list[tuple[str, object]]) -> None:
    """When `observe` reports no change, `decide` gives the same decision as before."""
    ledger = Ledger(shape)
    for name, value in history:
        if isinstance(value, PodView):
            before = ledger.decide(restarts_max=INT32_MAX), ledger.decide(restarts_max=0)
            if not ledger.observe(value):
                assert (ledger.decide(restarts_max=INT32_MAX), ledger.decide(restarts_max=0)) == before
        else:
            play(ledger, name, value)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=40), st.integers(0, 4), st.sampled_from([0, 1, 3, INT32_MAX]))
def test_ledger_agrees_with_the_dumb_one(
    shape: Shape, history: list[tuple[str, object]], uncounted: int, restarts_max: int
) -> None:
    """After every event both ledgers decide the same and count the same."""
    ledger, dumb = Ledger(shape), DumbLedger(shape)
    for name, value in history:
        play(ledger, name, value)
        play(dumb, name, value)

        expected = dumb.decide(restarts_max=restarts_max, uncounted=uncounted)
        assert ledger.decide(restarts_max=restarts_max, uncounted=uncounted) == expected
        seen = [pod.epoch for pod in dumb._counted() if pod.epoch]
        assert ledger.histogram() == {epoch: seen.count(epoch) for epoch in seen}


@given(st.sampled_from(SHAPES), st.lists(events, max_size=40))
def test_who_is_absent_is_who_is_not_at_the_barrier(shape: Shape, history: list[tuple[str, object]]) -> None:
    """The absent slots are the expected slots, in order, whose one Pod is not live at the next epoch."""
    ledger, dumb = Ledger(shape), DumbLedger(shape)
    for name, value in history:
        play(ledger, name, value)
        play(dumb, name, value)

    expected = [slot for slot in dumb.shape if not dumb._is_at(slot, dumb.synced + 1)]
    arrived = ledger.arrived_by_job(ledger.next_epoch)
    assert [slot for slot, _ in ledger.absent(ledger.next_epoch, arrived)] == expected
    assert sum(arrived.values()) == ledger.arrived(ledger.next_epoch) == dumb.shape.size - len(expected)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=40))
def test_status_never_goes_back(shape: Shape, history: list[tuple[str, object]]) -> None:
    """S and D only grow, D never passes S, and no decision reaches beyond the highest announcement.

    The announcement of a vanished Pod counts: its epoch is skipped.
    """
    ledger, vanished = Ledger(shape), 0
    for name, value in history:
        if name == "vanish" and max(ledger.histogram(), default=0) > ledger.synced:
            vanished = max(vanished, ledger.next_epoch)
        before = (ledger.synced, ledger.deprecated)
        play(ledger, name, value)
        decision = ledger.decide(restarts_max=INT32_MAX)

        assert before <= (ledger.synced, ledger.deprecated)
        assert (ledger.synced, ledger.deprecated) <= (decision.synced, decision.deprecated)
        said = [record.pod.epoch or 0 for record in ledger._records.values()]
        assert decision.deprecated <= decision.synced <= max(ledger.synced, *said, vanished, 0)


@given(st.lists(pod_views(), max_size=12, unique_by=lambda pod: pod.uid), statuses, st.randoms(use_true_random=False))
def test_a_restarted_controller_decides_the_same_in_any_order(
    pods: list[PodView], status: tuple[int, int], random: object
) -> None:
    """The order of a list does not matter."""
    decisions = []
    for order in (pods, pods[::-1], sorted(pods, key=lambda pod: str(pod.epoch))):
        ledger = Ledger(SHAPES[-1], *status)
        for pod in order:
            ledger.observe(pod)
        decisions.append(ledger.decide(restarts_max=INT32_MAX))

    assert decisions[0] == decisions[1] == decisions[2]


@given(st.lists(pod_views(), max_size=20))
def test_forgetting_every_pod_leaves_nothing(pods: list[PodView]) -> None:
    """A ledger whose Pods are gone counts nothing, so it does not leak over a JobSet's life."""
    ledger = Ledger(SHAPES[-1])
    for pod in pods:
        ledger.observe(pod)
    for pod in pods:
        ledger.forget(pod.uid)

    assert ledger.histogram() == {}
    assert ledger.names_in_the_way() == {}
    assert not any([ledger._records, ledger._occupants, ledger._slots_at, ledger._succeeded, ledger._ghosts])
    assert not any([ledger._ahead, ledger._slots_ahead, ledger._shared_at])


@given(st.lists(pod_views(), max_size=20))
def test_repeated_events_change_no_count(pods: list[PodView]) -> None:
    """An event seen twice counts once."""
    once, twice = Ledger(SHAPES[-1]), Ledger(SHAPES[-1])
    for pod in pods:
        once.observe(pod)
        twice.observe(pod)
        twice.observe(pod)

    assert once == twice


def test_an_intruder_whose_slot_is_removed_is_a_ghost() -> None:
    """An intruder whose slot is removed becomes a ghost: it blocks the next sync and restarts no Pod."""
    ledger = Ledger(Shape({"a": (2, 1)}))
    for number in range(2):
        ledger.observe(PodView(f"uid-{number}", Slot("a", number, 0), 1))
    ledger.learn(1, 0)
    ledger.forget("uid-1")
    ledger.observe(PodView("uid-2", Slot("a", 1, 0), 1))
    assert ledger.decide(restarts_max=5).deprecated == 1

    ledger.reshape(Shape({"a": (1, 1)}))

    assert ledger.decide(restarts_max=5).deprecated == 0
    assert ledger.names_in_the_way() == {"ghost": [""]}
