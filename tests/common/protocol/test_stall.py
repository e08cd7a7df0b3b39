"""The watchdog finds every hang within its limit and two periods, and calls no healthy worker hung."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.bare.record import replace
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.last_progress import LastProgress, last_progress
from inplace.common.protocol.rank import PERIOD_S_MAX, PERIOD_S_MIN, StallSettings
from inplace.common.protocol.stall import (
    RANKS_MAX,
    LimitsChanged,
    LimitTooShort,
    Look,
    Looked,
    RunStallCommand,
    Silence,
    StallCommandEnded,
    StallPhase,
    StallState,
    WorkerEnded,
    WorkerStarted,
    nears_stall,
    step,
)
from tests.common.protocol.stall_machine import BOTH, TEN, Watchdog, rank
from tests.common.protocol.worker_schedule import Write, healthy_schedule, look_times, watch

SCHEDULES_QUICK, SCHEDULES = 100, 2_500
HANGS_QUICK, HANGS = 15, 300
LIMIT_S_MAX = 2_400.0  # twice the longest start limit of a schedule


@pytest.mark.parametrize(
    "seeds",
    [range(SCHEDULES_QUICK), pytest.param(range(SCHEDULES_QUICK, SCHEDULES), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_no_healthy_worker_is_called_hung(seeds: range) -> None:
    """Random starts, compilations, steps, checkpoints, all within their limits, and pauses of agent and machine."""
    for seed in seeds:
        rng = Random(seed)
        schedule = healthy_schedule(rng)
        for at_s, _, actions in watch(schedule.settings, schedule.ranks, look_times(rng, schedule, pauses=True)):
            assert not any(isinstance(action, Silence) for action in actions), f"seed {seed} at {at_s}: {actions}"


@pytest.mark.parametrize(
    "seed", [*range(HANGS_QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(HANGS_QUICK, HANGS))]
)
def test_a_rank_that_stops_is_found(seed: int) -> None:
    """One rank of a healthy worker stops: within its limit and two periods it is named, with its last step."""
    rng = Random(seed)
    schedule = healthy_schedule(rng)
    settings = schedule.settings
    number = rng.randrange(len(schedule.ranks))
    writes = schedule.ranks[number]
    kept = writes[: rng.randint(1, len(writes) - 1)]
    # The others write at every look, at higher steps, and go on for ever.
    period_s, last = settings.period_s, kept[-1]
    looks = ((at * period_s, at * period_s) for at in count(1))
    others = [Write(at * period_s, 10_000 + at) for at in range(1, int((last.at_s + LIMIT_S_MAX) / period_s) + 3)]
    ranks = [kept, others] if len(schedule.ranks) > 1 else [kept]
    limit_s: float | None = last.busy_s_max or settings.start_stall_after_s
    for at_s, state, actions in watch(settings, ranks, looks):
        if at_s < last.at_s:
            continue
        mine = next((known for known in state.ranks if known.seen.name == "rank-0"), None)
        if last.step is not None and not last.busy and mine is not None:
            limit_s = settings.stall_after_s
            assert limit_s is not None
            if mine.steps < 3:
                limit_s = max(limit_s, settings.start_stall_after_s or 5 * limit_s)
            elif (mine.fastest_s or 0.0) > limit_s:
                limit_s = 2 * (mine.fastest_s or 0.0)
        if limit_s is None:  # before its first step, and nobody limits the start
            assert actions == ()
            if at_s > last.at_s + 500 * period_s:
                return
            continue
        if stalls := [action for action in actions if isinstance(action, Silence)]:
            assert stalls[0].rank == "rank-0"
            assert stalls[0].step == last.step
            assert stalls[0].limit_s == limit_s
            assert limit_s < at_s - last.at_s <= limit_s + 2 * period_s + 1e-6
            return
        assert at_s <= last.at_s + limit_s + 2 * period_s + 1e-6, f"{limit_s=} {last=}"


@given(st.floats(0.01, 100_000), st.one_of(st.none(), st.floats(0.01, 100_000)))
def test_looks_come_often_enough_for_a_limit_and_no_oftener(stall_s: float, start_s: float | None) -> None:
    """Twenty for the shorter limit, between ten a second and one in five seconds."""
    period_s = StallSettings(stall_s, start_s).period_s
    assert PERIOD_S_MIN <= period_s <= PERIOD_S_MAX
    assert 2 * period_s <= max(min(stall_s, start_s or stall_s) / 10 + 1e-9, 2 * PERIOD_S_MIN)


def test_a_stall_is_found_ten_seconds_after_the_last_step() -> None:
    """And reported once: what comes until the worker ends changes nothing."""
    dog = Watchdog()
    assert dog.work(5) == []
    took_s, actions = dog.until(rank(number=5, changed=False))
    assert actions == (Silence("rank-0", 5, 10.5, 10.0),)
    assert took_s == 10.0
    assert dog.until(rank(number=5, changed=False), looks_max=100)[1] == ()
    assert dog.look(rank(number=6)) == ()
    dog.state, actions = step(dog.state, WorkerEnded(dog.now_s))
    assert (dog.state.phase, actions) == (StallPhase.OFF, ())


def test_a_command_runs_before_the_report() -> None:
    """With the rank's process id; the report follows its end, once, however the rank fares meanwhile."""
    dog = Watchdog(StallSettings(10.0), runs_command=True)
    dog.work(4)
    dog.look(rank(number=5, pid=77))
    _, actions = dog.until(rank(number=5, pid=77, changed=False))
    assert actions == (RunStallCommand("rank-0", 77),)
    assert dog.look(rank(number=6, pid=77)) == ()
    dog.state, actions = step(dog.state, StallCommandEnded())
    assert actions == (Silence("rank-0", 5, 10.5, 10.0),)
    assert step(dog.state, StallCommandEnded()) == (dog.state, ())


