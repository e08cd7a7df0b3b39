"""A Pod that is gone and whose end was not seen: no worker starts in the epoch that it had announced."""

from __future__ import annotations

import pytest

from inplace.common.protocol.decision import Decision
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.slot import Shape, Slot

ANY = 99


def waiting(*, synced: int = 1) -> Ledger:
    """Return a ledger of two slots: one waits at the barrier of the next epoch, the other has not come back."""
    ledger = Ledger(Shape({"w": (1, 2)}), synced, synced)
    ledger.observe(pod("a", 0, synced + 1))
    ledger.observe(pod("b", 1, synced or None))
    return ledger


def pod(uid: str, index: int, epoch: int | None, life: PodLife = PodLife.LIVE) -> PodView:
    """Return a Pod of the one Job."""
    return PodView(uid, Slot("w", 0, index), epoch, life, Worker())


@pytest.mark.parametrize("synced", [0, 1, 5])
def test_the_epoch_of_a_pod_that_vanished_at_the_barrier_is_skipped(synced: int) -> None:
    """One write sets S and D to the vanished Pod's epoch: Pods that announced it restart, and no barrier lifts."""
    ledger = waiting(synced=synced)
    ledger.vanish("a")
    skipped = Decision(synced + 1, synced + 1, restarts=ledger.decide(restarts_max=ANY).restarts)
    assert ledger.decide(restarts_max=ANY) == skipped
    ledger.learn(synced + 1, synced + 1)
    for uid, index in (("c", 0), ("b", 1)):
        ledger.observe(pod(uid, index, synced + 2))
    assert ledger.decide(restarts_max=ANY).synced == synced + 2


@pytest.mark.parametrize("life", [PodLife.FAILED, PodLife.SUCCEEDED])
def test_a_pod_that_was_seen_to_end_skips_nothing(life: PodLife) -> None:
    """When kubelet reports the end of a Pod's containers BEFORE its deletion, no epoch is skipped."""
    ledger = waiting()
    ledger.observe(pod("a", 0, 2, life))
    ledger.vanish("a")
    assert ledger.decide(restarts_max=ANY).synced == 1


def test_a_pod_that_had_not_announced_skips_nothing() -> None:
    """A Pod that had not announced skips no epoch: the server refuses announcements after its deletion."""
    ledger = waiting()
    ledger.vanish("b")
    assert ledger.decide(restarts_max=ANY).synced == 1


def test_a_pod_that_moves_to_another_ledger_skips_nothing() -> None:
    """A Pod that moves to another ledger is forgotten, and no epoch is skipped."""
    ledger = waiting()
    ledger.forget("a")
    assert ledger.decide(restarts_max=ANY).synced == 1
