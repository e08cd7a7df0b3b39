"""Prometheus' own linter on the metrics of agents and controllers."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.wire.phases import RestartPhase
from tests.agent.process import environment, process
from tests.agent.scripted_server import ScriptedServer, in_turn, jobset, refuses, silence, until_patched
from tests.agent.test_start_path import rss_mb
from tests.grafana.test_dashboards import controller_metrics
from tests.promtool import DEADLINE_S, complaints

RESIDENT_MB_MAX = 40.0  # of 5,000 agents, once prometheus_client is loaded; 28 on CPython 3.11

pytestmark = pytest.mark.asyncio


async def scraped(port: int, wanted: bytes) -> bytes:
    """Return the answer to `curl` once `wanted` is in it."""

    def once() -> bytes:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except OSError:  # refused, or 503: the program is starting
            return b""

    async with asyncio.timeout(DEADLINE_S):
        while True:
            text = await asyncio.to_thread(once)
            if wanted in text:
                return text
            await asyncio.sleep(0.01)


async def test_a_running_agent_has_nothing_to_complain_about(tmp_path: Path) -> None:
    """`promtool` accepts the metrics of an agent that was throttled, announced and lifted; its memory is bounded."""
    answer = in_turn(refuses(429, "TooManyRequests", retry_after="0"))
    lifting = (until_patched(2), jobset(1, 0), silence)
    async with ScriptedServer(lists=[jobset(0)], watches=[lifting], answer=answer) as server:
        env = environment(tmp_path, server)
        async with process(env) as child:
            text = await scraped(int(env["BARRIER_PORT"]), b"barrier_lifted 1.0")
            assert rss_mb(child.pid) <= RESIDENT_MB_MAX
    assert await complaints(text) == ""
    for sample in (
        b"inplace_agent_throttled_total 1.0",
        b'inplace_agent_retries_total{outcome="busy",verb="patch"} 1.0',
        b'inplace_agent_requests_total{outcome="ok",verb="patch"} 1.0',
        *(b'duration_seconds_count{phase="%s"} 1.0' % phase for phase in (b"view", b"announce", b"barrier", b"lift")),
    ):
        assert sample in text


async def test_every_metric_there_is_has_nothing_to_complain_about() -> None:
    """`promtool` accepts every phase and every counter, also those that stay zero in a run."""
    metrics = AgentMetrics()
    metrics.heard_s = 0.0
    for phase in RestartPhase:
        metrics.observe(phase, 1.0)
    metrics.wait("watch", "busy", 1.0, throttled=True)
    metrics.watch_endings["gone"] += 1
    metrics.requests["list", "ok"] += 1
    assert await complaints(render(metrics, now_s=lambda: 1.0)[1]) == ""


async def test_the_controller_has_nothing_to_complain_about() -> None:
    """`promtool` accepts the controller's own metrics and those with client-go's names."""
    assert await complaints(controller_metrics().text()) == ""


async def test_openmetrics_is_understood() -> None:
    """A strict parser reads the OpenMetrics text: units, suffixes and the end are right."""
    metrics = AgentMetrics()
    metrics.observe(RestartPhase.VIEW, 0.1)
    metrics.wait("watch", "busy", 1.0, throttled=True)
    _, body = render(metrics, "application/openmetrics-text; version=1.0.0", lambda: 0.0)
    read_back = text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family.type for family in read_back}
    assert families["inplace_agent_restart_phase_duration_seconds"] == "histogram"
    assert families["inplace_agent_throttled"] == "counter"
    assert families["inplace_agent_build"] == "info"


async def test_the_linter_would_complain() -> None:
    """`promtool` rejects a counter without _total and without help, so this check can fail."""
    assert "counter metrics should have" in await complaints(b"# TYPE requests counter\nrequests 1\n")