def test_a_worker_that_dies_meanwhile_is_no_stall() -> None:
    """The command's end comes too late; the next worker is watched anew."""
    dog = Watchdog(StallSettings(10.0), runs_command=True)
    dog.work(4)
    dog.until(rank(number=4, changed=False))
    dog.state, _ = step(dog.state, WorkerEnded(dog.now_s))
    assert step(dog.state, StallCommandEnded()) == (dog.state, ())
    dog.state, _ = step(dog.state, WorkerStarted(6, dog.now_s))
    learned = dog.state.learned
    assert dog.state == StallState(dog.state.settings, StallPhase.WATCHING, 6, looked_s=dog.now_s, learned=learned)


def test_without_limits_nothing_is_a_stall() -> None:
    """Off until asked for; how far the worker is is known all the same."""
    dog = Watchdog(StallSettings())
    assert dog.until(looks_max=1_000)[1] == ()
    dog.look(rank(number=7, busy="checkpoint", busy_s_max=1))
    assert dog.until(rank(number=7, changed=False), looks_max=1_000)[1] == ()
    assert last_progress(dog.state) == LastProgress(7, 5_000.0)


def test_a_start_without_any_sign_is_a_stall_of_nobody() -> None:
    """After the start's limit; not before, and not where a look may have left the right file out."""
    assert Watchdog(BOTH).until() == (60.5, (Silence("", None, 60.5, 60.0),))
    assert Watchdog(TEN).until(looks_max=10_000)[1] == ()
    dog = Watchdog(BOTH)
    for _ in range(1_000):
        assert dog.look(left_out=1) == ()


def test_a_compilation_has_its_own_limit_and_the_start_goes_on_after_it() -> None:
    """A busy phase before the first step is not the first step."""
    dog = Watchdog(BOTH)
    compiling: dict[str, Any] = {"begun": False, "busy": "compile", "busy_s_max": 600}
    dog.look(rank(number=None, **compiling))
    took_s, actions = dog.until(rank(number=None, changed=False, **compiling))
    assert (took_s, actions) == (600.5, (Silence("rank-0", None, 600.5, 600.0, "compile"),))

    dog = Watchdog(BOTH)
    dog.look(rank(number=None, **compiling))
    for _ in range(1_000):
        assert dog.look(rank(number=None, changed=False, **compiling)) == ()
    dog.look(rank(number=None, begun=False))
    assert dog.until(rank(number=None, begun=False, changed=False))[0] == 60.5


def test_the_first_lines_of_a_log_are_not_the_first_step() -> None:
    """A file without step numbers is judged between lines once the start's limit is over."""
    dog = Watchdog(BOTH)
    for _ in range(5):
        dog.look(rank("log", None))
    assert dog.until(rank("log", None, changed=False))[1] == (Silence("log", None, 58.0, 10.0),)


def test_a_step_back_and_a_touch_are_progress() -> None:
    """Whatever changes is; only silence counts."""
    dog = Watchdog()
    dog.work(5)
    for number in (5, 4, 5, 5, 10**12 - 1, 0):
        for _ in range(19):
            assert dog.look(rank(number=number, changed=False)) == ()
        assert dog.look(rank(number=number)) == ()


