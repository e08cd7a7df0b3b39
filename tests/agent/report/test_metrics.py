"""The agent's numbers in Prometheus' formats."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import PHASE_BUCKETS, AgentMetrics
from inplace.agent.version import VERSION
from inplace.common.wire.phases import RestartPhase


def text_of(metrics: AgentMetrics, now_s: float = 0.0) -> str:
    """Return the metrics in Prometheus' text format."""
    return render(metrics, now_s=lambda: now_s)[1].decode()


def test_every_number_is_rendered() -> None:
    """Each metric appears with its bounded labels."""
    metrics = AgentMetrics()
    metrics.epoch, metrics.synced, metrics.deprecated, metrics.lifted, metrics.heard_s = 4, 4, 3, True, 7.0
    metrics.requests["patch", "ok"] += 1
    metrics.watch_endings["gone"] += 3
    metrics.wait("patch", "busy", 1.5, throttled=True)
    metrics.wait("watch", "broken", 9.0, throttled=False)
    text = text_of(metrics, now_s=10.0)
    for line in (
        'inplace_agent_requests_total{outcome="ok",verb="patch"} 1.0',
        'inplace_agent_retries_total{outcome="busy",verb="patch"} 1.0',
        'inplace_agent_retries_total{outcome="broken",verb="watch"} 1.0',
        "inplace_agent_throttled_total 1.0",
        "inplace_agent_throttled_wait_seconds_total 1.5",
        'inplace_agent_watch_endings_total{cause="gone"} 3.0',
        "inplace_agent_epoch 4.0",
        "inplace_agent_synced_epoch 4.0",
        "inplace_agent_deprecated_epoch 3.0",
        "inplace_agent_barrier_lifted 1.0",
        "inplace_agent_view_staleness_seconds 3.0",
        f'version="{VERSION}"',
    ):
        assert line in text


def test_a_view_that_never_came_has_no_age() -> None:
    """The staleness metric is absent until the watch has shown a view."""
    assert "staleness" not in text_of(AgentMetrics())


def test_an_edge_belongs_to_the_bucket_it_ends() -> None:
    """A duration of exactly 1 s is within le=1 and not within the next smaller bucket; buckets are cumulative."""
    metrics = AgentMetrics()
    for seconds in (0.5, 1.0, 1.001, 1000.0):
        metrics.observe(RestartPhase.BARRIER, seconds)
    name = 'inplace_agent_restart_phase_duration_seconds_bucket{le="%s",phase="barrier"} %s'
    text = text_of(metrics)
    for edge, count in (
        ("0.25", "0.0"),
        ("0.5", "1.0"),
        ("1.0", "2.0"),
        ("2.0", "3.0"),
        ("300.0", "3.0"),
        ("+Inf", "4.0"),
    ):
        assert name % (edge, count) in text
    assert 'duration_seconds_count{phase="barrier"} 4.0' in text
    assert 'duration_seconds_sum{phase="barrier"} 1002.501' in text


def test_the_promises_are_bucket_edges() -> None:
    """1 s and 10 s are bucket edges, so that the share of restarts within them can be read exactly."""
    assert {1.0, 10.0} <= set(PHASE_BUCKETS)
    assert list(PHASE_BUCKETS) == sorted(PHASE_BUCKETS)


@pytest.mark.parametrize(
    ("accept", "media_type", "end"),
    [
        ("", "text/plain", False),
        ("*/*", "text/plain", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text", True),
        ("application/openmetrics-text;version=one", "text/plain", False),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, media_type: str, end: bool) -> None:
    """An Accept header with OpenMetrics gets that format; any other gets the text format."""
    said, body = render(AgentMetrics(), accept)
    assert said.startswith(media_type)
    assert body.endswith(b"# EOF\n") is end


def test_the_version_is_the_projects() -> None:
    """The code and pyproject.toml have the same version."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION
