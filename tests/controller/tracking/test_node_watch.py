"""What is kept of Pods that wait behind the gate for bad nodes, and for how long."""

from __future__ import annotations

import pytest

from inplace.common.jobset.kinds import Pod
from inplace.common.wire import names as wire
from inplace.controller.tracking.node_watch import NodeWatch
from tests.controller.objects import lone_pod

NODE = "n1"


def pod(*, node: str | None = None, leaving: bool = False) -> Pod:
    """Return a Pod that waits behind our gate, or has a node."""
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
    spec = {"nodeName": node} if node else {"schedulingGates": [{"name": wire.AVOIDANCE_GATE}]}
    return lone_pod(metadata=metadata, spec=spec)


def test_a_pod_waits_until_it_is_gone() -> None:
    """Nobody lifts the gate of a Pod that is not there any more."""
    watch = NodeWatch()
    assert watch.note(pod())
    assert not watch.note(pod())
    watch.forget("u")
    assert (watch.gated, watch.has_signs) == ((), False)


@pytest.mark.parametrize("before", [True, False])
def test_a_pod_that_is_being_deleted_waits_for_nothing(before: bool) -> None:
    """It is never scheduled: its gate stays."""
    watch = NodeWatch()
    if before:
        watch.note(pod())
    assert not watch.note(pod(leaving=True))
    assert watch.gated == ()


@pytest.mark.parametrize("is_gone", [True, False])
def test_the_wish_of_a_pod_goes_with_it(is_gone: bool) -> None:
    """So what is kept is bounded by the Pods that are there."""
    watch = NodeWatch()
    watch.avoids("u", [NODE])
    if is_gone:
        watch.forget("u")
    assert watch.note(pod(node=NODE)) is not is_gone
    assert watch.signs(1).returned == (frozenset() if is_gone else frozenset({NODE}))
