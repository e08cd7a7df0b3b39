"""Leases: how long a worker may run without the API server, and how long the controller waits for its end."""

from __future__ import annotations

from itertools import product

import pytest

from inplace.common.protocol.agent import (
    Accepted,
    AgentPhase,
    AgentState,
    Announce,
    Lease,
    LiftBarrier,
    RestartInPlace,
    Verdict,
    View,
    step,
)
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.lease import END_S, LENGTH_S_MAX, LENGTH_S_MIN, fenced_in_s, promised_s, renewed_until_s
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod import PodState, StartWorker, StopWorker, WorkerExited, WorkerGone, WorkerLife
from inplace.common.protocol.pod import step as step_supervisor
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Shape, Slot

RUNNING = AgentState(previous=4, phase=AgentPhase.LIFTED, epoch=5, view=View(5, 4))
WAITING = AgentState(previous=4, phase=AgentPhase.WAITING, epoch=5, view=View(4, 4), leased=False)
SUPERVISED = PodState(RUNNING, WorkerLife.RUNNING)


def test_a_lease_counts_from_the_sending_of_a_read_and_never_gets_shorter() -> None:
    """What deprecates the epoch may have been stored while the answer was on its way."""
    assert renewed_until_s(0.0, 100.0, 60, RUNNING) == 160.0
    assert renewed_until_s(170.0, 100.0, 60, RUNNING) == 170.0


@pytest.mark.parametrize("view", [View(5, 5), View(6, 4)])
def test_a_worker_whose_epoch_is_over_gets_no_more_time(view: View) -> None:
    """Its grace is inside the lease that it had."""
    over = AgentState(phase=AgentPhase.RESTARTING, epoch=5, view=view)
    assert renewed_until_s(130.0, 100.0, 60, over) == 130.0


def test_whoever_lost_the_lease_in_time_has_ended_when_the_controller_has_waited() -> None:
    """For every order of read and deprecation, and clocks of which one runs 0.1 % faster than the other."""
    for length_s, gap_s in product((LENGTH_S_MIN, 60, LENGTH_S_MAX), (0.0, 0.5, 30.0)):
        sent_s = 1000.0
        over_since_s = sent_s + gap_s  # a read that was sent later shows that the epoch is over
        noticed_s = sent_s + length_s * 1.001 + 1.0
        waited_until_s = over_since_s + promised_s(length_s) * 0.999
        assert noticed_s + END_S / 2 < waited_until_s
        assert fenced_in_s(over_since_s, promised_s(length_s), over_since_s + promised_s(length_s)) == 0.0


def test_a_worker_ends_with_its_lease() -> None:
    """The agent restarts its Pod's worker as if the epoch were over; with in-place restart off it does nothing."""
    state, actions = step(RUNNING, Lease(held=False))
    assert actions == (RestartInPlace(5, Verdict.FENCED),)
    assert state.phase is AgentPhase.RESTARTING
    bypassed = AgentState(phase=AgentPhase.LIFTED, epoch=5, view=View(5, 4, in_place=False))
    assert step(bypassed, Lease(held=False))[1] == ()


def test_no_worker_starts_without_a_lease() -> None:
    """Whether the sync comes before the answer or after it, the lift waits for the lease."""
    state, actions = step(WAITING, View(5, 4))
    assert (state.phase, actions) == (AgentPhase.WAITING, ())
    announcing = AgentState(phase=AgentPhase.ANNOUNCING, epoch=5, view=View(5, 4), leased=False)
    state, actions = step(announcing, Accepted(5))
    assert (state.phase, actions) == (AgentPhase.WAITING, ())
    assert step(state, Lease(held=True))[1] == (LiftBarrier(5),)


def test_what_is_over_is_over_without_a_lease_too() -> None:
    """A Pod at the barrier restarts when it sees that its epoch was skipped."""
    assert step(WAITING, View(5, 5))[1] == (RestartInPlace(5, Verdict.DEPRECATED),)


