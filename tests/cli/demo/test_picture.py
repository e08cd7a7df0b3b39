"""The demo's live picture is right from its first frame, and fits a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from random import Random

import pytest
from rich.console import Console

from inplace.cli.demo.demo import strike_workers
from inplace.cli.demo.group import DemoGroup
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.cli.demo.picture import Scene
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster.cluster import virtual_cluster

pytestmark = pytest.mark.virtual_time
COLUMNS, LINES = 80, 24


@asynccontextmanager
async def scene_of(mode: Mode) -> AsyncIterator[Scene]:
    """Yield the scene of a group that is not applied yet."""
    manifest = read_demo_manifest(None, 4, 1, mode, models=True)
    async with virtual_cluster(nodes=manifest.nodes, adds_agent=True) as cluster:
        yield Scene("this restart", DemoGroup(cluster, manifest))


def drawn(scene: Scene) -> list[str]:
    """Return the lines of this moment's picture, which fit the terminal."""
    out = StringIO()
    Console(file=out, width=COLUMNS).print(scene.picture())
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert len(lines) < LINES
    return lines


@pytest.mark.parametrize("mode", [Mode.CONTAINERS, Mode.PROCESS])
async def test_the_picture_names_what_the_group_waits_for(mode: Mode) -> None:
    """A first start has no death to wait for, and a restart in depth process no agent that starts."""
    async with scene_of(mode) as scene:
        first = drawn(scene)
        assert first[:2] == ["JobSet default/plain, 4 Pods; this restart", "first start; waits for: last agent started"]
        assert " no epoch yet    0" in first
        assert not any("death" in line or "deprecated" in line or "exited" in line for line in first)

        group = scene.group
        await group.cluster.apply(group.manifest.documents)
        await group.complete(-1)
        assert drawn(scene)[1] == "training at epoch 1"
        assert any(line.startswith(" epoch 1  ████") and line.endswith("  4") for line in drawn(scene))

        await group.strike(Random(1), signal.SIGKILL)
        struck = drawn(scene)
        assert struck[1].startswith("restart 1 (fault in plain-workers-0-")
        assert struck[1].endswith("); waits for: death seen in the API")
        assert any("last agent started" in line for line in struck) == (mode is Mode.CONTAINERS)
        await group.complete(0)
        assert drawn(scene)[1] == "training at epoch 2"


async def test_new_pods_are_counted() -> None:
    """A group without agents has no epochs: the picture says how many workers run."""
    async with scene_of(Mode.PROCESS) as scene:
        group = scene.group
        await group.cluster.apply(group.manifest.documents)
        await group.complete(-1)
        group.manifest = replace(group.manifest, agents=frozenset())
        assert drawn(scene)[1] == "training"
        await strike_workers(group, Random(1), [signal.SIGKILL])
        group.record.stepped.clear()
        assert drawn(scene)[1] == "new Pods after a kill: 4 of 4 workers run"
