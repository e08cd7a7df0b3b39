"""The annotation with which an agent tells of its worker's death."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.worker_failure import (
    IN_VAIN_MAX,
    STALLED_S_MAX,
    TEXT_BYTES_MAX,
    WorkerFailure,
    failure_text,
    parse_failure,
)

ADMITTED = re.compile(
    r"^v1,epoch=[1-9][0-9]{0,9}(,code=[1-9][0-9]{0,2}(,vain=[1-9])?|,stalled=[1-9][0-9]{0,6}(,step=[0-9]{1,12})?)?,at=[0-9]{13}$"
)  # deploy/admission/agents.yaml
times = st.integers(0, 9_999_999_999_999).map(lambda milliseconds: milliseconds / 1000)
deaths = st.builds(WorkerFailure, st.integers(1, INT32_MAX), st.none() | st.integers(1, 255), times)
in_vain = st.builds(
    WorkerFailure, st.integers(1, INT32_MAX), st.integers(1, 255), times, in_vain=st.integers(1, IN_VAIN_MAX)
)
stalls = st.builds(
    WorkerFailure,
    st.integers(1, INT32_MAX),
    st.none(),
    times,
    st.integers(1, STALLED_S_MAX),
    st.none() | st.integers(0, STEP_MAX),
)


def test_the_policy_admits_this_grammar() -> None:
    """The expression in deploy/ is the one that the tests here use."""
    assert ADMITTED.pattern in (Path(__file__).parents[3] / "deploy/admission/agents.yaml").read_text()


def test_a_silence_is_told_within_the_grammar_s_range() -> None:
    """Whatever the watchdog's clock says."""
    for seconds, told in ((0, 1), (10**9, STALLED_S_MAX)):
        assert parse_failure(failure_text(WorkerFailure(3, None, 1.0, seconds))).stalled_s == told


@given(deaths | in_vain | stalls)
def test_it_comes_through(failure: WorkerFailure) -> None:
    """What is written is read again, is admitted by the policy, and is short."""
    text = failure_text(failure)
    assert parse_failure(text) == failure
    assert ADMITTED.match(text)
    assert len(text) <= TEXT_BYTES_MAX


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v1,epoch=3",
        "v2,epoch=3,code=1,at=1790000000123",
        "v1,epoch=0,code=1,at=1790000000123",
        "v1,epoch=2147483648,code=1,at=1790000000123",
        "v1,epoch=3,code=0,at=1790000000123",
        "v1,epoch=3,code=256,at=1790000000123",
        "v1,epoch=03,code=1,at=1790000000123",
        "v1,code=1,epoch=3,at=1790000000123",
        "v1,epoch=3,epoch=3,code=1,at=1790000000123",
        "v1,epoch=3,code=1,vain=0,at=1790000000123",
        "v1,epoch=3,code=1,vain=10,at=1790000000123",
        "v1,epoch=3,vain=3,at=1790000000123",
        "v1,epoch=3,stalled=11,vain=3,at=1790000000123",
        "v1,epoch=3,code=1,at=17900000001234",
        "v1,epoch=3,code=1,at=179",
        "v1,epoch=\u0663,code=1,at=1790000000123",
        "v1,epoch=3,stalled=0,at=1790000000123",
        "v1,epoch=3,stalled=10000000,at=1790000000123",
        "v1,epoch=3,stalled=11,step=-1,at=1790000000123",
        "v1,epoch=3,stalled=11,step=01,at=1790000000123",
        "v1,epoch=3,stalled=11,step=1000000000000,at=1790000000123",
        "v1,epoch=3,step=1,stalled=11,at=1790000000123",
        "v1,epoch=3,step=1,at=1790000000123",
        "v1,epoch=3,code=1,stalled=11,at=1790000000123",
        "v1,epoch=3,code=1,at=1790000000123,",
        "v1," + "9" * 10_000,
    ],
)
def test_another_spelling_is_refused(text: str) -> None:
    """The message holds the beginning of what was seen."""
    with pytest.raises(RemoteProtocolError, match="worker failure: expected v1,epoch=") as raised:
        parse_failure(text)
    assert len(str(raised.value)) < 250


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises anything else, and what is read is spelled in one way."""
    try:
        failure = parse_failure(text)
    except RemoteProtocolError:
        return
    assert failure_text(failure) == text