def test_a_rank_that_exits_by_itself_or_whose_file_is_gone_is_not_waited_for() -> None:
    """The others are."""
    dog = Watchdog()
    for number in range(5):
        dog.look(rank("a", number), rank("b", number), rank("c", number))
    for number in range(5, 100):
        looks = (rank("a", number), rank("b", 4, ended=True, changed=number == 5))
        assert dog.look(*looks) == ()
    assert last_progress(dog.state) == LastProgress(4, 47.0)


def test_a_file_that_never_changed_is_no_rank() -> None:
    """Whatever it says: a stale file cannot trigger, nor keep the start's limit away."""
    dog = Watchdog(BOTH)
    assert dog.until(rank("old", 9, changed=False))[1] == (Silence("", None, 60.5, 60.0),)
    assert last_progress(dog.state) == LastProgress(None, 60.5), "a first step was waited for"


def test_a_look_at_another_epoch_is_passed_over() -> None:
    """A look that began before the worker did, in a thread of its own."""
    dog = Watchdog(BOTH)
    dog.epoch = 4
    before = dog.state
    assert dog.look(rank()) == ()
    assert dog.state == before
    assert step(StallState(TEN), Looked(1.0, Look(None, (rank(),)))) == (StallState(TEN), ())


def test_the_rank_at_the_lowest_step_is_named() -> None:
    """A collective hangs in all its ranks; who did not come is one step behind, or was silent first."""
    dog = Watchdog()
    for number in range(1, 6):
        dog.look(rank("a", number), rank("b", number), rank("log", None))
    dog.look(rank("a", 6), rank("b", 5, changed=False), rank("log", None))
    looks = (rank("a", 6, changed=False), rank("b", 5, changed=False), rank("log", None, changed=False))
    assert dog.look(*looks, after_s=0.5) == ()
    _, (found,) = dog.until(*looks)
    assert found == Silence("b", 5, 10.5, 10.0)
    assert last_progress(dog.state) == LastProgress(5, 10.5)


def test_a_limit_below_the_step_is_said_after_three_steps() -> None:
    """Once for each start; until then five times the limit holds, and after it twice the step."""
    dog = Watchdog()
    assert dog.work(4, step_s=20.0) == [LimitTooShort("rank-0", 20.0, 40.0)]
    assert dog.work(4, step_s=20.0) == []
    _, (found,) = dog.until(rank(number=4, changed=False))
    assert found == Silence("rank-0", 4, 40.5, 40.0)


def test_a_rank_that_counts_samples_has_its_first_steps() -> None:
    """A number that grows by 512 is one step: the next two may compile as long, and show how long steps take."""
    dog = Watchdog()
    dog.look(rank(number=512))
    for number in (1024, 1536):
        for _ in range(60):
            assert dog.look(rank(number=number - 512, changed=False)) == ()
        assert dog.look(rank(number=number)) == ()
    for _ in range(60):
        assert dog.look(rank(number=1536, changed=False)) == ()
    assert dog.look(rank(number=2048)) == (LimitTooShort("rank-0", 30.5, 61.0),)


def test_slow_first_steps_alone_do_not_make_a_limit_too_short() -> None:
    """One step within the limit shows that it is right: the others compile."""
    dog = Watchdog()
    dog.work(2, step_s=30.0)
    assert dog.work(10, step_s=1.0) == []
    assert dog.until(rank(number=10, changed=False))[1] == (Silence("rank-0", 10, 10.5, 10.0),)


def test_busy_times_do_not_measure_steps() -> None:
    """A checkpoint of 20 s after each of the first steps is no step of 20 s."""
    dog = Watchdog()
    for number in range(1, 10):
        assert dog.look(rank(number=number)) == ()
        assert dog.look(rank(number=number, busy="checkpoint", busy_s_max=60)) == ()
        for _ in range(40):
            assert dog.look(rank(number=number, busy="checkpoint", busy_s_max=60, changed=False)) == ()


def test_a_limit_for_a_worker_that_hangs_holds_at_once() -> None:
    """Its files tell that the first steps are over, and how long one takes: a limit below that is not obeyed."""
    for pace_s, expected_s in ((1.0, 10.0), (15.0, 30.0)):
        watchdog = Watchdog(runs=True)
        hangs = rank(number=100, first=0, first_s=1_000.0, modified_s=1_000.0 + 100 * pace_s)
        watchdog.look(hangs)
        took_s, _ = watchdog.until(replace(hangs, changed=False), looks_max=20)
        stalled_s, actions = watchdog.until(replace(hangs, changed=False))
        assert any(isinstance(found, Silence) for found in actions)
        assert took_s + stalled_s == pytest.approx(expected_s, abs=1.5)


