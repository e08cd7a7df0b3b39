"""The texts of a group with spares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.members import EXCHANGES_MAX, SLOTS_MAX, Members, members_of
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, Resume, Saved
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
steps = st.integers(0, STEP_MAX)
resumes = st.none() | st.builds(Resume, steps, st.booleans())
several_members = st.builds(
    members_of,
    epochs,
    st.lists(st.integers(0, SLOTS_MAX - 1), min_size=1, max_size=40, unique=True),
    versions,
    resumes,
    st.just(0) | st.integers(1, SLOTS_MAX),
)
lists_of_all = st.builds(
    lambda epoch, size, seen, skipped, resume: Members(epoch, size, (), seen, skipped, resume, everyone=True),
    epochs,
    st.integers(1, INT32_MAX),
    versions,
    st.booleans(),
    resumes,
)
local = st.lists(steps, max_size=LOCAL_STEPS_MAX, unique=True).map(lambda found: tuple(sorted(found, reverse=True)))
announced = st.builds(
    Announced, st.integers(0, INT32_MAX), st.builds(Saved, local, st.none() | steps, st.none() | steps)
)


@given(several_members | lists_of_all)
def test_it_comes_through(members: Members) -> None:
    """What is written is read again."""
    assert read_members(members_text(members)) == members


def test_the_largest_one_fits() -> None:
    """5,000 slots, 500 exchanges, the last epoch and the last version stay within the bound; one more does not."""
    most, last = SLOTS_MAX - EXCHANGES_MAX, SLOTS_MAX - 1
    exchanged = tuple((most - EXCHANGES_MAX + each, most + each) for each in range(EXCHANGES_MAX))
    largest = Members(INT32_MAX, most, exchanged, 2**64 - 1, resume=Resume(STEP_MAX, local=False), pods=SLOTS_MAX)
    text = members_text(largest)
    assert len(text) <= MEMBERS_BYTES_MAX
    assert read_members(text) == largest
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
    text = text[:at] + data.draw(st.text("0123456789,=vepochsizeranlocalsharedskippods", max_size=3)) + text[at + 1 :]
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
        "v1,epoch=7,size=8,pods=0,seen=1",
        "v1,epoch=7,size=8,pods=5501,seen=1",
        "v1,epoch=7,pods=4,size=8,seen=1",
        "v1,epoch=7,size=8,3=9,pods=4,seen=1",
        "v1,epoch=7,all=2,pods=4,seen=1",
        "v1,epoch=7,all=0,seen=1",
        "v1,epoch=7,all=2,3=9,seen=1",
        "v1,epoch=7,all=2,size=2,seen=1",
        "v1,epoch=7,all=2147483648,seen=1",
        "v1,epoch=7,all=2,local=4",
        "v1,epoch=7,all=2,local=4,seen=1",
        "v1,epoch=7,all=2,seen=1,local=",
        "v1,epoch=7,all=2,seen=1,local=04",
        "v1,epoch=7,all=2,seen=1,local=4.3",
        "v1,epoch=7,all=2,seen=1,shared=1000000000000",
        "v1,epoch=7,all=2,seen=1,local=4,shared=4",
        "v1,epoch=7,all=2,seen=1,unfit=4",
    ],
)
def test_another_text_is_none(text: str) -> None:
    """Another spelling, order or range is read as none."""
    assert read_members(text) is None


def test_two_slots_may_change_places() -> None:
    """A slot whose own rank is another's may play a rank."""
    assert read_members("v1,epoch=7,size=8,3=5,5=3,seen=1") == Members(7, 8, ((3, 5), (5, 3)), 1)


@given(epochs, announced)
def test_an_announcement_comes_through(epoch: int, announced: Announced) -> None:
    """It is read beside the epoch that it names, and beside no other one."""
    text = announcement_text(epoch, announced)
    assert read_announcement(text, epoch) == announced
    assert read_announcement(text, epoch - 1) is None
    assert read_announcement(text, None) is None


def test_the_longest_announcement_fits() -> None:
    """The last epoch, and steps of twelve digits; a fifth step does not."""
    most = tuple(STEP_MAX - each for each in range(LOCAL_STEPS_MAX + 1))
    longest = Announced(INT32_MAX, Saved(most[:-1], STEP_MAX, STEP_MAX))
    assert read_announcement(announcement_text(INT32_MAX, longest), INT32_MAX) == longest
    assert read_announcement(announcement_text(1, Announced(1, Saved(most))), 1) is None


@given(epochs, announced, st.data())
def test_a_spoiled_announcement_is_written_as_it_was_read(
    epoch: int, announced: Announced, data: st.DataObject
) -> None:
    """What is read holds the bounds, and has one spelling."""
    text = announcement_text(epoch, announced)
    at = data.draw(st.integers(0, len(text) - 1))
    text = text[:at] + data.draw(st.text("0123456789,=.localsharedunfit", max_size=3)) + text[at + 1 :]
    if (read := read_announcement(text, epoch)) is not None:
        assert announcement_text(epoch, read) == text
        assert len(read.saved.local) <= LOCAL_STEPS_MAX


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ",local=",
        ",local=1.2",
        ",local=2.2",
        ",local=5.4.3.2.1",
        ",local=02",
        ",local=2,local=1",
        ",shared=1,local=2",
        ",unfit=1,shared=2",
        ",shared=-1",
        ",shared=1000000000000",
        ",size=2",
    ],
)
def test_another_announcement_is_none(rest: str) -> None:
    """Another spelling, order or range; and one without the epoch that ran."""
    assert read_announcement(f"v1,epoch=7,ran=6{rest}" if rest else "v1,epoch=7", 7) is None
