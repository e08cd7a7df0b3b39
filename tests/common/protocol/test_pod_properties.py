"""Properties of the Pod's machine after any sequence of events that its shell can report."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.agent import Accepted, AgentPhase, AgentState, Announce, GiveUp, NotAccepted, Verdict, View
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.failure_report import (
    ReportDue,
    ReportSent,
    ScheduleReport,
    SendReport,
    WorkerFailed,
    WorkerRaised,
    WorkerStalled,
)
from inplace.common.protocol.pod import (
    Action,
    Event,
    Leave,
    PodState,
    StartWorker,
    StopWorker,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLife,
    step,
)

CLEAN = 88
views = st.integers(0, 5).flatmap(
    lambda synced: st.builds(
        View, st.just(synced), st.integers(0, synced), st.sampled_from([True] * 9 + [False]), st.booleans()
    )
)
items = st.lists(
    st.one_of(
        views,
        views,
        st.sampled_from(["accepted", "accepted", "refused", "gone", "gone", "exit 1", "exit 143"]),
        st.sampled_from(["signal", "stall", "stall", "due", "told"]),
    ),
    max_size=40,
)


@dataclass
class World:
    """A machine, and the worker's processes after its actions."""

    state: PodState
    left: str = ""  # of the worker: "", "running" or "leftovers"
    started: list[int | None] = field(default_factory=list)
    announced: list[int] = field(default_factory=list)
    code: int | None = None
    telling: str = ""  # the newest one: scheduled, due, told or none; the shell drops an older one
    told: list[int] = field(default_factory=list)

    def feed(self, item: View | str) -> None:
        """Report an item to the machine, if the shell could report it now."""
        event = self.event_of(item)
        if event is None or self.state.life is WorkerLife.LEFT:
            return
        self.state, actions = step(self.state, event)
        for action in actions:
            self.perform(action)

    def event_of(self, item: View | str) -> Event | None:
        """Return the event, None when it cannot happen now."""
        match item:
            case View():
                return item
            case "accepted" | "refused" if self.state.agent.phase is AgentPhase.ANNOUNCING:
                return (Accepted if item == "accepted" else NotAccepted)(self.state.agent.epoch)
            case "gone" if self.left == "leftovers":
                self.left = ""
                return WorkerGone()
            case "exit 1" | "exit 143" if self.left == "running":
                self.left = "leftovers"
                return WorkerExited(int(item.removeprefix("exit ")))
            case "signal":
                return Terminate(15)
            case "stall":
                return WorkerStalled(self.state.agent.epoch, 11, None)
            case "due" if self.telling == "scheduled":
                self.telling = "due"
                return ReportDue()
            case "told" if self.telling == "told":
                self.telling = ""
                return ReportSent()
        return None

    def perform(self, action: Action) -> None:
        """Carry out an action as the shell would, and check it against the world."""
        match action:
            case StartWorker(epoch):
                assert self.left == ""
                self.left = "running"
                self.started.append(epoch)
            case StopWorker():
                assert self.left == "running"
            case ScheduleReport():
                self.telling = "scheduled"
            case SendReport(failure):
                assert self.left == "running" or isinstance(failure, WorkerFailed)
                self.telling = "told"
                self.told.append(failure.epoch)
            case Announce(epoch):
                assert self.left == "", f"announced {epoch} beside {self.left}"
                self.announced.append(epoch)
            case Leave(code):
                self.code = code


@given(st.one_of(st.none(), st.integers(1, 4)), items)
def test_announcements_and_starts_keep_the_promise(previous: int | None, happened: list[View | str]) -> None:
    """No process of the worker exists at an announcement or a worker's start; epochs grow."""
    world = World(PodState(AgentState(previous), clean_code=CLEAN, clean_after=2))
    for item in happened:
        world.feed(item)

    epochs = [epoch for epoch in world.started if epoch is not None]
    assert epochs == sorted(set(epochs))
    assert set(epochs) <= set(world.announced)
    assert world.announced == sorted(world.announced)
    assert world.told == sorted(set(world.told)), "a stall was told twice"
    assert set(world.told) <= set(epochs)
    assert world.code in (None, CLEAN, 143)


@given(items)
def test_a_worker_s_end_is_always_followed_by_something(happened: list[View | str]) -> None:
    """AFTER the end of the worker's tree the machine exits, gives up, or announces BEFORE it starts a worker."""
    world = World(PodState(AgentState(), clean_code=CLEAN, clean_after=2))
    for item in happened:
        before, announced, started = world.left, len(world.announced), len(world.started)
        world.feed(item)
        if before == "leftovers" and world.left != "leftovers":
            moved_on = len(world.announced) > announced or len(world.started) > started
            assert moved_on or world.state.life is WorkerLife.LEFT or world.telling


