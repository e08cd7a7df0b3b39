"""Epochs without progress: what the annotation may say, and what counts."""

from __future__ import annotations

import pytest

from inplace.common.jobset.no_progress import (
    FailedEpoch,
    NoProgressLimit,
    Streak,
    after_epoch,
    no_progress_of,
    streak_of,
)
from inplace.common.protocol.stall import LastProgress
from inplace.common.wire import names as wire

STEPS = NoProgressLimit(3)
SHORT = NoProgressLimit(3, 600)


def played(
    limit: NoProgressLimit, *epochs: tuple[int | None, int | None], told: bool = True, failed: bool = True
) -> Streak:
    """Return the streak after epochs of (step, seconds), kept in the status in between."""
    streak = Streak()
    for number, (step, seconds) in enumerate(epochs, 1):
        ended = FailedEpoch(number, step, seconds, "x")
        progress = LastProgress(step, 1.0) if told else None
        streak = after_epoch(streak, limit, ended, progress, failed=failed)
        streak = streak_of({wire.NO_PROGRESS_FIELD: streak.fields()})
    return streak


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("3", NoProgressLimit(3)),
        ("no-progress=16,short=9", NoProgressLimit(16, 9)),
        ("short=9", None),
        ("no-progress=17", None),
    ],
)
def test_the_annotation_is_a_number_and_maybe_seconds(text: str, limit: NoProgressLimit | None) -> None:
    """No annotation is no limit, and neither is one that cannot be read."""
    assert no_progress_of({wire.FAILURES: text}) == limit
    assert no_progress_of({}) is None


def test_only_a_step_higher_than_ever_is_progress() -> None:
    """A training that goes back to an older checkpoint must pass its best step again."""
    assert played(STEPS, (100, None), (40, None), (100, None)).epochs == (
        FailedEpoch(2, 40, None, "x"),
        FailedEpoch(3, 100, None, "x"),
    )
    assert played(STEPS, (100, None), (40, None), (101, None)) == Streak(101)
    assert len(played(STEPS, (9, None), (9, None), (9, None), (9, None), (9, None)).epochs) == 3


def test_an_epoch_without_a_step_counts_only_where_steps_are_known() -> None:
    """Pods that told steps before and tell none now made none; Pods that never tell steps are not judged by them."""
    assert len(played(STEPS, (100, None), (None, None)).epochs) == 1
    assert played(STEPS, (None, None), (None, None)) == Streak()
    assert played(STEPS, (None, 5), (None, 5), told=False) == Streak()


def test_without_steps_short_epochs_count() -> None:
    """A long epoch is progress; one of unknown length changes nothing; a known step counts more than the time."""
    assert len(played(SHORT, (None, 5), (None, None), (None, 599), told=False).epochs) == 2
    assert played(SHORT, (None, 5), (None, 600), told=False).epochs == ()
    assert len(played(SHORT, (7, 5), (7, 6000)).epochs) == 1


def test_an_epoch_that_nothing_failed_in_is_no_sign() -> None:
    """A request or a resize lengthens no streak; its steps are progress all the same."""
    assert played(STEPS, (5, None), (5, None), failed=False) == Streak(5)
    assert played(STEPS, (5, None), (8, None), failed=False) == Streak(8)


def test_it_is_told_in_one_line() -> None:
    """Step and first failure of each epoch."""
    streak = Streak(9, "", (FailedEpoch(4, 9, 70, "pod a: exited"), FailedEpoch(5, None, 12, "unknown")))
    assert str(streak) == (
        "2 epochs in a row without progress: epoch 4 ended at step 9 (pod a: exited), epoch 5 ended after 12 s "
        "(unknown); the highest step ever is 9"
    )
