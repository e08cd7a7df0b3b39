"""
What the controller tells Prometheus.

The names are those of client-go and controller-runtime where such metrics exist, and ours elsewhere.
Bounded by design: no Pod is ever a label value; what carries a JobSet's name is dropped with the JobSet, or
read from the ledgers at scrape time and so cannot outlive them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTROLLER: Final = "jobset"
# Seconds; 10 is the promise, so the buckets are dense around it.
RESTART_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60, 120, 300)
RECONCILE_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
)  # controller-runtime's
QUEUE_BUCKETS: Final = (1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1, 10)
NAMES: Final = ("namespace", "jobset")
SCOPED: Final = (*NAMES, "scope")  # "" where the whole JobSet restarts together, which to Prometheus is no label


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How one group stands, counted by its ledger.

    Args:
        scope: what restarts together; "" is the whole JobSet.
        expected: N.
        running: Pods at S while S is the running epoch.
        waiting: Pods that announced an epoch beyond S.
        synced: S.
        deprecated: D.
        restarts_left: how many more restarts maxRestarts allows the JobSet; said by one of its scopes.
    """

    namespace: str
    jobset: str
    scope: str
    expected: int
    running: int
    waiting: int
    synced: int
    deprecated: int
    restarts_left: int | None


class Metrics:
    """The controller's registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.restart_seconds = Histogram(
            "inplace_group_restart_duration_seconds",
            "From the first sign of a failure to the status that lets the workers start.",
            buckets=RESTART_BUCKETS,
            registry=r,
        )
        self.restart_phase_seconds = Histogram(
            "inplace_group_restart_phase_duration_seconds",
            "deprecate: first sign to accepted status; announce: to the last Pod; sync: to accepted status.",
            ("phase",),
            buckets=RESTART_BUCKETS,
            registry=r,
        )
        self.pod_phase_seconds = Histogram(
            "inplace_pod_restart_phase_duration_seconds",
            "Phases of the Pods' starts and restarts as their agents announced them, see common/phases.py.",
            ("phase",),
            buckets=RESTART_BUCKETS,
            registry=r,
        )
        self.unreadable_phases = Counter(
            "inplace_unreadable_phases", "Announcements whose phases could not be read.", registry=r
        )
        self.restarts = Counter("inplace_group_restarts", "Group restarts by outcome.", (*NAMES, "outcome"), registry=r)
        self.last_restart_seconds = Gauge(
            "inplace_last_restart_duration_seconds", "Duration of the last group restart.", NAMES, registry=r
        )
        self.failed = Counter("jobset_failed", "JobSets that failed.", ("jobset_name", "namespace"), registry=r)
        self.completed = Counter(
            "jobset_completed", "JobSets that completed.", ("jobset_name", "namespace"), registry=r
        )
        self.conflicts = Counter("inplace_api_conflicts", "Status writes that lost a race.", registry=r)
        self.watch_endings = Counter(
            "inplace_watch_endings", "Watches that ended, by how.", ("kind", "ending"), registry=r
        )
        self.reconciles = Counter(
            "controller_runtime_reconcile", "Reconciliations by result.", ("controller", "result"), registry=r
        )
        self.reconcile_errors = Counter(
            "controller_runtime_reconcile_errors", "Reconciliations that failed.", ("controller",), registry=r
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconciliation.",
            ("controller",),
            buckets=RECONCILE_BUCKETS,
            registry=r,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Workers that are busy.", ("controller",), registry=r
        )
        self.workers_max = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers.", ("controller",), registry=r
        )
        self.requests = Counter(
            "rest_client_requests", "Requests to the API server.", ("code", "method", "host"), registry=r
        )
        self.is_leader = Gauge(
            "leader_election_master_status", "1 while this process holds the Lease.", ("name",), registry=r
        )
        self.queue = QueueMetrics(r)

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)

    def forget(self, namespace: str, jobset: str) -> None:
        """Drop every series that names a JobSet."""
        for outcome in ("finished", "exceeded"):
            self.restarts.remove(namespace, jobset, outcome)
        self.last_restart_seconds.remove(namespace, jobset)
        self.failed.remove(jobset, namespace)
        self.completed.remove(jobset, namespace)


class QueueMetrics:
    """client-go's workqueue metrics of one queue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str) -> Histogram:
            buckets = QUEUE_BUCKETS
            return Histogram(f"workqueue_{name}", text, ("name",), buckets=buckets, registry=registry).labels(
                CONTROLLER
            )

        def counter(name: str, text: str) -> Counter:
            return Counter(f"workqueue_{name}", text, ("name",), registry=registry).labels(CONTROLLER)

        self._depth = Gauge("workqueue_depth", "Keys that wait.", ("name",), registry=registry).labels(CONTROLLER)
        self._adds = counter("adds", "Keys that entered the queue.")
        self._retries = counter("retries", "Keys that came back by backoff.")
        self._wait = histogram("queue_duration_seconds", "How long keys wait.")
        self._work = histogram("work_duration_seconds", "How long keys are processed.")

    def depth(self, keys: int) -> None:
        """Note how many keys wait."""
        self._depth.set(keys)

    def adds(self) -> None:
        """Count a key that entered the queue."""
        self._adds.inc()

    def queue_duration(self, seconds: float) -> None:
        """Note how long a key waited."""
        self._wait.observe(seconds)

    def work_duration(self, seconds: float) -> None:
        """Note how long a key was processed."""
        self._work.observe(seconds)

    def retries(self) -> None:
        """Count a key that came back by backoff."""
        self._retries.inc()


