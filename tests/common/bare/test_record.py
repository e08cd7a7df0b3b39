"""A record behaves as a frozen, slotted dataclass does."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.bare.record import record, replace


@record
class Point:
    """A record with a default and a property."""

    x: int
    y: int = 7

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.x + self.y


@record
class Other:
    """The same fields, another class."""

    x: int
    y: int = 7


@record
class Nothing:
    """No field."""


@record
class Secret:
    """A record with a representation of its own."""

    token: str

    def __repr__(self) -> str:
        return "Secret()"


@dataclass(frozen=True, slots=True)
class Reference:
    """The dataclass that Point must behave like."""

    x: int
    y: int = 7


@given(a=st.tuples(st.integers(0, 2), st.integers(0, 2)), b=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_records_are_equal_when_dataclasses_are(a: tuple[int, int], b: tuple[int, int]) -> None:
    """Equality and hash depend on the values; the representation shows them."""
    assert (Point(*a) == Point(*b)) == (Reference(*a) == Reference(*b))
    assert (hash(Point(*a)) == hash(Point(*b))) == (a == b)
    assert repr(Point(*a)) == repr(Reference(*a)).replace("Reference", "Point")


def test_another_class_with_the_same_values_is_not_equal() -> None:
    """Accepted(1) must never pass for NotAccepted(1)."""
    left: Any = Point(1)
    assert left != Other(1)
    assert left != (1, 7)
    assert Nothing() == Nothing()


def test_fields_are_arguments_by_place_and_name_with_defaults() -> None:
    """Fields are arguments as in a dataclass; a missing or unknown one raises TypeError."""
    assert Point(1) == Point(x=1, y=7)
    assert Point(1, 2).total == 3
    wrong: Any = Point
    for arguments in ((), (1, 2, 3)):
        with pytest.raises(TypeError):
            wrong(*arguments)
    with pytest.raises(TypeError, match="z"):
        wrong(1, z=3)


def test_a_record_matches_by_place() -> None:
    """`case Point(x, y)` works."""
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


@pytest.mark.parametrize(
    "change", [lambda p: setattr(p, "x", 2), lambda p: delattr(p, "x"), lambda p: setattr(p, "z", 2)]
)
def test_a_record_cannot_be_changed(change: Any) -> None:
    """Setting any attribute raises the error of a frozen dataclass."""
    assert issubclass(FrozenInstanceError, AttributeError)
    point = Point(1)
    with pytest.raises(AttributeError, match="Point is frozen"):
        change(point)
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_a_record_may_be_replaced_copied_and_pickled() -> None:
    """A changed copy is a new record, of the same class."""
    assert replace(Point(1, 2), y=3) == Point(1, 3)
    assert replace(Reference(1, 2), y=3) == Reference(1, 3)
    assert copy(Point(1, 2)) == pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)  # noqa: S301 - our own bytes


def test_a_representation_of_its_own_stays() -> None:
    """A class's own __repr__ is kept."""
    assert repr(Secret("t")) == "Secret()"
