"""The annotation with which an agent tells of its worker while it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import BUSY_S_MAX, INT32_MAX, STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.notice import BUSY, KINDS, VALUE_MAX, Notice, notice_text, parse_notice

ADMITTED = re.compile(
    r"^v1,epoch=[1-9][0-9]{0,9},kind=(busy|loss|slow|steps|stall|pause),value=[1-9][0-9]{0,6},rank=[A-Za-z0-9._-]{1,32}(,step=(0|[1-9][0-9]{0,11}))?,at=[0-9]{13}$"
)  # deploy/admission/agents.yaml
notices = st.builds(
    Notice,
    st.integers(1, INT32_MAX),
    st.sampled_from(KINDS),
    st.integers(1, BUSY_S_MAX),
    st.from_regex(r"[A-Za-z0-9._-]{1,32}", fullmatch=True),
    st.none() | st.integers(0, STEP_MAX),
    st.integers(0, 9_999_999_999_999).map(lambda milliseconds: milliseconds / 1000),
)


def test_the_policy_admits_this_grammar() -> None:
    """The expression in deploy/ is the one that the tests here use."""
    assert ADMITTED.pattern in (Path(__file__).parents[3] / "deploy/admission/agents.yaml").read_text()


@given(notices)
def test_it_comes_through(notice: Notice) -> None:
    """What is written is read again, and is admitted by the policy."""
    text = notice_text(notice)
    assert parse_notice(text) == notice
    assert ADMITTED.match(text)


@given(st.text(max_size=60), st.integers(), st.none() | st.integers(), st.sampled_from(KINDS))
def test_whatever_an_agent_saw_can_be_told(rank: str, value: int, step: int | None, kind: str) -> None:
    """Names of files, clocks and counts are strangers': what does not fit is cut, and is read again."""
    told = parse_notice(notice_text(Notice(3, kind, value, rank, step, 1e12)))
    assert 1 <= told.value <= (BUSY_S_MAX if kind == BUSY else VALUE_MAX)
    assert told.step == (step if step is not None and 0 <= step <= STEP_MAX else None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1,epoch=3",
        "v2,epoch=3,kind=slow,value=310,rank=rank-17,at=1790000000123",
        "v1,epoch=0,kind=slow,value=310,rank=rank-17,at=1790000000123",
        "v1,epoch=2147483648,kind=slow,value=310,rank=rank-17,at=1790000000123",
        "v1,epoch=3,kind=sick,value=310,rank=rank-17,at=1790000000123",
        "v1,epoch=3,kind=slow,value=0,rank=rank-17,at=1790000000123",
        "v1,epoch=3,kind=busy,value=604801,rank=rank-17,at=1790000000123",
        "v1,epoch=3,kind=slow,value=310,rank=../etc,at=1790000000123",
        "v1,epoch=3,kind=slow,value=310,rank=rank-17,step=-1,at=1790000000123",
        "v1,epoch=3,kind=slow,value=310,rank=rank-17,step=1,at=1790000000123\n",
        "v1,epoch=\u0663,kind=slow,value=310,rank=rank-17,at=1790000000123",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Whoever wrote it hears what was expected and what was seen."""
    with pytest.raises(RemoteProtocolError, match="expected v1,epoch=EPOCH,kind=KIND"):
        parse_notice(text)
