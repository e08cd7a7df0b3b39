"""The guard's machine: a worker runs only between a lift and the end of the link."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol import guard
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.guard import (
    BarrierLifted,
    GraceOver,
    GuardState,
    KillWorker,
    Leave,
    LinkEnded,
    PassOn,
    Signalled,
    StartWorker,
    StopWorker,
    TellEnd,
    TellEnding,
    WorkerEnded,
    step,
)

FINAL = 42
TERM, HUP = 15, 1
events = st.one_of(
    st.builds(BarrierLifted, st.integers(0, 2)),
    st.just(LinkEnded()),
    st.builds(WorkerEnded, st.sampled_from([0, 1, FINAL, 137])),
    st.just(GraceOver()),
    st.builds(Signalled, st.sampled_from([TERM, HUP])),
)


def after(*given_events: guard.Event) -> tuple[GuardState, list[guard.Action]]:
    """Return where a guard stands after these events, and the actions of the last one."""
    state, actions = GuardState(final_codes=frozenset({FINAL})), tuple[guard.Action, ...]()
    for event in given_events:
        state, actions = step(state, event)
    return state, list(actions)


@given(st.lists(events, max_size=12))
def test_a_worker_runs_between_lift_and_link_end(given_events: list[guard.Event]) -> None:
    """It starts once and after a lift, is stopped when the link ends, and its end is told at most once, and truly."""
    state, seen = GuardState(final_codes=frozenset({FINAL})), list[guard.Action]()
    alive = linked = stopped = ending = False
    for event in given_events:
        if isinstance(event, WorkerEnded) and not alive:
            continue
        if isinstance(event, GraceOver) and not stopped:
            continue
        with suppress(InvariantError):
            state, actions = step(state, event)
            seen += actions
            for action in actions:
                if isinstance(action, StartWorker):
                    assert isinstance(event, BarrierLifted)
                    assert action.epoch == event.epoch
                    assert not alive
                    alive = linked = True
                stopped |= isinstance(action, StopWorker)
                ending |= isinstance(action, TellEnding)
                if isinstance(action, TellEnd):
                    assert isinstance(event, WorkerEnded)
                    assert linked
                    assert not stopped
                    assert action.failed is (not ending and event.code not in (0, FINAL))
                    assert action.epoch == state.epoch
            if isinstance(event, WorkerEnded):
                alive = False
                assert isinstance(actions[-1], Leave)
            if isinstance(event, LinkEnded):
                linked = False
                assert not alive or stopped, "a worker runs without an agent"
    assert sum(isinstance(action, StartWorker) for action in seen) <= 1
    assert sum(isinstance(action, TellEnd) for action in seen) <= 1
    assert sum(isinstance(action, Leave) for action in seen) <= 1


@pytest.mark.parametrize(
    ("code", "failed", "leaves_with"), [(0, False, 0), (1, True, 1), (FINAL, False, FINAL), (137, True, 137)]
)
def test_the_guard_leaves_with_the_workers_code(code: int, failed: bool, leaves_with: int) -> None:
    """BEFORE that it tells the agent what the code means for the group."""
    _, actions = after(BarrierLifted(3), WorkerEnded(code))
    assert actions == [TellEnd(3, code, failed), Leave(leaves_with)]


def test_the_end_of_the_link_ends_the_worker() -> None:
    """First in peace, after its grace by force; a worker that gives 0 then did not complete."""
    assert after(BarrierLifted(3), LinkEnded())[1] == [StopWorker()]
    assert after(BarrierLifted(3), LinkEnded(), GraceOver())[1] == [KillWorker()]
    assert after(BarrierLifted(3), LinkEnded(), WorkerEnded(0))[1] == [Leave(143)]
    assert after(BarrierLifted(3), LinkEnded(), WorkerEnded(1))[1] == [Leave(1)]


def test_another_epoch_on_the_link_ends_the_worker() -> None:
    """The same epoch again is no news."""
    assert after(BarrierLifted(3), BarrierLifted(3))[1] == []
    assert after(BarrierLifted(3), BarrierLifted(4))[1] == [StopWorker()]


def test_signals() -> None:
    """SIGTERM says that the Pod ends: what the worker then does is no failure. Before a worker, it ends the guard."""
    assert after(Signalled(TERM))[1] == [Leave(143)]
    assert after(BarrierLifted(3), Signalled(HUP))[1] == [PassOn(HUP)]
    assert after(BarrierLifted(3), Signalled(TERM))[1] == [TellEnding(3), PassOn(TERM)]
    assert after(BarrierLifted(3), Signalled(TERM), WorkerEnded(1))[1] == [TellEnd(3, 1, False), Leave(1)]


def test_nothing_comes_after_the_end() -> None:
    """Nor does a worker end that never ran."""
    for given_events in ((Signalled(TERM), LinkEnded()), (WorkerEnded(0),), (GraceOver(),)):
        with pytest.raises(InvariantError):
            after(*given_events)


stayed = (guard.StayOn(), BarrierLifted(1))


def test_a_guard_that_stays_outlives_its_worker() -> None:
    """It tells of the death, says that nothing is left, and starts the next worker at the next lift only."""
    assert after(guard.StayOn())[1] == [guard.TellAbsent()]
    state, actions = after(*stayed, WorkerEnded(1))
    assert (state.phase, actions) == (guard.WAITING, [guard.TellEnd(1, 1, True), guard.TellAbsent()])
    assert after(*stayed, WorkerEnded(1), BarrierLifted(2))[1] == [guard.StartWorker(2)]


def test_an_order_of_the_agent_ends_the_worker_and_not_the_guard() -> None:
    """Whatever the worker's code is then, it is no news; an order that comes after the worker's end is late."""
    for code in (0, 1, FINAL, 143):
        state, actions = after(*stayed, guard.AgentSignal(TERM), WorkerEnded(code))
        assert (state.phase, actions) == (guard.WAITING, [guard.TellAbsent()])
    assert after(*stayed, guard.AgentSignal(9))[1] == [guard.PassOn(9)]
    assert after(*stayed, WorkerEnded(1), guard.AgentSignal(TERM))[1] == []


@pytest.mark.parametrize("code", [0, FINAL])
def test_a_final_code_ends_a_guard_that_stays(code: int) -> None:
    """It is the Pod's end, as in the other depth."""
    assert after(*stayed, WorkerEnded(code))[1] == [guard.TellEnd(1, code, False), guard.Leave(code)]


