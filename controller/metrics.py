"""
The controller's metrics for Prometheus.

Metrics that client-go or controller-runtime have carry their names, others our own. The number of series is bounded:
for each JobSet at most two Pods are label values, those that failed and were silent first in the last restart, and at
most `SCOPES_SHOWN_MAX` scopes; the label values that remain are closed sets. Series
with a JobSet's name are dropped with the JobSet, or read from the ledgers and the status at each scrape, so they cannot
outlive it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from inplace.common.jobset import conditions
from inplace.common.jobset.bad_nodes import AVOIDED, TAKEN_BACK
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.escalation import FAIL
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.settings import STEP_NAMES
from inplace.common.wire.notice import KINDS
from inplace.common.wire.phases import RestartPhase
from inplace.controller.serving.exposition import pieces
from inplace.controller.tracking.counts import GroupCount
from inplace.controller.tracking.group import AcceptedStatus

CONTROLLER: Final = "jobset"
VERSION: Final = "0.1.0"
# Seconds; 10 is the promise, so the buckets are dense around it.
RESTART_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60, 120, 300)
# controller-runtime's.
RECONCILE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
QUEUE_BUCKETS: Final = (1e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1, 10)
# 0.25 is the bound, 10 loses the Lease.
PAUSE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
RESTART_PHASES: Final = ("detect", "deprecate", "announce", "sync", "lift")
NODE_READS: Final = ("unmarked", "leaves", "stays", "unanswered")
NAMES: Final = ("namespace", "jobset")
FINISHED: Final = "finished"
EXCEEDED: Final = "exceeded"
OUTCOMES: Final = (FINISHED, EXCEEDED)
M = TypeVar("M", bound=MetricWrapperBase)
SCOPED: Final = (*NAMES, "scope")  # "" where the whole JobSet restarts together, which to Prometheus is no label


class Metrics:
    """The controller's registry.

    Attributes:
        catch_up: counts what was put off; called before each scrape.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a series for each series, that nobody asks for
        self.registry = CollectorRegistry()
        self.process = ProcessCollector(registry=self.registry)
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        Info("inplace_build", "What runs here.", registry=self.registry).info({"version": VERSION})
        self.restart_seconds = histogram(
            "inplace_group_restart_duration_seconds",
            "From startedAt to syncedAt of status.lastGroupRestart, by trigger.",
            ("trigger",),
            buckets=RESTART_BUCKETS,
        )
        self.restart_phase_seconds = histogram(
            "inplace_group_restart_phase_duration_seconds",
            "detect: the container's end to its first sign here; deprecate: to accepted status; announce: to the last "
            "Pod; sync: to accepted status; lift: from the last announcement to that Pod's lift, one restart late.",
            ("phase",),
            buckets=RESTART_BUCKETS,
        )
        self.pod_phase_seconds = histogram(
            "inplace_pod_restart_phase_duration_seconds",
            "Phases of the Pods' starts and restarts as their agents announced them, see common/wire/phases.py.",
            ("phase",),
            buckets=RESTART_BUCKETS,
        )
        self.unreadable_phases = counter("inplace_unreadable_phases", "Announcements whose phases could not be read.")
        self.restarts = counter(
            "inplace_group_restarts",
            "Group restarts by outcome (finished, exceeded) and by trigger.",
            (*NAMES, "outcome", "trigger"),
        )
        self.lost_pod_seconds = counter(
            "inplace_lost_pod_seconds", "Pods of the group times the duration of each restart.", NAMES
        )
        self.deadlines = counter(
            "inplace_barrier_deadline_exceeded", "Barriers that waited longer than their deadline.", NAMES
        )
        self.barrier_recreations = counter(
            "inplace_barrier_recreations", "Jobs recreated because their Pods missed a deadline.", NAMES
        )
        self.node_verdicts = counter(
            "inplace_node_verdicts",
            "Nodes that replaced Pods avoid from then on, and verdicts that were taken back, by the Event's reason.",
            (*NAMES, "verdict"),
        )
        self.notices = counter(
            "inplace_notices",
            "Notices that status.notices got: busy (a rank), loss (no finite number), slow (a rank), steps.",
            (*NAMES, "kind"),
        )
        self.verdicts = counter(
            "inplace_verdicts", "Failures whose restart is over, by the class of the verdict.", (*NAMES, "class")
        )
        self.node_reads = counter(
            "inplace_node_reads",
            "Nodes read at a first failure or for a barrier that waits: unmarked, leaves, stays, unanswered.",
            ("result",),
        )
        self.escalation_steps = counter(
            "inplace_escalation_steps",
            "Uses of the steps of inplace.dev/escalation; Fail: none had room.",
            (*NAMES, "step"),
        )
        self.last_restart_seconds = gauge(
            "inplace_last_restart_duration_seconds", "From startedAt to syncedAt of status.lastGroupRestart.", NAMES
        )
        self.failed = counter("jobset_failed", "JobSets that failed.", ("jobset_name", "namespace"))
        self.deadline_exceeded = counter(
            "jobset_active_deadline_exceeded",
            "JobSets that failed because of their activeDeadlineSeconds.",
            ("jobset_name", "namespace"),
        )
        self.completed = counter("jobset_completed", "JobSets that completed.", ("jobset_name", "namespace"))
        self.conflicts = counter("inplace_api_conflicts", "Status writes that lost a race.")
        self.watch_endings = counter("inplace_watch_endings", "Watches that ended, by how.", ("kind", "ending"))
        self.reconciles = counter(
            "controller_runtime_reconcile", "Reconciliations by result.", ("controller", "result")
        )
        self.reconcile_errors = counter(
            "controller_runtime_reconcile_errors", "Reconciliations that failed.", ("controller",)
        )
        self.reconcile_seconds = histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconciliation.",
            ("controller",),
            buckets=RECONCILE_BUCKETS,
        )
        self.active_workers = gauge("controller_runtime_active_workers", "Workers that are busy.", ("controller",))
        self.workers_max = gauge("controller_runtime_max_concurrent_reconciles", "Workers.", ("controller",))
        self.requests = counter("rest_client_requests", "Requests to the API server.", ("code", "method", "host"))
        self.is_leader = gauge("leader_election_master_status", "1 while this process holds the Lease.", ("name",))
        self.loop_pause_seconds = histogram(
            "inplace_loop_pause_seconds",
            "How late a sleeping task woke, asked ten times a second: how long the event loop stood still.",
            buckets=PAUSE_BUCKETS,
        )
        self.queue = QueueMetrics(self.registry)
        self.catch_up: Callable[[], None] = lambda: None
        self._show_zeros()

    def _show_zeros(self) -> None:
        """Expose the closed sets from the start: a series that appears with its first value is no increase."""
        for trigger in Trigger:
            self.restart_seconds.labels(trigger.value)
        for result in NODE_READS:
            self.node_reads.labels(result)
        for part in RESTART_PHASES:
            self.restart_phase_seconds.labels(part)
        for phase in RestartPhase:
            self.pod_phase_seconds.labels(phase.value)

    def pieces(self) -> Iterator[str]:
        """Yield the exposition in Prometheus' text format, piece by piece."""
        self.catch_up()
        yield from pieces(self.registry)

    def text(self) -> bytes:
        """Return the whole exposition at once."""
        return "".join(self.pieces()).encode()

    def count_status(self, accepted: AcceptedStatus) -> None:
        """Count what an accepted status means."""
        jobset, planned = accepted.before, accepted.planned
        names, upstream = (jobset.namespace, jobset.name), (jobset.name, jobset.namespace)
        for note in planned.notes:
            if note.reason in (AVOIDED, TAKEN_BACK):
                self.node_verdicts.labels(*names, note.reason).inc()
        for step in planned.escalation_steps:
            self.escalation_steps.labels(*names, step).inc()
        ended = {conditions.COMPLETED: self.completed, conditions.FAILED: self.failed}
        if (metric := ended.get(planned.status.get("terminalState", ""))) is not None:
            metric.labels(*upstream).inc()
        if planned.deadline_exceeded:
            self.deadline_exceeded.labels(*upstream).inc()

    def forget(self, namespace: str, jobset: str) -> None:
        """Drop every series that names a JobSet."""
        for outcome, trigger in product(OUTCOMES, Trigger):
            self.restarts.remove(namespace, jobset, outcome, trigger.value)
        for verdict in (AVOIDED, TAKEN_BACK):
            self.node_verdicts.remove(namespace, jobset, verdict)
        for kind in KINDS:
            self.notices.remove(namespace, jobset, kind)
        for found in FailureClass:
            self.verdicts.remove(namespace, jobset, found.value)
        for step in (*STEP_NAMES, FAIL):
            self.escalation_steps.remove(namespace, jobset, step)
        for metric in (self.last_restart_seconds, self.lost_pod_seconds, self.deadlines, self.barrier_recreations):
            metric.remove(namespace, jobset)
        for metric in (self.failed, self.completed, self.deadline_exceeded):
            metric.remove(jobset, namespace)


