"""When an agent of depth `process` lets kubelet start its Pod's containers anew, instead of its worker's process."""

from __future__ import annotations

import pytest

from inplace.common.epoch.agent import Accepted, Announce, View
from inplace.common.epoch.errors import InvariantError
from inplace.common.epoch.supervisor import (
    IN_VAIN_S,
    PROCESS_RESTARTS_MAX,
    Action,
    Event,
    Leave,
    StartWorker,
    SupervisorState,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLost,
    step,
)
from inplace.common.epoch.telling import (
    FailureTold,
    ScheduleTelling,
    TellFailure,
    TellingDue,
    WorkerFailed,
    WorkerStalled,
)

CLEAN = 88


class Group:
    """One agent, and a group that follows it."""

    def __init__(self, clean_code: int | None = CLEAN) -> None:
        self.state = SupervisorState(clean_code=clean_code)
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

    def restarts(self, at_s: float) -> None:
        """Let the worker die, and its process start again."""
        assert self.take(WorkerExited(1, at_s)) == []
        assert self.take(WorkerGone()) == [Announce(self.epoch + 1)]
        self.starts()


def failing(count: int = PROCESS_RESTARTS_MAX) -> Group:
    """Return a group in which so many restarts of the process did not help."""
    group = Group()
    for number in range(count):
        group.restarts(number * 1.0)
    return group


def test_restarts_in_vain_end_in_clean_containers() -> None:
    """The failure after the last of them is told, with their number, and the agent leaves once it is."""
    group = failing()
    assert group.take(WorkerExited(7, 10.0)) == [ScheduleTelling()]
    assert group.take(WorkerGone()) == []
    assert group.take(TellingDue()) == [TellFailure(WorkerFailed(4, 7, PROCESS_RESTARTS_MAX))]
    assert group.take(FailureTold()) == [Leave(CLEAN)]


def test_a_worker_that_runs_for_long_was_helped() -> None:
    """What failed more than ten minutes ago says nothing of the newest restart."""
    group = Group()
    for number in range(20):
        group.restarts(number * (IN_VAIN_S / PROCESS_RESTARTS_MAX + 1.0))


def test_the_failures_of_others_do_not_count() -> None:
    """A worker that was told to stop did not fail, however it ended."""
    group = Group()
    for _ in range(20):
        group.take(View(group.epoch, group.epoch), WorkerExited(143, 0.0))
        assert group.take(WorkerGone()) == [Announce(group.epoch + 1)]
        group.starts()


def test_a_worker_that_keeps_hanging_gets_clean_containers_too() -> None:
    """It was told of as a hang already."""
    group = Group()
    for number in range(PROCESS_RESTARTS_MAX + 1):
        group.take(WorkerStalled(group.epoch, 10, None), TellingDue(), FailureTold())
        actions = group.take(WorkerExited(137, number * 1.0))
        if number < PROCESS_RESTARTS_MAX:
            assert group.take(WorkerGone()) == [Announce(group.epoch + 1)]
            group.starts()
    assert actions == [Leave(CLEAN)]


def test_nobody_is_told_of_an_epoch_that_is_over() -> None:
    """A view deprecates it while the agent waits to tell, or came before."""
    group = failing()
    group.take(WorkerExited(7, 10.0))
    assert group.take(View(4, 4)) == [Leave(CLEAN)]


def test_a_container_that_is_gone_is_told_once() -> None:
    """While the worker runs; when it was being stopped for the group, everybody knows."""
    group = Group()
    assert group.take(WorkerLost()) == [ScheduleTelling()]
    assert group.take(WorkerLost()) == []
    assert group.take(TellingDue()) == [TellFailure(WorkerFailed(1, None))]
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
    assert group.take(WorkerExited(7, 1.0)) == [Leave(CLEAN)]


def test_a_supervisor_asks_for_nothing() -> None:
    """It is the worker's parent in the same container: a new one costs kubelet's time for each group restart."""
    group = Group(clean_code=None)
    for _ in range(20):
        group.restarts(0.0)
    with pytest.raises(InvariantError, match="a worker is lost"):
        group.take(WorkerLost())