def test_a_supervisor_kills_its_worker_and_announces_the_next_epoch() -> None:
    """The next worker starts only with a lease again."""
    state, actions = step_supervisor(SUPERVISED, Lease(held=False))
    assert actions == (StopWorker(Verdict.FENCED),)
    state, _ = step_supervisor(state, WorkerExited(137))
    state, actions = step_supervisor(state, WorkerGone())
    assert actions == (Announce(6),)
    state, _ = step_supervisor(state, Accepted(6))
    state, actions = step_supervisor(state, View(6, 5))
    assert actions == ()
    assert step_supervisor(state, Lease(held=True))[1] == (StartWorker(6),)


def test_a_worker_in_its_grace_is_killed_when_the_lease_is_over() -> None:
    """A SIGTERM that it ignores does not make it live longer than the agent promised."""
    state, actions = step_supervisor(SUPERVISED, View(5, 5))
    assert actions == (StopWorker(Verdict.DEPRECATED),)
    state, actions = step_supervisor(state, Lease(held=False))
    assert actions == (StopWorker(Verdict.FENCED, at_once=True),)
    state, _ = step_supervisor(state, WorkerExited(137))
    assert step_supervisor(state, Lease(held=True))[1] == ()
    with pytest.raises(InvariantError):
        step_supervisor(PodState(RUNNING, WorkerLife.LEFT), Lease(held=False))


def pod(uid: str, epoch: int, life: PodLife = PodLife.LIVE, index: int = 0) -> PodView:
    """Return a Pod of the one Job."""
    return PodView(uid, Slot("w", 0, index), epoch, life)


def ghostly(ghost_epoch: int = 5) -> Ledger:
    """Return a group of two that restarts at S = D = 5; slot 0 has a Pod that leaves, and its replacement."""
    ledger = Ledger(Shape({"w": (1, 2)}), 5, 5)
    for view in (pod("ghost", ghost_epoch, PodLife.LEAVING), pod("new", 6), pod("peer", 6, index=1)):
        ledger.observe(view)
    return ledger


def test_the_barrier_waits_for_a_ghost_until_it_is_fenced() -> None:
    """Then the group syncs without it, although its object is still there."""
    ledger = ghostly()
    assert ledger.decide(restarts_max=99).synced == 5
    ledger.fence("ghost")
    assert ledger.decide(restarts_max=99).synced == 6
    ledger.learn(6, 5)
    ledger.fence("ghost")  # once more is nothing
    ledger.observe(pod("ghost", 7, PodLife.LEAVING))  # its agent is back, and announces what counts for nobody
    decision = ledger.decide(restarts_max=99)
    assert (decision.synced, decision.deprecated) == (6, 5)
    ledger.vanish("ghost")
    assert ledger.decide(restarts_max=99) == decision


def test_the_epoch_that_a_ghost_waits_for_is_skipped() -> None:
    """It announced it before it was deleted, so it could join it."""
    ledger = ghostly(ghost_epoch=6)
    ledger.fence("ghost")
    decision = ledger.decide(restarts_max=99)
    assert (decision.synced, decision.deprecated) == (6, 6)
    ledger.learn(6, 6)
    for view in (pod("new", 7), pod("peer", 7, index=1)):
        ledger.observe(view)
    assert ledger.decide(restarts_max=99).synced == 7


def test_a_ghost_outside_every_slot_is_fenced_too() -> None:
    """After a resize nobody replaces it, and the barrier does not wait for it either."""
    ledger = Ledger(Shape({"w": (1, 1)}), 5, 5)
    ledger.observe(pod("new", 6))
    ledger.observe(pod("ghost", 5, PodLife.LEAVING, index=1))
    assert (ledger.decide(restarts_max=99).synced, ledger.names_in_the_way()) == (5, {"ghost": [""]})
    ledger.fence("ghost")
    assert (ledger.decide(restarts_max=99).synced, ledger.names_in_the_way()) == (6, {})


def test_only_a_pod_that_leaves_can_be_fenced() -> None:
    """Nothing is known of the end of one that lives, or is unknown."""
    ledger = ghostly()
    before = ledger.histogram()
    ledger.fence("new")
    ledger.fence("unknown")
    assert ledger.histogram() == before
