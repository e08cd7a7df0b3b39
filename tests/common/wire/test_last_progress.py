"""How long a Pod's slowest rank worked on a step rides with its last progress."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import STEP_MAX
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire.last_progress import TEXT_BYTES_MAX, last_progress_text, parse_last_progress
from inplace.common.wire.phases import PARTS_MAX, RestartPhase, parse_numbers, parse_phases, phases_text
from inplace.common.wire.phases import TEXT_BYTES_MAX as PHASES_BYTES_MAX

ADMITTED = re.compile("v1(,[a-z]{1,16}=[0-9]{1,7}){0,16}")  # deploy/admission/agents.yaml
progresses = st.builds(
    LastProgress,
    st.none() | st.integers(0, STEP_MAX),
    st.floats(0.0, 1e9),
    st.none() | st.integers(1, 10**9),
    st.none() | st.floats(0.0, 1e6),
    st.none() | st.floats(0.0, 1e6),
    st.none() | st.integers(0, 10**9),
)


@given(progresses)
def test_work_is_read_back(progress: LastProgress) -> None:
    """To the tenth of a millisecond; what does not fit is left out, and the rank goes with the work."""
    read = parse_last_progress("v1,view=1" + last_progress_text(progress))
    assert read is not None
    work_s = progress.work_s or 0.0
    if 0.0001 <= work_s < 999.9999:
        assert read.work_s == pytest.approx(work_s, abs=0.00005 + 1e-9)
        of = progress.work_rank
        assert read.work_rank == (of if of is not None and of < 10**7 else None)
    elif not 0.00004 < work_s < 1000.0:
        assert (read.work_s, read.work_rank) == (None, None)


@given(progresses, st.dictionaries(st.sampled_from(RestartPhase), st.floats(0.0, 1e6)), st.none() | st.just(255))
def test_every_announcement_is_admitted(
    progress: LastProgress, phases: dict[RestartPhase, float], code: int | None
) -> None:
    """Bytes and names are bounded: phases make room, the rest is whole."""
    told = last_progress_text(progress)
    assert len(told) <= TEXT_BYTES_MAX
    text = phases_text(phases, 1_700_000_000.0, told, code=code)
    assert len(text) <= PHASES_BYTES_MAX
    assert ADMITTED.fullmatch(text)
    assert len(parse_numbers(text)) <= PARTS_MAX
    assert set(parse_phases(text)) <= set(phases)
    assert text.endswith(told)


def test_seventeen_names_are_one_phase_too_many() -> None:
    """All phases of a supervisor, a code and a step of eleven digits: the last phase is left out."""
    told = last_progress_text(LastProgress(10**10 + 1, 1.0, 1, 0.1, 0.1, 1))
    text = phases_text(dict.fromkeys(RestartPhase, 0.001), 0.0, told, code=1)
    assert text.count(",") == PARTS_MAX
    assert len(parse_phases(text)) == PARTS_MAX - len(("at", "code")) - told.count(",")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v1,quiet=1,work=31000,of=17", LastProgress(None, 0.001, None, None, 3.1, 17)),
        ("v1,quiet=1,step=7,work=31000", LastProgress(7, 0.001, None, None, 3.1)),
        ("v1,quiet=1,step=7,of=17", LastProgress(7, 0.001)),
        ("v1,quiet=1,step=7,work=0,of=17", LastProgress(7, 0.001)),
    ],
)
def test_work_needs_no_step_and_a_rank_needs_work(text: str, expected: LastProgress) -> None:
    """An older agent tells neither."""
    assert parse_last_progress(text) == expected
