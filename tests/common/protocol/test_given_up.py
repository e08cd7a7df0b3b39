"""A Pod that Kubernetes gives up ends the epoch that it is in, and no later one."""

from __future__ import annotations

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Shape, Slot

ANY = 99


def pod(uid: str, epoch: int | None, *, given_up: bool = False) -> PodView:
    """Return a Pod of the only slot."""
    return PodView(uid, Slot("w", 0, 0), epoch, PodLife.LEAVING if given_up else PodLife.LIVE, given_up=given_up)


def test_a_pod_that_is_given_up_and_comes_back_costs_one_restart() -> None:
    """Its node is heard of again, and its agent announces one epoch after the other until kubelet ends it."""
    ledger = Ledger(Shape({"w": (1, 1)}), 1, 0)
    ledger.observe(pod("old", 1))
    ledger.observe(pod("old", 1, given_up=True))
    ledger.observe(pod("new", None))
    assert ledger.decide(restarts_max=ANY).deprecated == 1
    ledger.learn(1, 1)
    ledger.observe(pod("new", 2))
    ledger.observe(pod("old", 2, given_up=True))
    ledger.fence("old")
    assert ledger.decide(restarts_max=ANY).deprecated == 2, "the epoch that it might have joined is skipped"
    ledger.learn(2, 2)
    ledger.observe(pod("new", 3))
    assert ledger.decide(restarts_max=ANY).synced == 3
    ledger.learn(3, 2)
    ledger.observe(pod("old", 3, given_up=True))
    assert ledger.decide(restarts_max=ANY).deprecated == 2
