"""A Pod learns from its own steps how long a silence is worth telling, and forgets it at no restart."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from inplace.common.bare.record import replace
from inplace.common.protocol.learned_limit import FACTOR, LIMIT_S_MAX, START_S_MIN, STEP_S_MIN, STEPS_MIN, LearnedLimits
from inplace.common.protocol.rank import FIRST_STEPS, StallSettings
from inplace.common.protocol.stall import StallState, WorkerEnded, WorkerStarted, nears_stall, silence, step
from tests.common.protocol.stall_machine import Watchdog, rank

UNSET = StallSettings()
SEEDS_QUICK, SEEDS = 20, 2_000
HOURS_S = 6 * 3_600.0


def trained(steps: int = FIRST_STEPS + STEPS_MIN + 1, step_s: float = 5.0) -> Watchdog:
    """Return a machine without a limit that saw a rank make so many steps."""
    dog = Watchdog(UNSET)
    for number in range(1, steps + 1):
        assert dog.look(rank(number=number), after_s=step_s) == ()
    return dog


def wait(dog: Watchdog, seconds: float, number: int = 24, **fields: Any) -> None:
    """Look at a rank that makes no step for so long; nothing is ever done about it."""
    for _ in range(round(seconds / dog.state.settings.period_s)):
        assert dog.look(rank(number=number, changed=False, **fields)) == ()


def test_a_rank_that_stops_is_told_of_and_nothing_is_done() -> None:
    """After 300 s where its steps take 5; its stacks are due at three quarters of that."""
    dog = trained()
    wait(dog, 0.74 * STEP_S_MIN)
    assert (silence(dog.state), nears_stall(dog.state)) == (None, False)
    wait(dog, 0.04 * STEP_S_MIN)
    assert (silence(dog.state), nears_stall(dog.state)) == (None, True)
    wait(dog, 0.25 * STEP_S_MIN)
    found = silence(dog.state)
    assert found is not None
    assert (found.rank, found.step, found.limit_s) == ("rank-0", 24, STEP_S_MIN)
    assert STEP_S_MIN < found.silent_s <= 1.05 * STEP_S_MIN


def test_nobody_knows_a_limit_before_enough_steps() -> None:
    """The first three do not count: they compile."""
    dog = trained(FIRST_STEPS + STEPS_MIN)
    wait(dog, 10_000)
    assert silence(dog.state) is None


def test_a_long_pause_is_told_as_over_and_is_no_news_again() -> None:
    """An evaluation of 400 s: from then on 1,200 s are allowed."""
    dog = trained()
    wait(dog, 400)
    dog.look(rank(number=25))
    assert silence(dog.state) is None
    assert dog.state.pause is not None
    assert (dog.state.pause.step, dog.state.pause.silent_s) == (24, 405.0)
    wait(dog, FACTOR * 400, number=25)
    assert silence(dog.state) is None
    wait(dog, 30, number=25)
    assert silence(dog.state) is not None


@pytest.mark.parametrize("fields", [{"ended": True}, {"busy": "save", "busy_s_max": 4_000}], ids=["ended", "busy"])
def test_who_says_why_it_is_silent_is_not_told_of(fields: dict[str, Any]) -> None:
    """A rank that has ended makes no step, and one in a busy phase has a limit of its own."""
    dog = trained()
    dog.look(rank(number=24, **fields))
    wait(dog, 3_000, **fields)
    assert silence(dog.state) is None


def test_what_was_learned_outlives_the_worker() -> None:
    """The next run is judged from its first steps on, and its start by the start before."""
    dog = trained()
    dog.state, _ = step(dog.state, WorkerEnded(dog.now_s))
    dog.state, _ = step(dog.state, WorkerStarted(6, dog.now_s))
    dog.epoch = 6
    assert dog.state.learned.limit_s == STEP_S_MIN
    assert dog.state.learned.start_limit_s == START_S_MIN
    for _ in range(round(START_S_MIN / 5) + 1):
        dog.look()
    found = silence(dog.state)
    assert found is not None
    assert (found.rank, found.step) == ("", None)


def test_a_silence_that_a_restart_ended_doubles_the_limit_up_to_an_hour() -> None:
    """It may have been a pause: a group that restarts because of it must not do so for ever."""
    dog = trained()
    allowed_s = []
    for epoch in range(6, 12):
        limit_s = dog.state.learned.limit_s
        assert limit_s is not None
        allowed_s.append(limit_s)
        wait(dog, limit_s + 10)
        dog.state, _ = step(dog.state, WorkerEnded(dog.now_s))
        dog.state, _ = step(dog.state, WorkerStarted(epoch, dog.now_s))
        dog.epoch = epoch
        for number in range(21, 25):
            dog.look(rank(number=number))
    assert allowed_s == [300.0, 600.0, 1_200.0, 2_400.0, LIMIT_S_MAX, LIMIT_S_MAX]


def test_a_worker_that_ends_while_it_trains_changes_nothing() -> None:
    """However often that happens."""
    dog = trained()
    learned = dog.state.learned
    ended, _ = step(dog.state, WorkerEnded(dog.now_s + 1))
    assert ended.learned == learned


@pytest.mark.parametrize(
    "seeds", [range(SEEDS_QUICK), pytest.param(range(SEEDS_QUICK, SEEDS), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_healthy_jobs_are_told_of_at_most_once_for_each_new_kind_of_pause(seeds: range) -> None:
    """Evaluations and saves of a job come again and again, each some 30 % longer or shorter: a first one is news."""
    for seed in seeds:
        rng = Random(seed)
        step_s = rng.choice([0.5, 2.0, 10.0, 45.0])
        pauses = [(rng.randint(30, 2_000), rng.uniform(30.0, 2_400.0)) for _ in range(rng.randint(0, 2))]
        told, at_s, learned = 0, 0.0, LearnedLimits()
        number = 0
        while at_s < HOURS_S:
            number += 1
            took_s = step_s * rng.uniform(0.7, 1.3)
            took_s += sum(long_s * rng.uniform(0.7, 1.3) for every, long_s in pauses if number % every == 0)
            told += learned.limit_s is not None and took_s > learned.limit_s
            learned = learned.with_step(took_s)
            at_s += took_s
        assert told <= len(pauses), f"seed {seed}: {told} of {pauses} with steps of {step_s} s"


def test_other_limits_change_nothing_of_it() -> None:
    """A limit that somebody sets ends a worker; what was learned is told beside it."""
    dog = trained()
    dog.state = replace(dog.state, settings=StallSettings(86_400.0))
    wait(dog, 310)
    assert silence(dog.state) is not None
    assert isinstance(dog.state, StallState)
