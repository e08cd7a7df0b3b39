"""The texts of a group with spares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.members import EXCHANGES_MAX, SLOTS_MAX, Members, members_of
from inplace.common.wire.members import (
    MEMBERS_BYTES_MAX,
    Announced,
    announcement_text,
    members_text,
    read_announcement,
    read_members,
)

epochs = st.integers(1, INT32_MAX)
versions = st.integers(0, 2**64 - 1)
several_members = st.builds(
    members_of, epochs, st.lists(st.integers(0, SLOTS_MAX - 1), min_size=1, max_size=40, unique=True), versions
)


@given(several_members)
def test_it_comes_through(members: Members) -> None:
    """What is written is read again."""
    assert read_members(members_text(members)) == members


def test_the_largest_one_fits() -> None:
    """5,000 slots, 500 exchanges, the last epoch and the last version stay within the bound; one more does not."""
    most, last = SLOTS_MAX - EXCHANGES_MAX, SLOTS_MAX - 1
    exchanged = tuple((most - EXCHANGES_MAX + each, most + each) for each in range(EXCHANGES_MAX))
    text = members_text(Members(INT32_MAX, most, exchanged, 2**64 - 1))
    assert len(text) <= MEMBERS_BYTES_MAX
    assert read_members(text) == Members(INT32_MAX, most, exchanged, 2**64 - 1)
    assert read_members(members_text(Members(1, most, (*exchanged, (most, last)), 1))) is None


@given(st.text() | st.binary() | st.none() | st.integers())
def test_anything_is_read(text: object) -> None:
    """Nothing that may stand in a status, or on a Pod, is an error."""
    assert read_members(text) is None or isinstance(text, str)
    assert read_announcement(text, 1) is None or isinstance(text, str)


@given(several_members, st.data())
def test_what_is_read_is_sound(members: Members, data: st.DataObject) -> None:
    """However a text was spoiled: what is read has each rank once, no slot twice, and is written as it was read."""
    text = members_text(members)
    at = data.draw(st.integers(0, len(text) - 1))
    text = text[:at] + data.draw(st.text("0123456789,=vepochsizeran", max_size=3)) + text[at + 1 :]
    if (read := read_members(text)) is not None:
        slots = read.slots()
        assert len(set(slots)) == read.size
        assert [read.rank_of(slot) for slot in slots] == list(range(read.size))
        assert members_text(read) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "epoch=7,size=8,seen=1",
        "v1,epoch=7,size=8",
        "v1,epoch=7,size=0,seen=1",
        "v1,epoch=0,size=8,seen=1",
        "v1,epoch=7,size=8,seen=18446744073709551616",
        "v1,epoch=7,size=5501,seen=1",
        "v1,epoch=7,size=8,8=9,seen=1",  # no such rank
        "v1,epoch=7,size=8,3=5500,seen=1",
        "v1,epoch=7,size=8,3=5,seen=1",  # slot 5 would play two ranks
        "v1,epoch=7,size=8,3=9,4=9,seen=1",
        "v1,epoch=7,size=8,4=9,3=10,seen=1",  # not in their order
        "v1,epoch=7,size=8,3=9,3=10,seen=1",
        "v1,epoch=7,size=8,03=9,seen=1",
        "v1,epoch=7,size=8,seen=1,3=9",
    ],
)
def test_another_text_is_none(text: str) -> None:
    """Another spelling, order or range is read as none."""
    assert read_members(text) is None


def test_two_slots_may_change_places() -> None:
    """A slot whose own rank is another's may play a rank."""
    assert read_members("v1,epoch=7,size=8,3=5,5=3,seen=1") == Members(7, 8, ((3, 5), (5, 3)), 1)


@given(epochs, st.integers(0, INT32_MAX))
def test_an_announcement_comes_through(epoch: int, ran: int) -> None:
    """It is read beside the epoch that it names, and beside no other one."""
    text = announcement_text(epoch, Announced(ran))
    assert read_announcement(text, epoch) == Announced(ran)
    assert read_announcement(text, epoch - 1) is None
    assert read_announcement(text, None) is None
