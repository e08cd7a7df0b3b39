"""The queue loses nothing, keeps the order of each namespace, and gives namespaces equal places."""

import gc
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.fair_queue import FairQueue

PLACES_MAX = 5
Item = tuple[int, int]  # a number of its own, and the places that it takes
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "take", "discard"]), st.integers(0, 3), st.integers(1, PLACES_MAX)), max_size=80
)


class Dumb:
    """The same, by looking through lists: whose turn came longest ago goes, if it owes nothing."""

    def __init__(self) -> None:
        self.items: list[tuple[Hashable, Item]] = []
        self.turns: list[Hashable] = []
        self.owed: Counter[Hashable] = Counter()

    def put(self, namespace: Hashable, item: Item) -> None:
        """Add an item."""
        self.items.append((namespace, item))
        if namespace not in self.turns:
            self.turns.append(namespace)

    def of(self, namespace: Hashable) -> list[Item]:
        """Return the items of a namespace."""
        return [item for one, item in self.items if one == namespace]

    def head(self) -> tuple[Hashable, Item] | None:
        """Return the next item."""
        while self.items:
            namespace = self.turns[0]
            if not self.owed[namespace] and self.of(namespace):
                return namespace, self.of(namespace)[0]
            self.turns.remove(namespace)
            if self.owed[namespace]:
                self.owed[namespace] -= 1
                self.turns.append(namespace)
        return None

    def remove(self, namespace: Hashable, item: Item, places: int) -> None:
        """Remove an item that took so many places."""
        self.items.remove((namespace, item))
        if not self.items:
            self.turns, self.owed = [], Counter()
        elif places:
            self.turns.remove(namespace)
            self.turns.append(namespace)
            self.owed[namespace] += places - 1


@given(STEPS)
def test_it_does_what_a_dumb_model_does(steps: Sequence[tuple[str, int, int]]) -> None:
    """With any additions, takes and removals the next item is the model's, and none is lost or doubled."""
    queue, model = FairQueue[Item](), Dumb()
    for number, (what, namespace, places) in enumerate(steps):
        if what == "put":
            queue.put(namespace, (number, places))
            model.put(namespace, (number, places))
        elif what == "discard":
            item = next(reversed(model.of(namespace)), (-1, 0))
            assert queue.discard(namespace, item) == (item[0] >= 0)
            if item[0] >= 0:
                model.remove(namespace, item, 0)
        elif (head := queue.head()) is not None:
            assert queue.take(head[0], head[1][1]) == head[1]
            model.remove(head[0], head[1], head[1][1])
        assert queue.head() == model.head()
        assert len(queue) == len(model.items)


def taken(queue: FairQueue[Item], count: int) -> Iterable[tuple[object, int]]:
    """Take so many items; yield the namespace and the places of each."""
    for _ in range(count):
        head = queue.head()
        assert head is not None
        namespace, (_, places) = head
        queue.take(namespace, places)
        yield namespace, places


@given(st.lists(st.lists(st.integers(1, PLACES_MAX), min_size=60, max_size=60), min_size=2, max_size=4))
def test_namespaces_that_always_wait_get_equal_places(sizes: Sequence[Sequence[int]]) -> None:
    """However large the items of each are, no two namespaces are further apart than by two of the largest items."""
    queue = FairQueue[Item]()
    for number in range(60):
        for index, its in enumerate(sizes):
            queue.put(index, (number, its[number]))
    places = Counter[object]()
    for namespace, size in taken(queue, 60):
        places[namespace] += size
        assert max(places.values()) - min(places[one] for one in range(len(sizes))) <= 2 * PLACES_MAX


@pytest.mark.attack
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 40))
def test_a_newcomer_waits_for_one_item_of_each_other(namespaces: int, queued: int, gone: int) -> None:
    """An item of a namespace that had none comes after at most one of each other, however many those have queued."""
    queue = FairQueue[Item]()
    for number in range(queued):
        for namespace in range(namespaces):
            queue.put(namespace, (number, 1))
    list(taken(queue, min(gone, namespaces * queued - 1)))
    queue.put("new", (0, 1))
    before = [namespace for namespace, _ in taken(queue, min(len(queue), namespaces + 1))]
    assert "new" in before
    assert max(Counter(before).values()) == 1


def test_who_comes_back_again_and_again_gains_nothing() -> None:
    """A namespace that always has one item waiting gets as many turns as one that has a thousand."""
    queue = FairQueue[Item]()
    for number in range(1_000):
        queue.put("many", (number, 1))
    queue.put("again", (0, 1))
    places = Counter[object]()
    for namespace, size in taken(queue, 200):
        places[namespace] += size
        if namespace == "again":
            queue.put("again", (0, 1))
    assert places == {"many": 100, "again": 100}


@pytest.mark.attack
def test_large_items_do_not_come_as_often_as_small_ones() -> None:
    """After an item of 50 places, 50 of one place each of another namespace go before the next large one."""
    queue = FairQueue[Item]()
    for number in range(3):
        queue.put("large", (number, 50))
    for number in range(200):
        queue.put("small", (number, 1))
    order = [size for _, size in taken(queue, 153)]
    assert [place for place, size in enumerate(order) if size == 50] == [0, 51, 102]


@given(st.lists(st.integers(0, 3), max_size=30), st.sets(st.integers(0, 3)))
def test_a_namespace_that_may_not_go_is_passed_over(namespaces: Sequence[int], barred: set[int]) -> None:
    """The next item is the oldest of the first namespace that may have a turn, and the others keep theirs."""
    queue = FairQueue[Item]()
    items = [(namespace, (number, 1)) for number, namespace in enumerate(namespaces)]
    for namespace, item in items:
        queue.put(namespace, item)
    allowed = (one for one in items if one[0] not in barred)
    assert queue.head(lambda namespace: namespace not in barred) == next(allowed, None)
    assert queue.head() == next(iter(items), None)


def test_nothing_is_kept_of_who_is_gone() -> None:
    """A queue that ran empty holds nothing of a thousand namespaces, some of which owed places."""

    class Name:
        """A name of a namespace."""

    queue, names = FairQueue[Item](), WeakSet[Name]()
    for number in range(1_000):
        names.add(name := Name())
        queue.put(name, (number, 1 + number % 7))
    del name
    assert len(names) == 1_000
    assert len(list(taken(queue, 1_000))) == 1_000
    gc.collect()
    assert not names
