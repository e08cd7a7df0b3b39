"""The board of the controller: whether it runs, whether it is behind, and whether its watches are alive."""

from __future__ import annotations

from typing import Final

from grafana import shared
from grafana.panels import Board, Panel, Query, Row
from grafana.promql import CLUSTER, RATE, ours, quantile

_QUEUE: Final = 'name="jobset"'
PAUSE_S: Final = 0.25
_NEVER: Final = "none yet"


def _rate(name: str, labels: str = "") -> str:
    """Return the rate of a counter of ours that others have too."""
    more = f",{labels}" if labels else ""
    return ours(f"rate({name}{{{CLUSTER}{more}}}[{RATE}])")


def _quantiles(histogram: str, labels: str = "") -> tuple[Query, ...]:
    """Return median and slowest hundredth."""
    buckets = f"sum by (le) {_rate(f'{histogram}_bucket', labels)}"
    return tuple(
        Query(f"histogram_quantile({share}, {buckets})", name) for share, name in ((0.5, "p50"), (0.99, "p99"))
    )


_REPLICAS: Final = Panel(
    "stat",
    "Replicas",
    "Controllers that Prometheus reaches; deploy/ runs two.",
    "short",
    "InplaceControllerDown",
    (Query(f"count(inplace_build_info{{{CLUSTER}}})", "replicas"),),
)

_VERSIONS: Final = Panel(
    "stat",
    "Versions",
    "More than one for more than a few minutes is an upgrade that got stuck.",
    "short",
    "InplaceControllerDown",
    (Query(f"count by (version) (inplace_build_info{{{CLUSTER}}})", "{{version}}"),),
)

_WAITING: Final = ours(f"workqueue_depth{{{CLUSTER},{_QUEUE}}}")
_DEPTH: Final = Panel(
    "timeseries",
    "Work queue",
    "JobSets that wait for a worker, and how many are added a second. A JobSet whose group can go on comes first.",
    "short",
    "InplaceRestartSlow",
    (
        Query(f"sum {_WAITING}", "waiting"),
        Query(f"sum {_rate('workqueue_adds_total', _QUEUE)}", "added/s"),
        Query(f"sum {_rate('workqueue_retries_total', _QUEUE)}", "back by backoff/s"),
    ),
)

_WAITS: Final = Panel(
    "timeseries",
    "Wait in the queue",
    "Time from an event until a worker looks at its JobSet.",
    "s",
    "InplaceRestartSlow",
    _quantiles("workqueue_queue_duration_seconds", _QUEUE),
)

_OLDEST: Final = ours(f"workqueue_longest_running_processor_seconds{{{CLUSTER},{_QUEUE}}}")
_ALL: Final = ours(f"workqueue_unfinished_work_seconds{{{CLUSTER},{_QUEUE}}}")
_LONGEST: Final = Panel(
    "timeseries",
    "Work in progress",
    "Age of the oldest pass, and the sum of all ages. A pass that grows for minutes is stuck on a request.",
    "s",
    "InplaceRestartSlow",
    (Query(f"max {_OLDEST}", "longest running"), Query(f"sum {_ALL}", "unfinished")),
)

_PAUSE: Final = "inplace_loop_pause_seconds"
_PAUSES: Final = Panel(
    "timeseries",
    "Pauses of the event loop",
    "How late a task wakes that sleeps for 100 ms. Lease renewals, probes and restarts wait as long. Each line is "
    "the upper bound of a bucket. The limit is what the largest objects may take.",
    "s",
    "InplaceLoopPauses",
    (Query(quantile(1, _PAUSE), "longest"), Query(quantile(0.99, _PAUSE), "p99")),
    limit=PAUSE_S,
)

_RECONCILES: Final = Panel(
    "timeseries",
    "Passes by result",
    "One pass looks at one JobSet. After an error the next pass waits, longer each time.",
    "ops",
    "InplaceRestartSlow",
    (
        Query(f"sum by (result) {_rate('controller_runtime_reconcile_total')}", "{{result}}"),
        Query(f"sum {_rate('controller_runtime_reconcile_errors_total')} > 0", "errors", empty="no error"),
    ),
)

_DURATIONS: Final = Panel(
    "timeseries",
    "Duration of a pass",
    "With its requests to the API server.",
    "s",
    "InplaceRestartSlow",
    _quantiles("controller_runtime_reconcile_time_seconds"),
)

_WORKERS: Final = Panel(
    "timeseries",
    "Workers",
    "All busy for long means that JobSets wait; `--workers` adds some. A pass that only writes needs none.",
    "short",
    "InplaceRestartSlow",
    (
        Query(f"sum {ours(f'controller_runtime_active_workers{{{CLUSTER}}}')}", "busy"),
        Query(f"sum {ours(f'controller_runtime_max_concurrent_reconciles{{{CLUSTER}}}')}", "there are"),
    ),
)

_CPU: Final = Panel(
    "timeseries",
    "CPU",
    "Seconds of CPU a second.",
    "short",
    "InplaceControllerDown",
    (Query(f"sum by (instance) {_rate('process_cpu_seconds_total')}", "{{instance}}"),),
)

_MEMORY: Final = Panel(
    "timeseries",
    "Memory",
    "Resident memory. The limit in deploy/ is 512 MiB; 10,000 Pods need less than half of it.",
    "bytes",
    "InplaceControllerDown",
    (Query(f"sum by (instance) {ours(f'process_resident_memory_bytes{{{CLUSTER}}}')}", "{{instance}}"),),
)

_ODDITIES: Final = Panel(
    "timeseries",
    "What should not happen",
    "Announcements whose phases could not be read, status writes that lost a race, barriers beyond their deadline "
    "and the Jobs recreated for them; per hour.",
    "short",
    "InplaceBarrierStuck",
    (
        Query(f"sum(increase(inplace_unreadable_phases_total{{{CLUSTER}}}[1h]))", "unreadable phases"),
        Query(f"sum(increase(inplace_api_conflicts_total{{{CLUSTER}}}[1h]))", "conflicts"),
        Query(f"sum(increase(inplace_barrier_deadline_exceeded_total{{{CLUSTER}}}[1h]))", "deadlines", _NEVER),
        Query(f"sum(increase(inplace_barrier_recreations_total{{{CLUSTER}}}[1h]))", "recreations", _NEVER),
    ),
)

BOARD: Final = Board(
    "inplace-controller",
    "inplace / Controller",
    "Is the controller there, is it behind, does it see what happens, and what does it use?",
    "1h",  # its alerts look at 10 minutes at most: an hour has the moment before, and a point for each scrape
    (shared.CLUSTERS,),
    (
        Row("Is it there?", (shared.LEADERS, _REPLICAS, _VERSIONS), height=4),
        Row("Is it behind?", (_DEPTH, _WAITS, _LONGEST, _PAUSES)),
        Row("What it does", (_RECONCILES, _DURATIONS, _WORKERS)),
        Row("Does it see what happens?", (shared.STALENESS, shared.REQUESTS)),
        Row("What it uses", (_CPU, _MEMORY, _ODDITIES)),
    ),
)
