"""A shape expects exactly as many slots as it counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.slot import Shape, Slot

sizes = st.dictionaries(st.sampled_from(["a", "b"]), st.tuples(st.integers(0, 4), st.integers(0, 4)))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw a shape without some of its Jobs."""
    jobs = draw(sizes)
    places = [(name, index) for name, (replicas, _) in jobs.items() for index in range(replicas)]
    return Shape(jobs, frozenset(draw(st.sets(st.sampled_from(places)))) if places else frozenset())


@given(shapes())
def test_size_is_the_number_of_expected_slots(shape: Shape) -> None:
    """The number of expected slots, counted one by one, is N."""
    slots = [Slot(name, job, index) for name in ("a", "b", "c") for job in range(-1, 6) for index in range(-1, 6)]

    assert shape.size == sum(shape.expects(slot) for slot in slots)


def test_slot_is_named_like_its_pod() -> None:
    """A Pod's name begins with its slot's."""
    assert str(Slot("workers", 0, 3)) == "workers-0-3"


def test_nothing_is_expected_of_an_empty_jobset() -> None:
    """A JobSet without replicatedJobs has no slots."""
    assert Shape().size == 0
    assert not Shape().expects(Slot("a", 0, 0))
