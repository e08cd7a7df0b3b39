"""Pods that are lost together come back together, each time: their indexes back off alone, and are forgiven."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest

from testbed.node.cluster import Cluster
from testbed.node.group import Group, running_group
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS: Final = 4
LOST: Final = 3
BACK_S_MAX: Final = 14.0
"""From the deletion: Kubernetes waits 10 s from a Pod's end, and the Pods end within some seconds.

With one back-off for the Job it would be 40 s for three lost Pods, and 20 s the second time if nobody forgave.
"""


async def replaced_s(group: Group) -> float:
    """Delete some Pods at once; return the seconds until each has a replacement."""
    before = group.uids()
    began_s = time.monotonic()
    await asyncio.gather(*(group.delete(pod) for pod in group.live()[:LOST]))
    await until(
        lambda: len([pod for pod in group.live() if pod["metadata"]["uid"] not in before]) == LOST,
        f"{LOST} new Pods",
        timeout_s=60.0,
        also=group.state,
    )
    return time.monotonic() - began_s


async def test_pods_that_are_lost_together_come_back_together(cluster: Cluster) -> None:
    """Twice in a row, as in two drains; the last Pod stays, and no two epochs ever ran at once."""
    async with running_group(cluster, "process", pods=PODS) as group:
        await group.until_runs(1)
        kept = group.live()[LOST]["metadata"]["uid"]
        for epoch in (2, 3):
            took_s = await replaced_s(group)
            print(f"{LOST} of {PODS} Pods deleted at once: all replaced after {took_s:.1f} s")
            assert took_s < BACK_S_MAX
            await group.until_runs(epoch)
        assert kept in group.uids()
        assert group.broken() == []
