"""The sidecar's machine: a death in this Pod is told once, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol import agent
from inplace.common.protocol.agent import Accepted, AgentPhase, LiftBarrier, RestartInPlace, Verdict, View
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ScheduleReport,
    SendReport,
    WorkerFailed,
    WorkerStalled,
)
from inplace.common.protocol.sidecar import Action, Event, RestartPod, SidecarState, step

LIFTED = (View(0, 0, consistent=True), Accepted(1), View(1, 0))


def after(*events: Event) -> tuple[SidecarState, list[Action]]:
    """Return where a sidecar stands after these events, and the actions of the last one."""
    state, actions = SidecarState(), tuple[Action, ...]()
    for event in events:
        state, actions = step(state, event)
    return state, list(actions)


@pytest.mark.parametrize("failure", [WorkerFailed(1, 7), WorkerStalled(1, 11, 1200)])
def test_a_failure_is_told_and_then_the_pod_restarts(failure: WorkerFailed | WorkerStalled) -> None:
    """The order: a moment of its own, one PATCH, its answer, the end of this process."""
    assert after(*LIFTED)[1] == [LiftBarrier(1)]
    assert after(*LIFTED, failure)[1] == [ScheduleReport()]
    assert after(*LIFTED, failure, ReportDue())[1] == [SendReport(failure)]
    state, actions = after(*LIFTED, failure, ReportDue(), ReportSent())
    assert actions == [RestartPod(failure)]
    assert state.agent.phase is AgentPhase.RESTARTING


def test_a_group_that_restarts_anyway_is_told_nothing() -> None:
    """The epoch is deprecated before this Pod's moment: it restarts as ever."""
    state, actions = after(*LIFTED, WorkerFailed(1, 7), View(1, 1))
    assert actions == [RestartInPlace(1, Verdict.DEPRECATED)]
    with pytest.raises(InvariantError):
        step(state, ReportDue())


@pytest.mark.parametrize(
    "before",
    [
        LIFTED[:1],  # it is announcing
        LIFTED[:2],  # it waits: the worker of this epoch was not let start by this process
        (View(0, 0, in_place=False),),  # in-place restart is off: kubelet and the Job decide
    ],
)
def test_only_a_worker_that_was_let_start_can_fail(before: tuple[agent.Event, ...]) -> None:
    """Anything else on the link is nonsense, or no affair of the group."""
    for failure in (WorkerFailed(1, 7), WorkerStalled(1, 11, None)):
        assert after(*before, failure) == (after(*before)[0], [])


def test_only_the_first_failure_of_this_epoch_counts() -> None:
    """A Pod may have several workers; another epoch's death is nonsense."""
    assert after(*LIFTED, WorkerFailed(2, 7))[1] == []
    for later in (WorkerFailed(1, None), WorkerStalled(1, 11, 5)):
        state, actions = after(*LIFTED, WorkerFailed(1, 7), later)
        assert actions == []
        assert state.report.failure == WorkerFailed(1, 7)


events = st.one_of(
    st.builds(View, st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans()),
    st.builds(Accepted, st.integers(1, 2)),
    st.builds(WorkerFailed, st.integers(0, 2), st.sampled_from([None, 1])),
    st.builds(WorkerStalled, st.integers(0, 2), st.just(11), st.sampled_from([None, 1])),
    st.just(ReportDue()),
    st.just(ReportSent()),
)


@given(st.lists(events, max_size=20))
def test_it_tells_at_most_once_and_never_after_the_end(given_events: list[Event]) -> None:
    """Whatever comes in whatever order: one PATCH, after a lift and a failure; the exit after it."""
    state, seen = SidecarState(), list[Action]()
    for event in given_events:
        try:
            state, actions = step(state, event)
        except InvariantError:
            continue
        for action in actions:
            if isinstance(action, SendReport):
                assert any(isinstance(one, LiftBarrier) for one in seen)
                assert ScheduleReport() in seen
            if isinstance(action, RestartPod):
                assert SendReport(action.failure) in seen
        seen += actions
    assert sum(isinstance(action, SendReport) for action in seen) <= 1
    assert sum(isinstance(action, RestartPod | RestartInPlace) for action in seen) <= 1
