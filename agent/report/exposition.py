"""
Render the agent's metrics for Prometheus; loaded at the first scrape, because prometheus_client costs 50 ms.

Names follow prometheus.io's naming practice: base units, `_total`, `_seconds`, `_info`. No label names a Pod.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from inplace.agent.report.metrics import PHASE_BUCKETS, AgentMetrics, Durations
from inplace.agent.version import VERSION


def render(metrics: AgentMetrics, accept: str = "", now_s: Callable[[], float] | None = None) -> tuple[str, bytes]:
    """Return (media type, body) of the metrics.

    Args:
        metrics: what to show.
        accept: the request's Accept header; OpenMetrics where it wants that, else Prometheus' text format.
        now_s: the clock that `heard_s` was read from; None leaves the age of the view out.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_AgentCollector(metrics, now_s))
    try:
        encode, media_type = choose_encoder(accept)
    except (ValueError, TypeError):  # a version that is no number
        encode, media_type = choose_encoder("")
    return media_type, encode(registry)


class _AgentCollector(Collector):
    """Read one agent's numbers when asked."""

    def __init__(self, metrics: AgentMetrics, now_s: Callable[[], float] | None) -> None:
        self._metrics = metrics
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        metrics = self._metrics
        yield from self._gauges()
        phases = HistogramMetricFamily(
            "inplace_agent_restart_phase_duration_seconds",
            "Phases of restarts, see common/wire/phases.py.",
            labels=["phase"],
        )
        for phase, durations in metrics.durations.items():
            phases.add_metric([phase.value], _cumulative(durations), durations.sum_s)
        yield phases
        outcomes = ["verb", "outcome"]
        requests = CounterMetricFamily("inplace_agent_requests", "Requests to the API server.", labels=outcomes)
        for (verb, outcome), count in sorted(metrics.requests.items()):
            requests.add_metric([verb, outcome], count)
        yield requests
        retries = CounterMetricFamily("inplace_agent_retries", "Waits before trying again.", labels=outcomes)
        for (verb, outcome), count in sorted(metrics.retries.items()):
            retries.add_metric([verb, outcome], count)
        yield retries
        yield CounterMetricFamily("inplace_agent_throttled", "Answers 429.", value=metrics.throttled)
        yield CounterMetricFamily(
            "inplace_agent_throttled_wait_seconds", "Time waited because of a 429.", value=metrics.throttled_wait_s
        )
        endings = CounterMetricFamily("inplace_agent_watch_endings", "Watches that ended, by cause.", labels=["cause"])
        for cause, count in sorted(metrics.watch_endings.items()):
            endings.add_metric([cause], count)
        yield endings
        build = {"version": VERSION, "python": platform.python_version()}
        yield InfoMetricFamily("inplace_agent_build", "What runs here.", value=build)

    def _gauges(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("inplace_agent_epoch", "The announced epoch; 0 before.", value=metrics.epoch)
        yield GaugeMetricFamily("inplace_agent_synced_epoch", "The newest synced epoch seen.", value=metrics.synced)
        yield GaugeMetricFamily(
            "inplace_agent_deprecated_epoch", "The newest deprecated epoch seen.", value=metrics.deprecated
        )
        yield GaugeMetricFamily(
            "inplace_agent_barrier_lifted", "1 while the worker may run.", value=int(metrics.lifted)
        )
        if metrics.ranks_work_s:
            work = GaugeMetricFamily(
                "inplace_agent_rank_work_seconds",
                "What a rank's own work on a step takes lately, without its waits for others.",
                labels=["rank"],
            )
            for rank, work_s in metrics.ranks_work_s.items():
                work.add_metric([rank], work_s)
            yield work
        if metrics.heard_s is not None and self._now_s is not None:
            yield GaugeMetricFamily(
                "inplace_agent_view_staleness_seconds",
                "Since the watch last said anything, be it a bookmark.",
                value=max(0.0, self._now_s() - metrics.heard_s),
            )


def _cumulative(durations: Durations) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus wants them: each holds all that is not beyond its edge."""
    total, buckets = 0, []
    for edge, count in zip((*map(str, PHASE_BUCKETS), "+Inf"), durations.counts, strict=True):
        total += count
        buckets.append((edge, float(total)))
    return buckets