class QueueMetrics:
    """client-go's workqueue metrics of one queue; each attribute notes a value in one of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def metric(kind: type[M], name: str, text: str, **more: Any) -> M:
            return kind(f"workqueue_{name}", text, ("name",), registry=registry, **more).labels(CONTROLLER)

        seconds = {"buckets": QUEUE_BUCKETS}
        self.depth = metric(Gauge, "depth", "Keys that wait.").set
        self.adds = metric(Counter, "adds", "Keys that entered the queue.").inc
        self.retries = metric(Counter, "retries", "Keys that came back by backoff.").inc
        self.queue_duration = metric(Histogram, "queue_duration_seconds", "How long keys wait.", **seconds).observe
        self.work_duration = metric(
            Histogram, "work_duration_seconds", "How long keys are processed.", **seconds
        ).observe


LIVE: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "inplace_pods",
        "Pods of a group: running, waiting at the barrier, restarting, missing; spare, of a group that has spares.",
        (*SCOPED, "state"),
    ),
    ("inplace_pods_expected", "Expected Pods of a group; of one with spares, members.", SCOPED),
    ("inplace_members", "How many Pods a group with spares may train with: max, min.", (*SCOPED, "which")),
    ("inplace_spares_expected", "Spare Pods that a group has at full strength.", SCOPED),
    ("inplace_epoch", "Epochs of the status.", (*SCOPED, "which")),
    (
        "inplace_restart_in_progress",
        "1 during a group restart, and from the loss of a Pod until the restart that it leads to is over.",
        SCOPED,
    ),
    (
        "inplace_barrier_wait_seconds",
        "How long a group has waited for Pods, at a barrier or since one was lost; 0 when it does not.",
        SCOPED,
    ),
    (
        "inplace_goodput_seconds",
        "Training time up to the newest run's first step: useful, lost (steps made again), restart (no step).",
        (*SCOPED, "part"),
    ),
    ("inplace_goodput_lost_steps", "Steps that were made again after a restart.", SCOPED),
    ("inplace_effective_training_ratio", "The useful part of inplace_goodput_seconds, 0 to 1.", SCOPED),
    ("inplace_restart_budget", "maxRestarts.", NAMES),
    ("inplace_restart_budget_remaining", "Restarts left.", NAMES),
    ("inplace_last_restart_timestamp_seconds", "When the last group restart ended.", NAMES),
    (
        "inplace_first_failure_info",
        "1 for the container that is to blame for the last group restart.",
        (*NAMES, "pod", "node", "container", "reason", "exit_code", "class"),
    ),
    ("inplace_restarts_in_vain", "1 while the condition RestartsInVain is True: restarts did not help.", NAMES),
    (
        "inplace_first_silent_seconds",
        "How long the worker that was furthest behind had made no step when its epoch ended.",
        (*NAMES, "pod"),
    ),
)
"""Gauges that are read from the ledgers and the status at each scrape: name, help, labels."""


def samples_of(count: GroupCount) -> Iterator[tuple[str, Sequence[str], float]]:
    """Yield name, label values and value of each sample about one group."""
    names, pods = (count.namespace, count.jobset, count.scope), count.standing
    for state in ("running", "waiting", "restarting", "missing"):
        yield "inplace_pods", (*names, state), getattr(pods, state)
    yield "inplace_pods_expected", names, count.expected
    if count.sizes is not None:
        yield "inplace_pods", (*names, "spare"), pods.spares
        yield "inplace_members", (*names, "max"), count.sizes.most
        yield "inplace_members", (*names, "min"), count.sizes.least
        yield "inplace_spares_expected", names, count.spares_max
    yield "inplace_epoch", (*names, "synced"), count.synced
    yield "inplace_epoch", (*names, "deprecated"), count.deprecated
    yield "inplace_restart_in_progress", names, count.is_restarting
    yield "inplace_barrier_wait_seconds", names, count.waited_s
    if count.goodput is not None and (ratio := count.goodput.ratio) is not None:
        for part in ("useful", "lost", "restart"):
            yield "inplace_goodput_seconds", (*names, part), getattr(count.goodput, f"{part}_s")
        yield "inplace_goodput_lost_steps", names, count.goodput.lost_steps
        yield "inplace_effective_training_ratio", names, ratio
    if (whole := count.whole) is None:
        return
    yield "inplace_restart_budget", names[:2], whole.restarts_max
    yield "inplace_restart_budget_remaining", names[:2], whole.restarts_left
    if whole.synced_at_s is not None:
        yield "inplace_last_restart_timestamp_seconds", names[:2], whole.synced_at_s
    yield "inplace_restarts_in_vain", names[:2], whole.is_in_vain
    if (verdict := whole.verdict) is not None and (failure := verdict.culprit) is not None:
        code = "" if failure.exit_code is None else str(failure.exit_code)
        labels = (*names[:2], failure.pod, failure.node, failure.container, failure.reason, code, verdict.found.value)
        yield "inplace_first_failure_info", labels, 1
    if (silent := whole.first_silent) is not None:
        yield "inplace_first_silent_seconds", (*names[:2], silent.pods[0]), silent.progress.quiet_s


@dataclass(eq=False)
class LiveCollector(Collector):
    """Reads at scrape time what lives elsewhere: the ledgers, the queue, the watches.

    Args:
        groups: how each group stands.
        processing: seconds for which each key has been in work.
        silence: kind -> seconds since its watch last heard the server.
    """

    groups: Callable[[], Iterable[GroupCount]]
    processing: Callable[[], Iterable[float]]
    silence: Callable[[], Iterable[tuple[str, float]]]

    def collect(self) -> Iterable[Metric]:
        """Yield what is true now."""
        return (metric for metric in self.steps() if metric is not None)

    def steps(self) -> Iterator[Metric | None]:
        """Yield the same, and None wherever the reader may pause: after each group."""
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, text, labels in LIVE}
        for count in self.groups():
            for name, labels, value in samples_of(count):
                families[name].add_metric(labels, value)
            yield None
        yield from families.values()
        yield from self._collect_process()

    def _collect_process(self) -> Iterable[Metric]:
        seconds = list(self.processing())
        for name, text, value in (
            ("unfinished_work_seconds", "Seconds of work in progress, summed.", sum(seconds)),
            ("longest_running_processor_seconds", "Age of the oldest work in progress.", max(seconds, default=0.0)),
        ):
            family = GaugeMetricFamily(f"workqueue_{name}", text, labels=("name",))
            family.add_metric([CONTROLLER], value)
            yield family
        silent = GaugeMetricFamily(
            "inplace_watch_staleness_seconds", "Since a watch last heard the server.", labels=("kind",)
        )
        for kind, value in self.silence():
            silent.add_metric([kind], value)
        yield silent
