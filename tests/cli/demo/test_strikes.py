"""The demo kills workers while their group trains, also where some end by themselves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from inplace.cli.demo.adaptation import DemoError
from inplace.cli.demo.demo import TRAIN_S, strike_workers
from inplace.cli.demo.group import DemoGroup
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster.cluster import virtual_cluster

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def demo_group(pods: int) -> AsyncIterator[DemoGroup]:
    """Run the demo's example until it trains."""
    manifest = read_demo_manifest(None, pods, 9, Mode.CONTAINERS, models=True)
    async with virtual_cluster(nodes=manifest.nodes, adds_agent=True) as cluster:
        group = DemoGroup(cluster, manifest)
        await cluster.apply(manifest.documents)
        await group.complete(-1)
        yield group


@pytest.mark.parametrize("early_s", [0.05, 0.5, 1.0])
async def test_a_group_between_two_runs_is_waited_for(early_s: float) -> None:
    """A worker that ended by itself shortly before the next kill does not end the demo."""
    async with demo_group(1) as group, asyncio.TaskGroup() as beside:

        async def die() -> None:
            await group.cluster.clock.sleep(TRAIN_S - early_s)
            pod = group.cluster.pods()[0]["metadata"]["name"]
            group.cluster.kill_worker("default", pod)

        beside.create_task(die())
        await strike_workers(group, Random(1), [signal.SIGKILL])
        assert group.timeline.current.number == 2
        assert group.timeline.current.complete


async def test_what_cannot_be_struck_is_told() -> None:
    """A container of another name never runs: the demo gives up after some tries."""
    async with demo_group(1) as group:
        workers = group.manifest.workers
        assert isinstance(workers, dict)
        workers.update(dict.fromkeys(workers, "nobody"))
        with pytest.raises(DemoError, match="no worker could be killed or stopped: expected container nobody"):
            await strike_workers(group, Random(1), [signal.SIGKILL])
