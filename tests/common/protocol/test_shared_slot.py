"""Two Pods of one slot that announced the epoch which runs: both lifted, and the group restarts."""

from __future__ import annotations

import pytest

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.slot import Shape, Slot

ANY = 99


def pod(uid: str, index: int, epoch: int | None, life: PodLife = PodLife.LIVE) -> PodView:
    """Return a Pod of the one Job."""
    return PodView(uid, Slot("w", 0, index), epoch, life, Worker())


def replaced(synced: int) -> Ledger:
    """Return a ledger of two slots at the barrier of an epoch; a Pod that waits is deleted and replaced meanwhile."""
    ledger = Ledger(Shape({"w": (1, 2)}), synced, synced)
    for each in (pod("a", 0, synced + 1), pod("b", 1, synced + 1), pod("a", 0, synced + 1, PodLife.LEAVING)):
        ledger.observe(each)
    ledger.observe(pod("c", 0, synced + 1))
    return ledger


@pytest.mark.parametrize("synced", [0, 4])
def test_an_epoch_with_two_pods_in_a_slot_is_over(synced: int) -> None:
    """The write of S was under way when the Pod was deleted: D follows at once, and is asked for until it is stored."""
    ledger = replaced(synced)
    decision = ledger.decide(restarts_max=ANY)
    assert (decision.synced, decision.deprecated) == (synced, synced), "the barrier waits for the Pod that leaves"
    ledger.learn(synced + 1, synced)
    decision = ledger.decide(restarts_max=ANY)
    assert (decision.synced, decision.deprecated) == (synced + 1, synced + 1)
    ledger.learn(synced + 1, synced + 1)
    ledger.observe(pod("a", 0, synced + 1, PodLife.FAILED))
    for each in (pod("b", 1, synced + 2), pod("c", 0, synced + 2)):
        ledger.observe(each)
    assert ledger.decide(restarts_max=ANY).synced == synced + 2


def test_a_pod_that_leaves_beside_one_that_waits_restarts_nobody() -> None:
    """Before S is stored the barrier waits for the end of the Pod that leaves, and then lifts."""
    ledger = replaced(0)
    ledger.observe(pod("a", 0, 1, PodLife.FAILED))
    decision = ledger.decide(restarts_max=ANY)
    assert (decision.synced, decision.deprecated) == (1, 0)


def test_a_pod_of_an_older_epoch_beside_its_replacement_restarts_nobody() -> None:
    """A Pod that leaves with an epoch that is over shares none."""
    ledger = Ledger(Shape({"w": (1, 1)}), 2, 1)
    ledger.observe(pod("a", 0, 1, PodLife.LEAVING))
    ledger.observe(pod("b", 0, 2))
    assert ledger.decide(restarts_max=ANY).deprecated == 1


def test_a_pod_that_announces_while_it_leaves_shares_nothing() -> None:
    """Our agents start no worker then. A new leader, which sees it leave first, takes it for such a Pod."""
    for life in (PodLife.LIVE, PodLife.LEAVING):
        ledger = Ledger(Shape({"w": (1, 2)}), 0, 0)
        for each in (pod("a", 0, None, life), pod("b", 1, 1), pod("a", 0, 1, PodLife.LEAVING), pod("c", 0, 1)):
            ledger.observe(each)
        ledger.learn(1, 0)
        assert ledger.decide(restarts_max=ANY).deprecated == 0
