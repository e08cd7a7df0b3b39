"""
The agent's numbers, as plain integers; prometheus_client is imported when they are first scraped.

Label values are bounded: verbs, outcomes and causes are names from this project, never text from a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import Metric


@dataclass(slots=True, eq=False)
class AgentMetrics:
    """What one agent counts.

    Args:
        requests: by (verb, outcome); verbs watch, list, patch.
        retries: waits before something was tried again.
        watch_endings: by cause, see `agent.endings.cause_of`.
        epoch: the epoch this process announced, 0 before.
        synced: the newest S seen.
        lifted: the barrier is lifted.
        barrier_wait_s: seconds from the start to the lift; None while the barrier is up.
    """

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    retries: int = 0
    watch_endings: Counter[str] = field(default_factory=Counter)
    epoch: int = 0
    synced: int = 0
    lifted: bool = False
    barrier_wait_s: float | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield Prometheus metric families (the collector interface of prometheus_client)."""
        import platform

        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        requests = CounterMetricFamily(
            "inplace_agent_requests", "Requests to the API server.", labels=["verb", "outcome"]
        )
        for (verb, outcome), count in sorted(self.requests.items()):
            requests.add_metric([verb, outcome], count)
        yield requests
        yield CounterMetricFamily("inplace_agent_retries", "Waits before trying again.", value=self.retries)
        endings = CounterMetricFamily("inplace_agent_watch_endings", "Watches that ended, by cause.", labels=["cause"])
        for cause, count in sorted(self.watch_endings.items()):
            endings.add_metric([cause], count)
        yield endings
        yield GaugeMetricFamily("inplace_agent_epoch", "The announced epoch; 0 before.", value=self.epoch)
        yield GaugeMetricFamily("inplace_agent_synced_epoch", "The newest synced epoch seen.", value=self.synced)
        yield GaugeMetricFamily("inplace_agent_barrier_lifted", "1 once the worker may start.", value=int(self.lifted))
        if self.barrier_wait_s is not None:
            yield GaugeMetricFamily(
                "inplace_agent_barrier_wait_seconds",
                "From the agent's start to the lift.",
                value=self.barrier_wait_s,
            )
        build = {"version": VERSION, "python": platform.python_version()}
        yield InfoMetricFamily("inplace_agent_build", "What runs here.", value=build)


def render(metrics: AgentMetrics) -> bytes:
    """Return the metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry)
