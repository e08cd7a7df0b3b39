"""Restarts in vain: what the annotation may say, what counts, and what is remembered."""

from __future__ import annotations

import pytest

from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.crash_loop import Backoff, CrashLoop, after_epoch, backoff_of, crash_loop_of
from inplace.common.jobset.last_restart import EpochEnd
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from tests.common.jobset.test_escalation import time_of

STEPS = Backoff(epochs_max=3)
SHORT = Backoff(long_s=600, epochs_max=3)


def played(
    backoff: Backoff,
    *epochs: tuple[int | None, int | None],
    told: bool = True,
    triggers: tuple[Trigger, ...] = (Trigger.WORKER_EXIT,) * 9,
) -> CrashLoop:
    """Return the crash loop after epochs of (step, seconds), kept in the status in between."""
    loop = CrashLoop(synced_at=time_of(0))
    for number, ((step, seconds), trigger) in enumerate(zip(epochs, triggers, strict=False), 2):
        began_s = 1_000 * number
        loop = crash_loop_of({wire.CRASH_LOOP: loop.fields() | ({"syncedAt": time_of(began_s)} if seconds else {})})
        end = EpochEnd(trigger, time_of(began_s + (seconds or 0)), LastProgress(step, 1.0) if told else None)
        loop = after_epoch(loop, backoff, end, number + 1)
    return loop


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("3", STEPS),
        ("no-progress=16,short=9", Backoff(long_s=9, epochs_max=16)),
        ("short=9", Backoff(long_s=9)),
        ("backoff=9,backoff-max=8", Backoff(9, 9)),
        ("no-progress=17", Backoff()),
        (None, Backoff()),
    ],
)
def test_what_the_annotation_says(text: str | None, backoff: Backoff) -> None:
    """No annotation, or one that cannot be read, is no limit, and waits of 5 to 300 s."""
    assert backoff_of({} if text is None else {wire.FAILURES: text}) == backoff


def test_only_a_step_higher_than_ever_is_progress() -> None:
    """A training that goes back to an older checkpoint must pass its best step again."""
    loop = played(STEPS, (100, None), (40, None), (100, None))
    assert (loop.epochs, loop.failures) == (2, 3)
    again = played(STEPS, (100, None), (40, None), (101, None))
    assert (again.best, again.epochs, again.failures, again.until) == (101, 0, 1, "")
    assert [played(STEPS, *[(9, None)] * count).is_hopeless(STEPS) for count in (3, 4, 5)] == [False, True, True]


def test_the_wait_doubles() -> None:
    """It counts from the failure; the first failure has none."""
    loops = [played(Backoff(), *[(None, 1)] * count) for count in (1, 2, 3, 9)]
    assert [unix_time(loop.until) for loop in loops] == [None, 3_006.0, 4_011.0, 10_301.0]
    assert [loop.since for loop in loops] == [time_of(2_001)] * 4


def test_an_epoch_without_a_step_is_judged_by_its_length_where_no_steps_are_known() -> None:
    """Pods that told steps before and tell none now made none; a known step counts more than the time."""
    assert played(STEPS, (100, None), (None, 999)).epochs == 1
    assert played(SHORT, (None, 5), (None, None), (None, 599), told=False).epochs == 2
    assert played(SHORT, (None, 5), (None, 600), told=False).epochs == 0
    assert played(STEPS, (None, 5), (None, 59), (None, None), told=False).epochs == 2
    assert played(SHORT, (7, 5), (7, 600)).epochs == 1


def test_what_ended_an_epoch_decides_what_counts() -> None:
    """A lost Pod is no fault of the workers; a resize is no failure; a person's restart begins anew."""
    own, lost, resized, asked = Trigger.WORKER_EXIT, Trigger.POD_LOST, Trigger.RESIZE, Trigger.MANUAL
    for triggers, steps, failures, epochs in (
        ((own, own), (5, 5), 2, 1),
        ((own, lost), (5, 5), 1, 1),
        ((own, resized), (5, 5), 1, 0),
        ((own, resized, own), (5, 8, 8), 1, 1),
        ((own, own, asked), (5, 5, 5), 0, 0),
        ((own, own, asked, own), (5, 5, 5, 5), 1, 0),
    ):
        loop = played(STEPS, *((step, None) for step in steps), triggers=triggers)
        assert (loop.failures, loop.epochs) == (failures, epochs), triggers
