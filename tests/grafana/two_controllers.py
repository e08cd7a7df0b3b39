"""
Prometheus' targets in the seconds after a leader change: two controllers with series of the same JobSet.

A query with a join can fail then (many-to-many); no other test would notice that. Quiet ones have restarted nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.decision import PodCounts
from inplace.common.wire.phases import RestartPhase
from inplace.controller.metrics import LiveCollector, Metrics
from inplace.controller.serving.pages import Answer, Page, PageServer
from inplace.controller.serving.scrapes import METRICS
from inplace.controller.tracking.counts import GroupCount, JobSetCount
from testbed.ports import LOOPBACK, free_ports
from tests.grafana.test_dashboards import controller_metrics


def agent_text() -> bytes:
    """Return the metrics of an agent that was throttled once."""
    metrics = AgentMetrics()
    metrics.epoch, metrics.synced, metrics.deprecated = 2, 2, 1
    metrics.lifted, metrics.heard_s = True, 0.0
    metrics.requests["watch", "ok"] += 1
    metrics.watch_endings["closed"] += 1
    metrics.wait("watch", "busy", 1.0, throttled=True)
    metrics.observe(RestartPhase.VIEW, 0.1)
    text: bytes = render(metrics)[1]
    return text


def busy_controller() -> Callable[[], bytes]:
    """Return the metrics of a controller whose counters grow between any two scrapes."""
    metrics = controller_metrics()

    def text() -> bytes:
        metrics.restart_seconds.labels("worker_exit").observe(4.0)
        metrics.restart_phase_seconds.labels("sync").observe(1.0)
        metrics.pod_phase_seconds.labels("view").observe(0.1)
        metrics.reconcile_seconds.labels("jobset").observe(0.01)
        metrics.queue.queue_duration(0.001)
        metrics.loop_pause_seconds.observe(0.001)
        return metrics.text()

    return text


def page(text: Callable[[], bytes]) -> Page:
    """Return a page whose text changes at each request."""

    async def answer() -> Answer:
        return Answer(HTTPStatus.OK, text(), METRICS)

    return answer


def quiet_controller() -> Callable[[], bytes]:
    """Return the metrics of a controller that has looked at a JobSet, and restarted nothing."""
    metrics = Metrics()
    whole = JobSetCount("ns", "train", 3, 3, None, None)
    count = GroupCount("ns", "train", "", 8, PodCounts(8, 0, 0, 0), 1, 0, 0.0, whole)
    metrics.registry.register(LiveCollector(lambda: [count], list, lambda: [("pods", 0.0)]))
    metrics.is_leader.labels("x").set(1)
    metrics.active_workers.labels("jobset").set(0)
    metrics.workers_max.labels("jobset").set(4)
    passes = metrics.reconciles.labels("jobset", "success")
    requests = metrics.requests.labels("200", "GET", "server")

    def text() -> bytes:
        passes.inc()
        requests.inc()
        metrics.reconcile_seconds.labels("jobset").observe(0.01)
        metrics.queue.queue_duration(0.001)
        metrics.loop_pause_seconds.observe(0.001)
        return metrics.text()

    return text


@asynccontextmanager
async def exposed(*, quiet: bool = False) -> AsyncIterator[list[dict[str, Any]]]:
    """Serve the metrics of two controllers, busy or `quiet`; yield Prometheus' scrape jobs."""
    ports = free_ports(3)
    controller = quiet_controller if quiet else busy_controller
    texts = [controller(), controller(), agent_text]
    async with asyncio.TaskGroup() as group:
        servers = [
            group.create_task(PageServer(LOOPBACK, port, {"/metrics": page(text)}, LoopClock()).run())
            for port, text in zip(ports, texts, strict=True)
        ]
        targets = [f"{LOOPBACK}:{port}" for port in ports]
        yield [
            {"job_name": "inplace-controller", "static_configs": [{"targets": targets[:2]}]},
            {"job_name": "inplace-agents", "static_configs": [{"targets": targets[2:]}]},
        ]
        for server in servers:
            server.cancel()
