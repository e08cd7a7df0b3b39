"""How long a reader of watches rests, so that events come together."""

from __future__ import annotations

from inplace.controller.tracking.gathering import GULP_BYTES, REST_S_MAX, REST_S_PER_SLOT, Gathering

EVENT = 9_000


def test_a_read_that_concerns_no_barrier_has_the_longest_rest() -> None:
    """Where nobody is known to wait, events may come together; a gulp that fills the window is followed at once."""
    gathering = Gathering()
    assert gathering.rest_s(EVENT) == REST_S_MAX
    assert gathering.rest_s(GULP_BYTES) == 0.0


def test_the_fewer_are_missing_the_shorter_is_the_rest() -> None:
    """The fullest barrier of a read decides; the last Pod's announcement is waited for by nobody."""
    gathering = Gathering()
    gathering.note_missing(5_000)
    assert gathering.rest_s(EVENT) == REST_S_MAX
    gathering.note_missing(10)
    gathering.note_missing(5_000)
    assert gathering.rest_s(EVENT) == 10 * REST_S_PER_SLOT
    gathering.note_missing(0)
    assert gathering.rest_s(EVENT) == 0.0


def test_each_read_is_judged_by_itself() -> None:
    """A barrier that waits for one Pod shortens the rest only after reads in which its Pods come."""
    gathering = Gathering()
    gathering.note_missing(1)
    gathering.rest_s(EVENT)
    assert gathering.rest_s(EVENT) == REST_S_MAX