def test_with_in_place_restart_off_a_guard_does_not_stay() -> None:
    """The worker's code is the Pod's."""
    assert after(guard.StayOn(), BarrierLifted(0), WorkerEnded(7))[1] == [guard.TellEnd(0, 7, True), guard.Leave(7)]


def test_a_tree_that_survives_ends_the_container() -> None:
    """Nothing is said to be gone; kubelet ends what hangs in a driver, or the Pod."""
    stuck = WorkerEnded(1, is_tree_gone=False)
    assert after(*stayed, stuck)[1] == [guard.TellEnd(1, 1, True), guard.Leave(1)]
    assert after(*stayed, guard.AgentSignal(TERM), WorkerEnded(0, is_tree_gone=False))[1] == [guard.Leave(143)]


def test_a_guard_that_stays_leaves_with_its_agent() -> None:
    """Kubelet finds both ended at one look, also between two workers; a guard of the other depth waits."""
    assert after(*stayed, WorkerEnded(1), LinkEnded())[1] == [guard.Leave(143)]
    assert after(*stayed, LinkEnded(), WorkerEnded(0))[1] == [guard.Leave(143)]
    assert after(*stayed, guard.AgentSignal(TERM), LinkEnded())[1] == [guard.StopWorker()]
    assert after(LinkEnded())[1] == []


def test_kubelets_signal_beats_the_agents() -> None:
    """A Pod that ends while its group restarts ends."""
    state, actions = after(*stayed, guard.AgentSignal(TERM), Signalled(TERM))
    assert (state.phase, actions) == (guard.ENDING, [guard.TellEnding(1), guard.PassOn(TERM)])


@pytest.mark.parametrize("number", [1, 3, 6, 10, 14, 15, 28, 37])
@pytest.mark.parametrize("told", [(BarrierLifted(1),), stayed, (*stayed, guard.AgentSignal(TERM))])
def test_an_end_by_an_outside_signal_is_no_completion(number: int, told: tuple[guard.Event, ...]) -> None:
    """Whatever the signal and the depth: code 0 becomes 128 + n, another code stays, and nobody hears of a failure."""
    signalled = Signalled(number, ends=True)
    assert after(*told, signalled)[1] == [TellEnding(1), PassOn(number)]
    assert after(*told, signalled, WorkerEnded(0))[1] == [TellEnd(1, 128 + number, False), Leave(128 + number)]
    assert after(*told, signalled, WorkerEnded(9))[1] == [TellEnd(1, 9, False), Leave(9)]


def test_an_ordinary_signal_changes_nothing() -> None:
    """A log rotation is passed on, and the worker's end is judged as ever; SIGWINCH ends no guard that waits."""
    assert after(BarrierLifted(1), Signalled(10), WorkerEnded(0))[1] == [TellEnd(1, 0, False), Leave(0)]
    assert after(BarrierLifted(1), Signalled(10), WorkerEnded(1))[1] == [TellEnd(1, 1, True), Leave(1)]
    assert after(Signalled(28))[1] == []
