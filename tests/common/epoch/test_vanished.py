"""A Pod that is gone but was not seen to end: no worker starts in the epoch that it had announced."""

from __future__ import annotations

import pytest

from inplace.common.epoch.decision import Decision
from inplace.common.epoch.ledger import Ledger
from inplace.common.epoch.pod_view import PodLife, PodView, Worker
from inplace.common.epoch.slot import Shape, Slot

ANY = 99


def waiting(*, synced: int = 1) -> Ledger:
    """Return a ledger of two slots, of which one waits at the barrier of the next epoch and one has not come back."""
    ledger = Ledger(Shape({"w": (1, 2)}), synced, synced)
    ledger.observe(pod("a", 0, synced + 1))
    ledger.observe(pod("b", 1, synced or None))
    return ledger


def pod(uid: str, index: int, epoch: int | None, life: PodLife = PodLife.LIVE) -> PodView:
    """Return a Pod of the one Job."""
    return PodView(uid, Slot("w", 0, index), epoch, life, Worker())


@pytest.mark.parametrize("synced", [0, 1, 5])
def test_the_epoch_of_a_pod_that_vanished_at_the_barrier_is_skipped(synced: int) -> None:
    """S and D reach it in one write, at once: whoever announced it restarts, and its barrier never lifts."""
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
    """Kubelet says that its containers have ended BEFORE the object goes: its replacement takes its place."""
    ledger = waiting()
    ledger.observe(pod("a", 0, 2, life))
    ledger.vanish("a")
    assert ledger.decide(restarts_max=ANY).synced == 1


def test_a_pod_that_had_not_announced_skips_nothing() -> None:
    """What it announces after its object is gone, the server refuses."""
    ledger = waiting()
    ledger.vanish("b")
    assert ledger.decide(restarts_max=ANY).synced == 1


def test_a_pod_that_moves_to_another_ledger_skips_nothing() -> None:
    """It is forgotten here, and is not gone."""
    ledger = waiting()
    ledger.forget("a")
    assert ledger.decide(restarts_max=ANY).synced == 1
