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
from inplace.cli.demo.view import Scene
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
    Console(file=out, width=COLUMNS).print(scene.picture(COLUMNS))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert len(lines) < LINES
    return lines


async def test_the_picture_is_that_of_status() -> None:
    """Before the first frame there is no JobSet; then phase, epoch and Pods are what `status --watch` shows."""
    async with scene_of(Mode.PROCESS) as scene:
        assert drawn(scene) == ["this restart", "no JobSet yet, or none any more"]
        group = scene.group
        await group.cluster.apply(group.manifest.documents)
        await group.complete(-1)
        assert drawn(scene)[:3] == ["this restart", "default/plain  Running", "training at epoch 1"]
        await group.strike(Random(1), signal.SIGKILL)
        await group.cluster.clock.sleep(0.1)
        assert drawn(scene)[2] != "training at epoch 1"
        await group.complete(0)
        assert drawn(scene)[2] == "training at epoch 2"
        assert any(line.startswith("epoch 2 · 4 of 4 Pods") for line in drawn(scene))
        assert any(line.startswith("last restart: a worker ended") for line in drawn(scene))


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
        assert drawn(scene)[1] == "4 of 4 workers run"