@given(items)
def test_a_process_of_one_worker_never_starts_a_second(happened: list[View | str]) -> None:
    """In depth `containers` a process announces one epoch, starts one worker, and leaves by a restart or a signal."""
    world = World(PodState(AgentState(), restart_code=CLEAN, clean_code=CLEAN))
    for item in happened:
        world.feed(item)
    assert len(world.started) <= 1
    assert len(set(world.announced)) <= 1
    assert world.code in (None, CLEAN, 143)


@pytest.mark.parametrize("event", [WorkerExited(1), WorkerGone()])
def test_what_cannot_be_is_a_bug(event: Event) -> None:
    """An exit without a worker, and any event after the end, raises InvariantError."""
    with pytest.raises(InvariantError):
        step(PodState(), event)
    with pytest.raises(InvariantError, match="after this process left"):
        step(PodState(life=WorkerLife.LEFT), event)


def test_int32_s_end_is_given_up_by_name() -> None:
    """When the worker of int32's last epoch dies, the shell exits with its own code."""
    last = 2**31 - 1
    lifted = AgentState(phase=AgentPhase.LIFTED, epoch=last, view=View(last, 0))
    state, _ = step(PodState(lifted, WorkerLife.RUNNING), WorkerExited(1))
    state, actions = step(state, WorkerGone())
    assert (state.life, actions) == (WorkerLife.LEFT, (GiveUp(last),))


RUNNING = PodState(AgentState(phase=AgentPhase.LIFTED, epoch=3, view=View(3, 2)), WorkerLife.RUNNING)
STALL = WorkerStalled(3, 11, 1200)


def after(*events: Event, state: PodState = RUNNING) -> tuple[PodState, tuple[Action, ...]]:
    """Return where a Pod stands after these events, and the actions of the last one."""
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


def test_a_stall_is_told_and_then_the_worker_is_killed() -> None:
    """The order: a moment of its own, one PATCH, its answer, SIGKILL, the next epoch, whose stall is told anew."""
    assert after(STALL)[1] == (ScheduleReport(),)
    assert after(STALL, STALL)[1] == ()
    assert after(STALL, ReportDue())[1] == (SendReport(STALL),)
    told = (STALL, ReportDue(), ReportSent())
    state, actions = after(*told)
    assert (state.life, actions) == (WorkerLife.STOPPING, (StopWorker(None, stalled=True),))
    state, actions = after(*told, View(3, 3), WorkerExited(137), WorkerGone())
    assert actions == (Announce(4),)
    assert after(Accepted(4), View(4, 3), WorkerStalled(4, 11, 7), state=state)[1] == (ScheduleReport(),)


def test_a_rank_that_failed_is_told_and_its_worker_ends_by_itself() -> None:
    """The same order, and no signal is asked for; a view that ends the epoch first changes nothing in that."""
    raised = WorkerRaised(3, 7)
    assert after(raised)[1] == (ScheduleReport(),)
    assert after(STALL, raised)[1] == ()
    assert after(raised, ReportDue())[1] == (SendReport(raised),)
    state, actions = after(raised, ReportDue(), ReportSent())
    assert (state.life, actions) == (WorkerLife.STOPPING, (StopWorker(None, raised=True),))
    assert after(View(3, 3), WorkerExited(7), WorkerGone(), state=state)[1] == (Announce(4),)
    assert after(raised, View(3, 3))[1] == (StopWorker(Verdict.DEPRECATED, raised=True),)
    assert after(WorkerRaised(2, 7))[1] == ()
    assert after(raised, WorkerExited(7))[0].failures == 1


def test_a_group_that_restarts_anyway_is_told_nothing() -> None:
    """The epoch is deprecated before this Pod's moment: the worker that hangs is killed, and nothing is told later."""
    state, actions = after(STALL, View(3, 3))
    assert actions == (StopWorker(Verdict.DEPRECATED, stalled=True),)
    assert after(ReportDue(), state=state) == (state, ())
    assert after(STALL, ReportDue(), View(3, 3), ReportSent())[1] == ()


@pytest.mark.parametrize(
    "state",
    [
        PodState(),
        PodState(RUNNING.agent, WorkerLife.STOPPING),
        PodState(RUNNING.agent, WorkerLife.LEFTOVERS),
        PodState(AgentState(phase=AgentPhase.LIFTED, epoch=4, view=View(4, 3)), WorkerLife.RUNNING),
        PodState(AgentState(phase=AgentPhase.BYPASSED, view=View(3, 2, in_place=False)), WorkerLife.RUNNING),
        PodState(AgentState(phase=AgentPhase.LIFTED, epoch=3, view=View(3, 2, in_place=False)), WorkerLife.RUNNING),
    ],
)
def test_only_the_stall_of_the_running_epoch_counts(state: PodState) -> None:
    """Another epoch's is late; and without in-place restart it is the Job's affair."""
    assert after(STALL, state=state) == (state, ())
