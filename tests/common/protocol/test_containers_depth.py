"""The Pod's machine in depth `containers`: a failure in this Pod is told once, or not at all, and ends the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol import agent
from inplace.common.protocol.agent import Accepted, Announce, View
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ScheduleReport,
    SendReport,
    WorkerFailed,
    WorkerStalled,
)
from inplace.common.protocol.pod import (
    Action,
    Event,
    Leave,
    PodState,
    StartWorker,
    Terminate,
    WorkerExited,
    WorkerLife,
    WorkerLost,
    step,
)

RESTART = 88
LIFTED = (View(0, 0, consistent=True), Accepted(1), View(1, 0))
STALLED = WorkerStalled(1, 11, 1200)


def after(*events: Event) -> tuple[PodState, list[Action]]:
    """Return where a Pod stands after these events, and the actions of the last one."""
    state, actions = PodState(restart_code=RESTART, clean_code=RESTART, clean_after=2), ()
    for event in events:
        state, actions = step(state, event)  # type: ignore[assignment]
    return state, list(actions)


@pytest.mark.parametrize(
    ("event", "failure"),
    [(WorkerExited(7), WorkerFailed(1, 7)), (WorkerLost(), WorkerFailed(1, None)), (STALLED, STALLED)],
)
def test_a_failure_is_told_and_then_the_pod_restarts(event: Event, failure: WorkerFailed | WorkerStalled) -> None:
    """The order: a moment of its own, one PATCH, its answer, the end of this process."""
    assert after(*LIFTED)[1] == [StartWorker(1)]
    assert after(*LIFTED, event)[1] == [ScheduleReport()]
    assert after(*LIFTED, event, ReportDue())[1] == [SendReport(failure)]
    state, actions = after(*LIFTED, event, ReportDue(), ReportSent())
    assert actions == [Leave(RESTART)]
    assert state.life is WorkerLife.LEFT
    assert state.failures == 0  # its containers are clean each time


@pytest.mark.parametrize("event", [WorkerExited(7), STALLED])
def test_a_group_that_restarts_anyway_is_told_nothing(event: Event) -> None:
    """The epoch is deprecated before this Pod's moment: it restarts as ever."""
    state, actions = after(*LIFTED, event, View(1, 1))
    assert actions == [Leave(RESTART)]
    with pytest.raises(InvariantError):
        step(state, ReportDue())


@pytest.mark.parametrize("life", [WorkerLife.ABSENT, WorkerLife.RUNNING])
def test_a_group_restart_ends_the_process_and_leaves_the_workers_to_their_guards(life: WorkerLife) -> None:
    """Whether the Pod waits at the barrier or runs; so does a signal."""
    before = LIFTED[: 2 + (life is WorkerLife.RUNNING)]
    assert after(*before)[0].life is life
    assert after(*before, View(2, 1))[1] == [Leave(RESTART)]
    assert after(*before, Terminate(15))[1] == [Leave(143)]


@pytest.mark.parametrize(
    "before",
    [
        LIFTED[:1],  # it is announcing
        LIFTED[:2],  # it waits: the worker of this epoch was not let start by this process
        (View(0, 0, in_place=False),),  # in-place restart is off: kubelet and the Job decide
    ],
)
def test_only_a_worker_that_was_let_start_can_hang(before: tuple[agent.Event, ...]) -> None:
    """Anything else is late, or no affair of the group."""
    assert after(*before, STALLED) == (after(*before)[0], [])


def test_only_the_first_failure_counts() -> None:
    """A worker that hangs may die, and with it its container: one PATCH, of what was known when it was sent."""
    told: list[Event] = [ReportDue(), WorkerExited(7), WorkerLost()]
    assert after(*LIFTED, STALLED, *told)[1] == []
    assert after(*LIFTED, STALLED, *told, ReportSent())[1] == [Leave(RESTART)]
    assert after(*LIFTED, STALLED, WorkerExited(7), ReportDue())[1] == [SendReport(WorkerFailed(1, 7))]


events = st.one_of(
    st.builds(View, st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans()),
    st.builds(Accepted, st.integers(1, 2)),
    st.builds(WorkerExited, st.sampled_from([0, 1])),
    st.builds(WorkerStalled, st.integers(0, 2), st.just(11), st.sampled_from([None, 1])),
    st.sampled_from([WorkerLost(), ReportDue(), ReportSent()]),
)


@given(st.lists(events, max_size=20))
def test_it_tells_at_most_once_and_never_after_the_end(given_events: list[Event]) -> None:
    """Whatever comes in whatever order: one PATCH, after a start and a failure; no second epoch in one process."""
    state, seen = after()[0], list[Action]()
    for event in given_events:
        try:
            state, actions = step(state, event)
        except InvariantError:
            continue
        for action in actions:
            if isinstance(action, SendReport):
                assert any(isinstance(one, StartWorker) for one in seen)
                assert ScheduleReport() in seen
        seen += actions
    assert sum(isinstance(action, SendReport) for action in seen) <= 1
    assert sum(isinstance(action, Leave) for action in seen) <= 1
    assert len({action.epoch for action in seen if isinstance(action, Announce)}) <= 1
