"""The board of one JobSet, for its owner."""

from __future__ import annotations

from grafana import shared
from grafana.panels import Board, Panel, Query, Row, amount, mark
from grafana.promql import BY_JOBSET, CLUSTER, JOBSET, RANGE, RANGE_S, RATE, lost_share, mean, ours, quantile, restarts


def jobset() -> Board:
    """Return the board inplace-jobset."""
    return Board(
        "inplace-jobset",
        "inplace / JobSet",
        "One JobSet: is it training, what does it wait for, who failed first and why, what did it cost.",
        (*shared.JOBSETS, amount("price", "Price of a Pod-hour", "16.8")),
        (
            Row("Is it training, and what did it cost?", _answers(), height=4),
            Row("What it waits for", (shared.pods_by_state(), _wait(), _epochs())),
            Row("Who failed first, and why", (shared.first_failures(), shared.restarts_by_trigger())),
            Row("When restarting in place is not enough", (shared.escalation_steps(), shared.node_verdicts())),
            Row(
                "What restarts cost in training time",
                (shared.training_time(), shared.training_time_lost(), shared.first_silent()),
            ),
            Row(
                "How long its restarts take",
                (_last_durations(), shared.duration_quantiles(), shared.duration_heatmap()),
            ),
            Row("Where the time goes", (shared.duration_by_phase(), _pods(), shared.budget())),
            Row("Is it us?", (_controller(), shared.requests(), _health())),
        ),
        annotations=(
            mark(
                "Group restarts",
                f"1000 * max by (namespace, jobset) (inplace_last_restart_timestamp_seconds{{{JOBSET}}})",
                "Group restart",
                "{{namespace}}/{{jobset}}",
            ),
        ),
    )


def _answers() -> tuple[Panel, ...]:
    between = f"{RANGE_S} / (sum({restarts(RANGE)}) > 0)"
    return (
        Panel(
            "stat",
            "Pods that train",
            "Share of the expected Pods that run at the running epoch.",
            "percentunit",
            "InplaceBarrierStuck",
            (
                Query(
                    f'sum(inplace_pods{{{JOBSET},state="running"}}) / (sum(inplace_pods_expected{{{JOBSET}}}) > 0)',
                    "train",
                ),
            ),
        ),
        Panel(
            "stat",
            "Time between interruptions",
            "The range of the board divided by the group restarts in it.",
            "s",
            "InplaceRestartStorm",
            (Query(between, "between"),),
            empty=shared.QUIET,
        ),
        Panel(
            "stat",
            "Time to recover",
            "How long a restart kept a Pod from training, on average over Pods and restarts of the range.",
            "s",
            "InplaceRestartSlow",
            (Query(f"{lost_share()} * {between}", "to recover"),),
            empty=shared.QUIET,
        ),
        shared.effective_time(),
        shared.lost_pod_hours(),
        shared.money(),
    )


def _wait() -> Panel:
    return Panel(
        "timeseries",
        "Wait at the barrier",
        "How long the present barrier has waited; 0 while the workers run. The JobSet's condition BarrierWaiting names "
        "whom it waits for.",
        "s",
        "InplaceBarrierStuck",
        (Query(f"max by ({BY_JOBSET}, scope) (inplace_barrier_wait_seconds{{{JOBSET}}})", "{{jobset}} {{scope}}"),),
        limit=120,
    )


def _epochs() -> Panel:
    return Panel(
        "timeseries",
        "Epochs",
        "synced: the newest epoch that may run. deprecated: the newest that must not. They meet during a restart.",
        "none",
        "InplaceRestartStorm",
        (
            Query(
                f"max by ({BY_JOBSET}, scope, which) (inplace_epoch{{{JOBSET}}})",
                "{{jobset}} {{scope}} {{which}}",
            ),
        ),
    )


def _last_durations() -> Panel:
    return Panel(
        "timeseries",
        "Duration of its last restart",
        "From the first sign of a failure to the status that lets the workers start, of this JobSet.",
        "s",
        "InplaceRestartSlow",
        (
            Query(
                f"max by ({BY_JOBSET}) (inplace_last_restart_duration_seconds{{{JOBSET}}})",
                "{{namespace}}/{{jobset}}",
            ),
        ),
        empty="not restarted since the controller started",
        limit=shared.PROMISE_S,
    )


def _pods() -> Panel:
    name = "inplace_pod_restart_phase_duration_seconds"
    return Panel(
        "timeseries",
        "Pods: agent and kubelet",
        "As the agents announced it, all JobSets of the controller. kubelet: old process to new. view, announce: the "
        "agent's start. A group waits for its last Pod, so the 99th percentile is what a restart feels.",
        "s",
        "InplaceRestartSlow",
        (
            Query(mean(name, by="phase", only=f'{CLUSTER},phase=~"kubelet|view|announce"'), "mean {{phase}}"),
            Query(quantile(0.99, name, by="phase", only=f'{CLUSTER},phase=~"kubelet|view|announce"'), "p99 {{phase}}"),
        ),
        empty=shared.QUIET,
    )


def _controller() -> Panel:
    depth = ours(f'workqueue_depth{{{CLUSTER},name="jobset"}}')
    age = ours(f'workqueue_longest_running_processor_seconds{{{CLUSTER},name="jobset"}}')
    bucket = ours(f"rate(controller_runtime_reconcile_time_seconds_bucket{{{CLUSTER}}}[{RATE}])")
    return Panel(
        "timeseries",
        "Controller: is it behind?",
        "JobSets that wait for it, the age of the oldest work in progress, and how long one pass takes.",
        "none",
        "InplaceControllerDown",
        (
            Query(f"sum {depth}", "queue"),
            Query(f"max {age}", "longest running (s)"),
            Query(f"histogram_quantile(0.99, sum by (le) {bucket})", "pass p99 (s)"),
        ),
    )


def _health() -> Panel:
    return Panel(
        "table",
        "Controllers",
        "Version, leadership, memory, and the silence of the worst watch.",
        "none",
        "InplaceNoLeader",
        (
            Query(f"max by (cluster, instance, version) (inplace_build_info{{{CLUSTER}}})", "up"),
            Query(f"max by (cluster, instance) {ours(f'leader_election_master_status{{{CLUSTER}}}')}", "leads"),
            Query(f"max by (cluster, instance) {ours(f'process_resident_memory_bytes{{{CLUSTER}}}')} / 1e6", "MB"),
            Query(f"max by (cluster, instance) (inplace_watch_staleness_seconds{{{CLUSTER}}})", "silence (s)"),
        ),
    )
