"""The grammar that the annotations share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import decimal
from inplace.common.wire.parts import read_parts, unix_s, unix_text, whole

READERS = {"a": whole(1, 30), "at": unix_s}
ORDERS = (("a", "at"), ("at",))


@given(st.integers(1, 30), st.integers(0, 10**13 - 1))
def test_what_is_written_is_read(number: int, milliseconds: int) -> None:
    """Values come by name."""
    text = f"v1,a={number},at={unix_text(milliseconds / 1000)}"
    assert read_parts(text, READERS, ORDERS, 40) == {"a": number, "at": milliseconds / 1000}


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v2,at=1790000000123", "v1,a=1", "v1,at=1790000000123,a=1", "v1,a=01,at=1790000000123", "v1,b=1,at=1",
     "v1,a=0,at=1790000000123", "v1,a=31,at=1790000000123", "v1,a=1,a=1,at=1790000000123", "v1,at=179",
     "v1,at=-790000000123",
     "v1,a=٣,at=1790000000123", "v1,a=1,at=1790000000123,", "v1,a=1,at=1790000000123" + " " * 40],
)  # fmt: skip
def test_another_spelling_is_nothing(text: str) -> None:
    """One spelling for each content: order, names, digits and length."""
    assert read_parts(text, READERS, ORDERS, 40) is None


@given(st.text(max_size=12) | st.binary(max_size=12), st.integers(0, 10**6))
def test_a_decimal_number_is_ascii_and_bounded(digits: str | bytes, most: int) -> None:
    """Whatever a stranger wrote, it is a number in the range or None."""
    number = decimal(digits, most)
    assert number is None or (0 <= number <= most and int(digits) == number)


def test_a_moment_beyond_its_digits_is_cut() -> None:
    """A clock that jumped to the year 5000 breaks nothing."""
    assert (unix_text(1e11), unix_text(-1.0)) == ("9999999999999", "0000000000000")