class LiveCollector(Collector):
    """Reads at scrape time what lives elsewhere: the ledgers, the queue, the watches.

    Args:
        groups: how each group stands.
        processing: seconds for which each key has been in work.
        silence: kind -> seconds since its watch last heard the server.
    """

    def __init__(
        self,
        groups: Callable[[], Iterable[GroupCount]],
        processing: Callable[[], Iterable[float]],
        silence: Callable[[], Iterable[tuple[str, float]]],
    ) -> None:
        self._groups = groups
        self._processing = processing
        self._silence = silence

    def collect(self) -> Iterable[Metric]:
        """Yield what is true now."""
        pods = GaugeMetricFamily("inplace_pods", "Pods of a group by state.", labels=(*SCOPED, "state"))
        expected = GaugeMetricFamily("inplace_pods_expected", "Expected Pods of a group.", labels=SCOPED)
        epoch = GaugeMetricFamily("inplace_epoch", "Epochs of the status.", labels=(*SCOPED, "which"))
        left = GaugeMetricFamily("inplace_restart_budget_remaining", "Restarts left.", labels=NAMES)
        restarting = GaugeMetricFamily("inplace_restart_in_progress", "1 during a group restart.", labels=SCOPED)
        for count in self._groups():
            names = [count.namespace, count.jobset, count.scope]
            missing = max(0, count.expected - count.running - count.waiting)
            for state, number in (
                ("running", count.running),
                ("waiting", count.waiting),
                ("missing", missing),
            ):
                pods.add_metric([*names, state], number)
            expected.add_metric(names, count.expected)
            epoch.add_metric([*names, "synced"], count.synced)
            epoch.add_metric([*names, "deprecated"], count.deprecated)
            if count.restarts_left is not None:
                left.add_metric(names[:2], count.restarts_left)
            restarting.add_metric(names, float(0 < count.synced <= count.deprecated))
        yield from (pods, expected, epoch, left, restarting)
        yield from self._collect_process()

    def _collect_process(self) -> Iterable[Metric]:
        seconds = list(self._processing())
        for name, text, value in (
            ("unfinished_work_seconds", "Seconds of work in progress, summed.", sum(seconds)),
            (
                "longest_running_processor_seconds",
                "Age of the oldest work in progress.",
                max(seconds, default=0.0),
            ),
        ):
            family = GaugeMetricFamily(f"workqueue_{name}", text, labels=("name",))
            family.add_metric([CONTROLLER], value)
            yield family
        silent = GaugeMetricFamily(
            "inplace_watch_staleness_seconds", "Since a watch last heard the server.", labels=("kind",)
        )
        for kind, value in self._silence():
            silent.add_metric([kind], value)
        yield silent
