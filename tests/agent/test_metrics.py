"""The agent's numbers in Prometheus' text format."""

from __future__ import annotations

import tomllib
from pathlib import Path

from agent.metrics import AgentMetrics, render
from agent.version import VERSION


def test_every_number_is_rendered() -> None:
    """Each metric appears with its bounded labels."""
    metrics = AgentMetrics(retries=2, epoch=4, synced=4, lifted=True, barrier_wait_s=1.5)
    metrics.requests["patch", "ok"] += 1
    metrics.watch_endings["gone"] += 3
    text = render(metrics).decode()
    for line in (
        'inplace_agent_requests_total{outcome="ok",verb="patch"} 1.0',
        "inplace_agent_retries_total 2.0",
        'inplace_agent_watch_endings_total{cause="gone"} 3.0',
        "inplace_agent_epoch 4.0",
        "inplace_agent_synced_epoch 4.0",
        "inplace_agent_barrier_lifted 1.0",
        "inplace_agent_barrier_wait_seconds 1.5",
        f'version="{VERSION}"',
    ):
        assert line in text


def test_the_wait_is_absent_until_the_barrier_lifted() -> None:
    """A wait that is not over has no length."""
    assert "barrier_wait" not in render(AgentMetrics()).decode()


def test_the_version_is_the_projects() -> None:
    """The version in the code and the one in pyproject.toml are one."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION
