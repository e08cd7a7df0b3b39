"""A rank that is busy excuses those that wait for it, in its Pod and in others."""

from __future__ import annotations

import pytest

from inplace.common.bare.record import replace
from inplace.common.protocol.rank import StallSettings
from inplace.common.protocol.stall import Excused, Silence, StallState, nears_stall, step
from tests.common.protocol.stall_machine import BOTH, TEN, Watchdog, rank


def test_a_busy_rank_excuses_those_that_wait_for_it() -> None:
    """One rank saves for all: the others' own limit begins when it is done, and a hang then is found."""
    watchdog = Watchdog()
    watchdog.work(20)
    saves = rank("rank-0", 20, busy="checkpoint", busy_s_max=600)
    waits = rank("rank-1", 20)
    watchdog.look(saves, waits)
    still = [replace(saves, changed=False), replace(waits, changed=False)]
    assert watchdog.until(*still, looks_max=1_000) == (500.0, ())
    goes_on = rank("rank-0", 20)
    watchdog.look(goes_on, still[1])
    took_s, actions = watchdog.until(replace(goes_on, changed=False), still[1])
    assert any(isinstance(found, Silence) for found in actions)
    assert took_s > 9.0


def test_a_busy_rank_excuses_within_its_limit_alone() -> None:
    """Nobody waits for one that is beyond its limit, has ended, or got further than the rank that is silent."""
    for busy, named in (
        (rank("rank-0", 20, busy="checkpoint", busy_s_max=30), "rank-0"),
        (rank("rank-0", 20, busy="checkpoint", busy_s_max=600, ended=True), "rank-1"),
        (rank("rank-0", 21, busy="checkpoint", busy_s_max=600), "rank-1"),
    ):
        watchdog = Watchdog(BOTH)
        waits = rank("rank-1", 20)
        watchdog.look(busy, waits)
        took_s, actions = watchdog.until(replace(busy, changed=False), replace(waits, changed=False), looks_max=200)
        assert [found.rank for found in actions if isinstance(found, Silence)] == [named]
        assert took_s < 65.0


def excuse(watchdog: Watchdog, for_s: float) -> None:
    """Let a rank of another Pod be busy."""
    watchdog.state, _ = step(watchdog.state, Excused(watchdog.now_s, for_s))


def test_a_busy_rank_of_another_pod_excuses_for_as_long_as_it_says() -> None:
    """Then the limit begins; the newest excuse wins only where it lasts longer."""
    watchdog = Watchdog()
    for number in range(10):
        watchdog.look(rank(number=number))
    excuse(watchdog, 30.0)
    excuse(watchdog, 5.0)
    after_s, (found,) = watchdog.until(rank(number=9, changed=False))
    assert isinstance(found, Silence)
    assert 40.0 < after_s <= 41.0
    assert found.silent_s == pytest.approx(after_s)


def test_a_busy_rank_of_another_pod_excuses_a_start_too() -> None:
    """Its peers may load nothing before it has."""
    watchdog = Watchdog(StallSettings(start_stall_after_s=20.0))
    watchdog.look()
    excuse(watchdog, 60.0)
    assert not nears_stall(watchdog.state)
    after_s, (found,) = watchdog.until()
    assert isinstance(found, Silence)
    assert found.rank == ""
    assert found.silent_s == pytest.approx(after_s + 1.0)
    assert 80.0 < after_s <= 82.0


def test_nobody_excuses_a_busy_rank() -> None:
    """It said itself how long it takes, and waits for no other."""
    watchdog = Watchdog()
    watchdog.look(rank())
    watchdog.look(rank(busy="checkpoint", busy_s_max=15))
    excuse(watchdog, 600.0)
    after_s, (found,) = watchdog.until(rank(changed=False, busy="checkpoint", busy_s_max=15))
    assert isinstance(found, Silence)
    assert found.busy == "checkpoint"
    assert 15.0 < after_s <= 16.0


def test_without_a_worker_there_is_nobody_to_excuse() -> None:
    """The news came late, or early: the next worker has its whole limit anyway."""
    state, actions = step(StallState(TEN), Excused(5.0, 60.0))
    assert (state, actions) == (StallState(TEN), ())
