"""What the watchdog says of a worker when it has ended: its lowest step, its pace, and how long it was quiet."""

from __future__ import annotations

import pytest

from inplace.common.bare.record import replace
from inplace.common.protocol.last_progress import LastProgress, last_progress
from inplace.common.protocol.rank import RankNumbers
from inplace.common.protocol.stall import WorkerEnded, step
from tests.common.protocol.stall_machine import Watchdog, rank


def test_the_last_word_has_the_slowest_rank_s_own_work() -> None:
    """Of ranks that say how long they wait; the number is that of RANK or JAX_PROCESS_ID."""
    watchdog = Watchdog()
    own, steps = (RankNumbers(recent_s=recent_s, waits=waits) for recent_s, waits in ((3.1, True), (9.0, False)))
    watchdog.look(rank("rank-16", numbers=replace(own, recent_s=1.0)), rank("rank-17", numbers=own), rank("rank-18"))
    told = last_progress(watchdog.state)
    assert told is not None
    assert (told.work_s, told.work_rank) == (3.1, 17)
    watchdog.look(rank("rank-16", numbers=steps), rank("local-1", 2, numbers=own))
    told = last_progress(watchdog.state)
    assert told is not None
    assert (told.work_s, told.work_rank) == (3.1, None)
    watchdog.look(rank("rank-16", 3, numbers=steps))
    told = last_progress(watchdog.state)
    assert told is not None
    assert (told.work_s, told.work_rank) == (None, None)


def test_quiet_time_lasts_until_the_worker_s_end() -> None:
    """What the next announcement says: the lowest step, and how long that rank had been quiet."""
    dog = Watchdog()
    assert last_progress(dog.state) is None
    dog.look(rank("a", 8), rank("b", 7), rank("c", None))
    dog.look(rank("a", 9), rank("b", 7, changed=False), rank("c", None))
    dog.state, _ = step(dog.state, WorkerEnded(dog.now_s + 0.25))
    assert last_progress(dog.state) == LastProgress(7, 0.75)


def test_the_pace_is_that_of_the_files() -> None:
    """Between the first step and the last one, by the files' times; not by those of the looks."""
    dog = Watchdog()
    dog.look(rank("a", 3, first=2, first_s=99.0, modified_s=101.0), rank("b", 9))
    dog.look(rank("a", 7, first=2, first_s=99.0, modified_s=109.0), rank("b", 9))
    assert last_progress(dog.state) == LastProgress(7, 0.0, 5, 2.0)
    dog.look(rank("a", 1, first=2, first_s=99.0, modified_s=110.0), rank("b", 9))
    assert last_progress(dog.state) == LastProgress(1, 0.0), "it went back behind its first step"
    dog.look(rank("a", 8, first=2, first_s=99.0, modified_s=90.0), rank("b", 9))
    assert last_progress(dog.state) == LastProgress(8, 0.0), "the clock went back"


@pytest.mark.parametrize(("wall_s", "quiet_s"), [(203.2, 3.2), (202.3, 2.5), (203.6, 2.5), (1e9, 2.5), (0.0, 2.5)])
def test_quiet_time_is_the_file_s_where_the_looks_agree(wall_s: float, quiet_s: float) -> None:
    """A file changed up to two periods before a look saw it; a clock that jumped is not believed."""
    dog = Watchdog()
    dog.look(rank(number=4, modified_s=200.0))
    for _ in range(5):
        dog.look(rank(number=4, changed=False, modified_s=200.0))
    progress = last_progress(dog.state, wall_s)
    assert progress is not None
    assert progress.quiet_s == pytest.approx(quiet_s)


def test_no_step_anywhere_leaves_the_quiet_time() -> None:
    """Of the rank that was silent first."""
    dog = Watchdog()
    dog.look(rank("a", None), rank("b", None))
    dog.look(rank("a", None), rank("b", None, changed=False))
    assert last_progress(dog.state) == LastProgress(None, 0.5)
