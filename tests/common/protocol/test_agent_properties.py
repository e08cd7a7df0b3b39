"""Properties of the agent's machine after any sequence of events."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.agent import (
    TERMINAL,
    TRANSITIONS,
    Accepted,
    Action,
    AgentPhase,
    AgentState,
    Announce,
    Event,
    GiveUp,
    LiftBarrier,
    NotAccepted,
    RestartInPlace,
    StillWaiting,
    TakeConsistentView,
    Verdict,
    View,
    is_fresh,
    judge,
    step,
)
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.errors import InvariantError

synced_epochs = st.one_of(st.integers(0, 4), st.just(INT32_MAX), st.just(INT32_MAX - 1))
views = synced_epochs.flatmap(
    lambda synced: st.builds(
        View, st.just(synced), st.integers(0, min(synced, 5)), st.sampled_from([True] * 9 + [False]), st.booleans()
    )
)
in_place_views = synced_epochs.flatmap(
    lambda synced: st.builds(View, st.just(synced), st.integers(0, min(synced, 5)), st.just(True), st.booleans())
)
previous_epochs = st.one_of(st.none(), st.integers(1, 6), st.just(INT32_MAX))
OTHERS = ["accepted", "not accepted", "still waiting"]


@dataclass
class Run:
    """A machine and all its events."""

    state: AgentState
    events: list[Event] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def feed(self, item: View | str) -> None:
        """Step the machine with an event that the shell could send; skip other events."""
        event: Event
        if isinstance(item, View):
            event = item
        elif item == "still waiting":
            if self.state.phase is not AgentPhase.WAITING:
                return
            event = StillWaiting()
        elif self.state.phase is AgentPhase.ANNOUNCING:
            event = (Accepted if item == "accepted" else NotAccepted)(self.state.epoch)
        else:
            return
        if self.state.phase in TERMINAL:
            return
        self.events.append(event)
        self.state, actions = step(self.state, event)
        self.actions += actions


runs = st.lists(st.one_of(views, views, st.sampled_from(OTHERS)), max_size=25)


def play(previous: int | None, items: list[View | str]) -> Run:
    """Run a machine from its start."""
    run = Run(AgentState(previous))
    for item in items:
        run.feed(item)
    return run


@given(previous_epochs, runs)
def test_barrier_lifts_once_and_only_after_the_server_accepted(previous: int | None, items: list[View | str]) -> None:
    """A lifted epoch was announced, accepted and synced; the barrier lifts at most once in a process."""
    run = play(previous, items)
    lifts = [action for action in run.actions if isinstance(action, LiftBarrier)]

    assert len(lifts) <= 1
    for lift in lifts:
        if lift.epoch is not None:
            assert Accepted(lift.epoch) in run.events
            assert any(isinstance(event, View) and event.synced == lift.epoch for event in run.events)
        else:
            assert any(isinstance(event, View) and not event.in_place for event in run.events)


@given(previous_epochs, runs)
def test_announces_one_epoch_from_a_fresh_view(previous: int | None, items: list[View | str]) -> None:
    """A process announces only one epoch, perhaps repeatedly; from a cheap view it is above `previous`."""
    run = play(previous, items)
    epochs = {action.epoch for action in run.actions if isinstance(action, Announce)}

    assert len(epochs) <= 1
    for epoch in epochs:
        seen: list[View] = []
        for event in run.events:
            assert isinstance(event, View)
            seen.append(event)
            if event.consistent or (previous is not None and max(view.synced for view in seen) >= previous):
                break
        assert epoch == max(view.synced for view in seen) + 1
        if not seen[-1].consistent:
            assert previous is not None
            assert epoch > previous


@given(previous_epochs, runs)
def test_what_was_seen_is_never_taken_back(previous: int | None, items: list[View | str]) -> None:
    """The view is the maximum of all seen views, in any order."""
    run = play(previous, items)
    seen = [event for event in run.events if isinstance(event, View)]

    if seen:
        assert run.state.view is not None
        assert run.state.view.synced == max(view.synced for view in seen)
        assert run.state.view.deprecated == max(view.deprecated for view in seen)
        assert run.state.view.in_place == seen[-1].in_place


@given(previous_epochs, st.lists(st.one_of(in_place_views, st.sampled_from(OTHERS)), max_size=25))
def test_every_action_has_its_phase(previous: int | None, items: list[View | str]) -> None:
    """The phase follows from the last action."""
    run = play(previous, items)
    last = run.actions[-1] if run.actions else None

    expected: dict[type[Action] | None, set[AgentPhase]] = {
        None: {AgentPhase.STARTING},
        TakeConsistentView: {AgentPhase.CONFIRMING},
        Announce: {AgentPhase.ANNOUNCING, AgentPhase.WAITING},
        LiftBarrier: {AgentPhase.LIFTED},
        RestartInPlace: {AgentPhase.RESTARTING},
        GiveUp: {AgentPhase.EXHAUSTED},
    }
    assert run.state.phase in expected[type(last) if last else None]


@given(st.integers(1, 6), views)
def test_judge_agrees_with_the_seed(epoch: int, view: View) -> None:
    """Deprecated beats synced, and bypass beats both."""
    verdict = judge(epoch, view)

    assert (verdict is Verdict.BYPASS) == (not view.in_place)
    if view.in_place and epoch <= view.deprecated:
        assert verdict is Verdict.DEPRECATED
    elif view.in_place:
        relation = {-1: Verdict.PASSED, 0: Verdict.SYNCED, 1: Verdict.PENDING}
        assert verdict is relation[(epoch > view.synced) - (epoch < view.synced)]


@given(views, st.integers(1, 6))
def test_an_older_view_is_never_fresher(view: View, previous: int) -> None:
    """If a cheap view is fresh for some `previous`, it is fresh for every lower one."""
    if is_fresh(view, previous + 1):
        assert is_fresh(view, previous)
    assert is_fresh(view, None) == view.consistent


@pytest.mark.parametrize("phase", [AgentPhase.RESTARTING, AgentPhase.EXHAUSTED])
def test_terminal_phases_take_no_event(phase: AgentPhase) -> None:
    """An event in a terminal phase raises InvariantError."""
    with pytest.raises(InvariantError, match="after terminal phase"):
        step(AgentState(phase=phase), View(0, 0))


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (AgentState(phase=AgentPhase.WAITING, epoch=1, view=View(0, 0)), Accepted(1)),
        (AgentState(phase=AgentPhase.ANNOUNCING, epoch=2, view=View(1, 0)), Accepted(1)),
        (AgentState(phase=AgentPhase.STARTING), NotAccepted(1)),
    ],
)
def test_an_outcome_nobody_asked_for_is_our_bug(state: AgentState, event: Event) -> None:
    """An outcome without an announcement on the wire raises InvariantError."""
    with pytest.raises(InvariantError, match="outcome"):
        step(state, event)


def test_only_accepted_leads_out_of_announcing() -> None:
    """In the table only Accepted, or a bypass, leads out of announcing."""
    row = TRANSITIONS[AgentPhase.ANNOUNCING]

    assert {verdict for verdict, phase in row.items() if phase is not AgentPhase.ANNOUNCING} == {Verdict.BYPASS}


def test_a_pod_that_waits_long_announces_again_and_does_not_leave_meanwhile() -> None:
    """A reminder announces the same epoch again, and every verdict waits for its outcome."""
    run = play(None, [View(0, 0, consistent=True), "accepted", "still waiting"])
    assert run.state.phase is AgentPhase.ANNOUNCING
    assert run.actions == [Announce(1), Announce(1)]
    run.feed(View(1, 1))
    assert len(run.actions) == 2
    run.feed("accepted")
    assert run.actions[2:] == [RestartInPlace(1, Verdict.DEPRECATED)]


@pytest.mark.parametrize("items", [[], ["accepted", View(1, 0)]])
def test_who_does_not_wait_is_not_reminded(items: list[View | str]) -> None:
    """Only a Pod at the barrier takes a reminder."""
    state = play(None, [View(0, 0, consistent=True), *items]).state
    with pytest.raises(InvariantError, match=f"StillWaiting.*{state.phase.value}"):
        step(state, StillWaiting())
