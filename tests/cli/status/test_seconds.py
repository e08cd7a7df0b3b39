"""A restart has one number of seconds, wherever it is told."""

from __future__ import annotations

import pytest

from inplace.cli.status.document import status_data
from inplace.cli.status.restart import outcome, request_restart
from inplace.cli.status.timeline import read_restart, restart_timeline, timeline_data, timeline_title
from inplace.cli.terminal.moments import duration_text
from inplace.common.jobset.last_restart import seconds_of
from inplace.common.kube.resources import EVENTS
from inplace.common.wire import names as wire
from inplace.controller.metrics import Metrics
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.facts import drawn, text_of
from tests.cli.scenes import connection, explained, kill, seen, status, synced, training

pytestmark = pytest.mark.virtual_time


def gauge(metrics: Metrics) -> float:
    """Return the gauge of the metrics page."""
    return float(metrics.last_restart_seconds.labels("default", "train")._value.get())


async def event_of(cluster: Cluster) -> str:
    """Return what the controller's Event said."""
    events = (await cluster.client().list(EVENTS))["items"]
    (note,) = (event["note"] for event in events if event["reason"] == "GroupRestartFinished")
    return str(note)


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["a killed worker", "a request"])
async def test_every_output_tells_the_same_seconds(is_asked_for: bool) -> None:
    """From startedAt to syncedAt: in status, explain, timeline, restart, the Event and the metrics."""
    async with training(3) as cluster:
        request = ""
        if is_asked_for:
            request = await request_restart(connection(cluster), "train")
        else:
            kill(cluster)
        await synced(cluster, 2, 3)
        entry = status(cluster)[wire.LAST_GROUP_RESTART]
        seconds = seconds_of(entry)
        assert seconds is not None
        assert seconds > 0
        words, now_s = duration_text(seconds), cluster.clock.wall_s()

        state = await seen(cluster)
        last = status_data(state)["lastRestart"]
        assert last is not None
        assert last["seconds"] == seconds
        assert f", took {words}" in drawn(state, now_s=now_s)
        assert f"every Pod was at epoch 2, {words} after the restart began" in text_of(await explained(cluster))

        drawn_state, pods = await read_restart(connection(cluster), "train")
        timeline = restart_timeline(pods, drawn_state.last, now_s=now_s, rows_max=40)
        assert timeline is not None
        assert f", in {words}, " in timeline_title(drawn_state, timeline, pods)
        assert timeline_data(timeline)["synced"] == pytest.approx(seconds, abs=1e-3)
        if is_asked_for:
            done = outcome(cluster.jobset("train"), request)
            assert done is not None
            assert done.startswith(f"restarted in {words}: every Pod is at epoch 2")

        assert f" in {seconds:.1f} s" in await event_of(cluster)
        assert cluster.controller is not None
        assert gauge(cluster.controller.metrics) == pytest.approx(seconds, abs=1e-6)
