"""What restarts cost in training time, from what the Pods of each run told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.goodput import FIELD, Goodput, Run, after_run, goodput_of
from inplace.common.protocol.last_progress import LastProgress

BEGAN_S = 1_790_000_000.0


def told(*runs: tuple[int, int, float, float]) -> Goodput:
    """Return the goodput after runs of (first step, last step, pace, first step's time), quiet for 4 s each."""
    goodput: Goodput | None = None
    for first, last, pace_s, first_s in runs:
        progress = LastProgress(last, 4.0, last - first or None, pace_s if last > first else None)
        ended_s = BEGAN_S + first_s + (last - first) * pace_s + 4.0
        goodput = after_run(goodput, progress, ended_s)
    assert goodput is not None
    return goodput


def test_time_is_useful_lost_or_restart() -> None:
    """40 steps of 2 s, of which 10 are made again; 30 s from the last step to the next run's first one, 2 s its own."""
    goodput = told((1, 40, 2.0, 0.0), (31, 50, 2.0, 108.0))
    assert (goodput.restarts, goodput.lost_steps) == (1, 10)
    assert (goodput.useful_s, goodput.lost_s, goodput.restart_s) == pytest.approx((60.0, 20.0, 28.0))
    assert goodput.ratio == pytest.approx(60 / 108)


def test_nothing_is_known_of_one_run() -> None:
    """Where the next one began again is told when that ends."""
    goodput = told((1, 40, 2.0, 0.0))
    assert (goodput.restarts, goodput.ratio) == (0, None)


def test_a_group_that_lost_nothing() -> None:
    """It saved its last step: all of its time is useful but the restart's."""
    goodput = told((1, 40, 2.0, 0.0), (41, 50, 2.0, 100.0))
    assert (goodput.lost_steps, goodput.lost_s, goodput.useful_s, goodput.restart_s) == pytest.approx((0, 0, 80, 20))


def test_steps_that_were_left_out_are_no_gain() -> None:
    """A run that begins beyond the last step makes no more steps useful than were told."""
    goodput = told((1, 40, 2.0, 0.0), (100, 150, 2.0, 100.0))
    assert (goodput.lost_steps, goodput.useful_s) == (0, 80)


def test_a_group_that_goes_back_further_loses_more() -> None:
    """Work of an earlier run that was useful until now is lost with it; the sums still make the whole time."""
    goodput = told((1, 40, 2.0, 0.0), (41, 50, 2.0, 100.0), (21, 60, 2.0, 200.0))
    assert (goodput.restarts, goodput.lost_steps) == (2, 30)
    assert (goodput.useful_s, goodput.lost_s) == (40.0, 60.0)
    assert goodput.useful_s + goodput.lost_s + goodput.restart_s == pytest.approx(200.0)


def test_a_run_of_one_step_has_the_next_one_s_pace() -> None:
    """Nothing else is known of it."""
    goodput = told((1, 1, 0.0, 0.0), (1, 50, 2.0, 30.0))
    assert (goodput.lost_steps, goodput.lost_s, goodput.restart_s) == (1, 2.0, 28.0)


@pytest.mark.parametrize("progress", [None, LastProgress(None, 3.0)])
def test_a_run_that_nobody_told_breaks_the_chain(progress: LastProgress | None) -> None:
    """Neither its time nor its steps are guessed; the sums stay, and the next two runs go on."""
    goodput = told((1, 40, 2.0, 0.0), (31, 50, 2.0, 108.0))
    broken = after_run(goodput, progress, BEGAN_S + 500.0)
    assert broken is not None
    assert (broken.run, broken.restarts, broken.useful_s) == (None, 1, goodput.useful_s)
    again = after_run(broken, LastProgress(90, 4.0, 9, 2.0), BEGAN_S + 900.0)
    assert again is not None
    assert (again.restarts, again.run) == (1, Run(81, 90, 2.0, BEGAN_S + 878.0))
    assert after_run(None, progress, BEGAN_S) is None


def test_a_clock_that_was_set_back_begins_anew() -> None:
    """A run cannot begin before the one that it follows."""
    goodput = told((1, 40, 2.0, 0.0), (31, 50, 2.0, -1000.0))
    assert (goodput.restarts, goodput.run) == (0, Run(31, 50, 2.0, BEGAN_S - 1000.0))


steps = st.integers(0, 10**12 - 1)
progresses = st.none() | st.builds(
    LastProgress,
    st.none() | steps,
    st.floats(0, 9_999.999),
    st.none() | st.integers(1, 9_999_999),
    st.floats(0.0001, 999.9999),
)


@given(st.lists(st.tuples(progresses, st.floats(0.0, 4e9)), max_size=6))
def test_whatever_pods_tell_can_be_written_and_read_back(runs: list[tuple[LastProgress | None, float]]) -> None:
    """Any numbers that an annotation can hold: the field is one that the CRD takes, and the ratio a ratio."""
    goodput: Goodput | None = None
    for progress, ended_s in runs:
        goodput = after_run(goodput, progress, ended_s)
        if goodput is None:
            continue
        read = goodput_of({FIELD: goodput.fields()})
        assert read is not None
        assert read.fields() == goodput.fields()
        assert goodput.ratio is None or 0.0 <= goodput.ratio <= 1.0
        goodput = read


@pytest.mark.parametrize("field", [None, 1, [], {}, {"run": 1}, {"restarts": "x", "run": {"firstStepTime": "soon"}}])
def test_a_field_that_somebody_else_wrote_does_no_harm(field: Any) -> None:
    """It counts as nothing."""
    assert goodput_of({FIELD: field}) in (None, Goodput())
