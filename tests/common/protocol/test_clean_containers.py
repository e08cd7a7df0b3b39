"""When kubelet starts a Pod's containers anew, instead of its agent the worker's process."""

from __future__ import annotations

import pytest

from inplace.common.protocol.agent import Accepted, Announce, View
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
    WorkerGone,
    WorkerLost,
    step,
)

CLEAN = 88
CLEAN_AFTER = 2


class Group:
    """One agent, and a group that follows it."""

    def __init__(self, *, clean_after: int = CLEAN_AFTER, failures: int = 0) -> None:
        self.state = PodState(clean_code=CLEAN, clean_after=clean_after, failures=failures)
        self.epoch = 0
        self.starts()

    def take(self, *events: Event) -> list[Action]:
        """Return the actions of the last event."""
        actions: tuple[Action, ...] = ()
        for event in events:
            self.state, actions = step(self.state, event)
        return list(actions)

    def starts(self) -> None:
        """Let the next epoch begin."""
        self.epoch += 1
        self.take(View(self.epoch - 1, max(0, self.epoch - 2), consistent=True), Accepted(self.epoch))
        assert self.take(View(self.epoch, self.epoch - 1)) == [StartWorker(self.epoch)]

    def restarts(self, *, progressed: bool = False) -> None:
        """Let the worker die, and its process start again."""
        assert self.take(WorkerExited(1, progressed)) == []
        assert self.take(WorkerGone()) == [Announce(self.epoch + 1)]
        self.starts()


def failing() -> Group:
    """Return a group whose worker's next failure is one too many."""
    group = Group()
    for _ in range(CLEAN_AFTER - 1):
        group.restarts()
    return group


def test_a_second_failure_in_a_row_ends_in_clean_containers() -> None:
    """It is told, with the number of restarts in vain, and the agent leaves once it is."""
    group = failing()
    assert group.take(WorkerExited(7)) == [ScheduleReport()]
    assert group.take(WorkerGone()) == []
    assert group.take(ReportDue()) == [SendReport(WorkerFailed(2, 7, 1))]
    assert group.take(ReportSent()) == [Leave(CLEAN)]


def test_nobody_asks_where_that_is_off() -> None:
    """With 0 the process alone begins again; with another number so many failures come first."""
    group = Group(clean_after=0)
    for _ in range(20):
        group.restarts()
    later = Group(clean_after=4)
    for _ in range(3):
        later.restarts()
    assert later.take(WorkerExited(7)) == [ScheduleReport()]


def test_a_new_container_remembers() -> None:
    """The worker goes on to fail in clean containers: it gets others each time, until it makes progress."""
    group = Group(failures=2)
    assert group.take(WorkerExited(7), ReportDue()) == [SendReport(WorkerFailed(1, 7, 2))]
    helped = Group(failures=2)
    helped.restarts(progressed=True)
    assert helped.take(WorkerExited(7)) == [ScheduleReport()]


def test_progress_forgives() -> None:
    """A worker that got further than those before it failed for the first time, whatever became of them."""
    group = Group()
    for _ in range(20):
        group.restarts(progressed=True)
    group.take(View(group.epoch, group.epoch), WorkerExited(143, progressed=True), WorkerGone())
    group.starts()
    group.restarts()


def test_the_failures_of_others_do_not_count() -> None:
    """A worker that was told to stop did not fail, however it ended and however often it failed before."""
    group = Group(failures=5)
    for _ in range(20):
        group.take(View(group.epoch, group.epoch), WorkerExited(143))
        assert group.take(WorkerGone()) == [Announce(group.epoch + 1)]
        group.starts()


def test_a_worker_that_keeps_hanging_gets_clean_containers_too() -> None:
    """It was told of as a hang already."""
    group = Group()
    for number in range(CLEAN_AFTER):
        group.take(WorkerStalled(group.epoch, 10, None), ReportDue(), ReportSent())
        actions = group.take(WorkerExited(137))
        if number < CLEAN_AFTER - 1:
            assert group.take(WorkerGone()) == [Announce(group.epoch + 1)]
            group.starts()
    assert actions == [Leave(CLEAN)]


def test_nobody_is_told_of_an_epoch_that_is_over() -> None:
    """A view deprecates it while the agent waits to tell, or came before."""
    group = failing()
    group.take(WorkerExited(7))
    assert group.take(View(2, 2)) == [Leave(CLEAN)]


def test_a_container_that_is_gone_is_told_once() -> None:
    """While the worker runs; when it was being stopped for the group, everybody knows."""
    group = Group()
    assert group.take(WorkerLost()) == [ScheduleReport()]
    assert group.take(WorkerLost()) == []
    assert group.take(ReportDue()) == [SendReport(WorkerFailed(1, None))]
    stopping = Group()
    assert stopping.take(View(1, 1), WorkerLost()) == [Leave(CLEAN)]


@pytest.mark.parametrize("end", [WorkerLost(), WorkerGone()])
def test_a_process_that_was_told_to_end_leaves_with_that_code(end: Event) -> None:
    """The Pod ends: nobody wants clean containers."""
    group = Group()
    before = () if isinstance(end, WorkerLost) else (WorkerExited(143),)
    assert group.take(Terminate(15), *before, end) == [Leave(143)]


def test_with_in_place_restart_off_the_pod_restarts_by_itself() -> None:
    """Nothing is told: there is no group to restart."""
    group = Group()
    group.take(View(1, 0, in_place=False))
    assert group.take(WorkerExited(7)) == [Leave(CLEAN)]