@pytest.mark.parametrize("pause_s", [1.5, 100.0, 1e9])
def test_a_pause_of_the_agent_is_not_the_worker_s_silence(pause_s: float) -> None:
    """A late look adds nothing; ranks that worked meanwhile are seen to have changed, others get their time."""
    dog = Watchdog()
    dog.work(5)
    for _ in range(15):
        dog.look(rank(number=5, changed=False))
    assert dog.look(rank(number=5, changed=False), after_s=pause_s) == ()
    assert dog.until(rank(number=5, changed=False))[0] == 2.5


def test_an_agent_that_is_always_late_still_finds_a_stall() -> None:
    """Each late look after the first adds one period: a slow machine finds it later, not never."""
    dog = Watchdog()
    dog.work(5)
    looks = 0
    while not dog.look(rank(number=5, changed=False), after_s=60.0):
        looks += 1
        assert looks < 25


def test_a_clock_that_goes_back_adds_nothing() -> None:
    """Monotonic clocks do not; if one does, nobody is restarted for it."""
    dog = Watchdog()
    dog.work(5)
    dog.now_s -= 1_000
    assert dog.look(rank(number=5, changed=False)) == ()
    assert dog.until(rank(number=5, changed=False))[0] == 10.0


def test_a_folder_that_cannot_be_read_is_neither_life_nor_silence() -> None:
    """The clock stands still meanwhile."""
    dog = Watchdog(BOTH)
    dog.work(5)
    for _ in range(1_000):
        assert dog.look(problem="expected a folder") == ()
    assert dog.until(rank(number=5, changed=False))[0] == 10.0


def test_a_limit_that_changes_holds_for_the_worker_that_runs() -> None:
    """A longer one spares it, a shorter one finds it, and one below its step is said: its steps were measured."""
    dog = Watchdog()
    dog.work(4, step_s=4.0)
    dog.state, _ = step(dog.state, LimitsChanged(StallSettings(20.0)))
    assert dog.until(rank(number=4, changed=False), looks_max=15)[1] == ()
    dog.state, _ = step(dog.state, LimitsChanged(StallSettings(10.0)))
    assert dog.until(rank(number=4, changed=False), looks_max=10)[1] == (Silence("rank-0", 4, 19.0, 10.0),)

    dog = Watchdog()
    dog.work(4, step_s=4.0)
    dog.state, _ = step(dog.state, LimitsChanged(StallSettings(3.0)))
    (advice,) = dog.look(rank(number=5), after_s=0.15)
    assert isinstance(advice, LimitTooShort)
    assert step(dog.state, LimitsChanged(StallSettings()))[1] == ()
    dog.state, _ = step(dog.state, LimitsChanged(StallSettings()))
    assert dog.until(rank(number=5, changed=False), looks_max=1_000)[1] == ()


def test_what_cannot_be_is_a_bug() -> None:
    """A second worker beside the first, and a look beyond its bound."""
    dog = Watchdog()
    with pytest.raises(InvariantError, match="watching"):
        step(dog.state, WorkerStarted(6, 0.0))
    with pytest.raises(InvariantError, match="65 ranks"):
        dog.look(*(rank(str(number)) for number in range(RANKS_MAX + 1)))


def test_a_long_silence_is_seen_well_before_it_is_a_stall() -> None:
    """So every Pod of a hung collective has taken its stacks when the first one tells."""
    dog = Watchdog()
    dog.work(5)
    near = list[bool]()
    while not any(isinstance(action, Silence) for action in dog.look(rank(number=5, changed=False))):
        near.append(nears_stall(dog.state))
    assert near == sorted(near)
    assert 0.2 * len(near) < sum(near) < 0.3 * len(near)
    assert not nears_stall(dog.state), "the stall is told: it is too late"


def test_a_step_ends_the_silence() -> None:
    """And a start without a step is one as well, but not without a limit for it."""
    dog = Watchdog(BOTH)
    for _ in range(95):
        dog.look()
    assert nears_stall(dog.state)
    dog.look(rank(number=1))
    assert not nears_stall(dog.state)
    without = Watchdog(StallSettings(10.0))
    for _ in range(95):
        without.look()
    assert not nears_stall(without.state)
