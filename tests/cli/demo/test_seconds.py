"""The demo tells a restart's seconds as status, Event and metrics do, in every mode."""

from __future__ import annotations

import signal
from random import Random

import pytest

from inplace.cli.demo.demo import strike_workers
from inplace.cli.demo.group import DemoGroup
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.cli.demo.view import DemoView, Scene
from inplace.cli.group.state import group_state
from inplace.common.kube.resources import EVENTS
from inplace.common.wire.mode import GUARDED, Mode
from inplace.simulator.cluster.cluster import virtual_cluster

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("mode", GUARDED)
async def test_the_demo_tells_the_same_seconds(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo's table has the seconds of `inplace status`, of the Event and of the metric behind the boards."""
    manifest = read_demo_manifest(None, 4, 1, mode, models=True)
    async with virtual_cluster(nodes=manifest.nodes, adds_agent=True) as cluster:
        group = DemoGroup(cluster, manifest)
        view = DemoView(Scene("one", group), runtime="model", seed=1, json=False)
        await cluster.apply(manifest.documents)
        await group.complete(-1)
        await strike_workers(group, Random(1), [signal.SIGKILL])
        view.show_restarts()

        seconds = group.timeline.current.seconds
        assert seconds is not None
        assert seconds > 0
        shown = next(line for line in capsys.readouterr().out.splitlines() if "first sign to sync (status)" in line)
        assert shown.split()[-2:] == [f"{seconds:.2f}", "s"]
        last = group_state(cluster.jobset(manifest.name), ()).last
        assert last is not None
        assert last.seconds == seconds
        events = (await cluster.client().list(EVENTS))["items"]
        assert f" in {seconds:.1f} s" in next(e["note"] for e in events if e["reason"] == "GroupRestartFinished")
        assert cluster.controller is not None
        gauge = cluster.controller.metrics.last_restart_seconds.labels(manifest.namespace, manifest.name)
        assert gauge._value.get() == pytest.approx(seconds, abs=1e-6)
