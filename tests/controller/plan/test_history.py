"""The last restarts stand in the status: each with its first failure, within a bound, in writes that happen anyway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.restart_history import (
    BYTES_MAX,
    ENTRIES_MAX,
    FIELD,
    PastRestart,
    fields_of,
    history_of,
    past_restart,
    with_cost,
    with_restart,
)
from inplace.common.protocol.last_progress import LastProgress

PAST = PastRestart(2, "", "worker_exit", "2026-11-22T02:39:09Z", 7360, 21, "", "train-workers-3-17-x2x4q", "n-412", 1)


def test_what_a_restart_cost_comes_with_the_next() -> None:
    """It is known when the run after it ends."""
    before, after = Goodput(1, 100.0, 10.0, 20.0, 5), Goodput(2, 150.0, 18.0, 40.0, 9)
    history = with_cost((PAST,), "", 2, before, after)
    assert [(one.lost_steps, one.cost_ms) for one in history] == [(4, 28_000)]
    assert with_cost((PAST,), "other", 2, before, after) == (PAST,)


def test_twenty_restarts_of_ordinary_names_fit() -> None:
    """Twenty entries without last lines, and the newest with theirs, are within the bound."""
    history: tuple[PastRestart, ...] = ()
    line = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    for epoch in range(2, 40):
        new = msgspec.structs.replace(
            PAST, epoch=epoch, last_step=120_030, lost_steps=30, cost_ms=81_123, last_line=line
        )
        history = with_restart(history, new)
    assert len(history) == ENTRIES_MAX
    assert [one.epoch for one in history] == list(range(20, 40))
    assert history[-1].last_line == line


WORDS = st.text(max_size=253)


@given(
    st.lists(st.builds(PastRestart, st.integers(2, 99), WORDS, WORDS, WORDS, pod=WORDS, node=WORDS, last_line=WORDS))
)
def test_the_history_is_bounded(entries: list[PastRestart]) -> None:
    """Whatever the names are, it has 20 entries at most and 4 KiB at most, and the newest is whole."""
    history: tuple[PastRestart, ...] = ()
    for entry in entries:
        history = with_restart(history, entry)
        assert len(history) <= ENTRIES_MAX
        assert len(msgspec.json.encode(fields_of(history))) <= BYTES_MAX
        assert history[-1] == entry


HUNG = FurthestBehind(("q",), 1, LastProgress(29, 6.0), "n2")
TIED = FurthestBehind(("q", "p"), 2, LastProgress(30, 6.0), "n2")


@pytest.mark.parametrize(
    ("silent", "kept"), [(HUNG, ("q", "n2", "Stalled", 29)), (TIED, ("", "", "", 30)), (None, ("", "", "", None))]
)
def test_a_hang_is_that_of_the_pod_that_was_silent_first(
    silent: FurthestBehind | None, kept: tuple[str, str, str, int | None]
) -> None:
    """The Pod that told of it may be any of those that wait; where steps cannot tell, nobody is named."""
    failure = {"pod": "p", "node": "n1", "reason": "Stalled", "message": "silent for 6 s at step 30"}
    entry = {"epoch": 2, "trigger": "stalled", "startedAt": "2026-01-01T00:00:00.5Z", "firstFailure": failure}
    past = past_restart(entry, silent)
    assert (past.pod, past.node, past.reason, past.last_step) == kept


@pytest.mark.parametrize("spoiled", [None, 7, "x", {}, [7], [{"epoch": "two"}], [{"epoch": 0}]])
def test_a_spoiled_history_is_passed_over(spoiled: Any) -> None:
    """Another program's text is no history."""
    assert history_of({FIELD: spoiled}) == ()


def test_it_is_read_as_it_was_written() -> None:
    """Another controller goes on with it."""
    assert history_of({FIELD: fields_of((PAST,))}) == (PAST,)


def test_long_texts_are_cut_to_what_the_definition_takes() -> None:
    """The API server must not refuse the write of S because of a reason."""
    failure = {"pod": "p" * 300, "node": "n" * 300, "reason": "r" * 300}
    entry = {"epoch": 2, "trigger": "t" * 99, "startedAt": "2026-01-01T00:00:00.5Z", "firstFailure": failure}
    past = past_restart(entry, None)
    assert (len(past.pod), len(past.node), len(past.reason), len(past.trigger)) == (253, 253, 128, 63)
    assert past.started_at == "2026-01-01T00:00:00Z"
