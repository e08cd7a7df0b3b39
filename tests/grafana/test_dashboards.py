"""The dashboards are what their builder writes, and ask only for metrics that exist."""

from __future__ import annotations

import re

import pytest

from agent.metrics import AgentMetrics, render
from common.epoch.ledger import Standing
from common.phases import Phase
from controller.causes import Failure
from controller.metrics import GroupCount, JobSetCount, LiveCollector, Metrics
from grafana.build import DASHBOARDS, FOLDER, text_of
from grafana.panels import Json

_WORDS = re.compile(r"\b(?:inplace|workqueue|rest_client|leader_election|controller_runtime|jobset)_[a-z_]+")


def controller_metrics() -> Metrics:
    """Return a controller's metrics with a sample of each."""
    metrics = Metrics()
    failure = Failure("train-w-0-0-abcde", "node-1", "worker", 1, "Error")
    whole = JobSetCount("ns", "train", 3, 2, 1.0, failure)
    count = GroupCount("ns", "train", "", 8, Standing(8, 0, 0, 0), 1, 0, 0.0, whole)
    metrics.registry.register(LiveCollector(lambda: [count], list, lambda: [("pods", 0.0)]))
    metrics.last_restart_seconds.labels("ns", "train").set(1)
    metrics.restarts.labels("ns", "train", "finished", "worker_exit").inc()
    metrics.restart_seconds.labels("worker_exit").observe(1)
    for counter in (metrics.lost_pod_seconds, metrics.deadlines, metrics.barrier_recreations):
        counter.labels("ns", "train").inc()
    metrics.restart_phase_seconds.labels("sync").observe(1)
    metrics.pod_phase_seconds.labels("view").observe(0.1)
    metrics.requests.labels("200", "GET", "server").inc()
    metrics.is_leader.labels("x").set(1)
    return metrics


def exposed_names() -> set[str]:
    """Return the names of all samples that controller and agent expose."""
    agent = AgentMetrics()
    agent.requests["watch", "ok"] += 1
    agent.watch_endings["closed"] += 1
    agent.wait("watch", "busy", 1.0, throttled=True)
    agent.observe(Phase.VIEW, 0.1)
    text = (controller_metrics().text() + render(agent)[1]).decode()
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}


def expressions(board: Json) -> list[str]:
    """Return every PromQL expression of a dashboard."""
    return [query["expr"] for panel in board["panels"] for query in panel["targets"]]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_file_is_what_the_builder_writes(name: str) -> None:
    """`python -m grafana.build` would change nothing."""
    assert text_of(DASHBOARDS[name]()) == (FOLDER / name).read_text()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_metric_in_a_query_exists(name: str) -> None:
    """No panel asks for a metric that neither program exposes."""
    exposed = exposed_names()
    asked = {word for expr in expressions(DASHBOARDS[name]()) for word in _WORDS.findall(expr)}
    assert asked
    assert asked - exposed == set()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_descriptions_units_and_unique_places(name: str) -> None:
    """Each panel says what it shows, in which unit, and no two overlap."""
    panels = DASHBOARDS[name]()["panels"]
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
