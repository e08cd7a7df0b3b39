"""
Write the dashboards: `python -m grafana.build`. A test compares the files with what this would write.

restart-latency: how long a group restart takes, where the time goes, and how the group stands.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana.panels import Json, dashboard, heatmap, stat, target, timeseries, variable

FOLDER = Path(__file__).parent
_JOBSET = '{namespace=~"$namespace",jobset=~"$jobset"}'
_RATE = "$__rate_interval"


def restart_latency() -> Json:
    """Return the dashboard grafana/restart-latency.json."""
    return dashboard(
        "inplace-restart-latency",
        "inplace / Restart latency",
        "Group restarts in place: how long, where the time goes, and who is missing.",
        [
            variable("namespace", "Namespace", "label_values(inplace_pods_expected, namespace)"),
            variable("jobset", "JobSet", 'label_values(inplace_pods_expected{namespace=~"$namespace"}, jobset)'),
        ],
        [
            [_duration_quantiles(), _duration_heatmap(), _duration_by_phase()],
            [_pod_phases(), _pod_phases_slowest()],
            [_last_restart(), _restarts(), _budget()],
            [_pods_by_state(), _epochs(), _pods_restarting()],
            [_agent_phases(), _agent_retries(), _agent_watch_endings()],
            [_queue(), _requests(), _leader()],
        ],
    )


def _duration_quantiles() -> Json:
    buckets = f"sum by (le) (rate(inplace_group_restart_duration_seconds_bucket[{_RATE}]))"
    return timeseries(
        "Restart duration",
        "From the first sign of a failure to the status that lets the workers start. All JobSets of this controller.",
        "s",
        target(f"histogram_quantile(0.5, {buckets})", "p50"),
        target(f"histogram_quantile(0.99, {buckets})", "p99"),
    )


def _duration_heatmap() -> Json:
    return heatmap(
        "Restart duration, all of them",
        "Each group restart falls into one cell.",
        "s",
        target(f"sum by (le) (increase(inplace_group_restart_duration_seconds_bucket[{_RATE}]))", "{{le}}"),
    )


def _duration_by_phase() -> Json:
    name = "inplace_group_restart_phase_duration_seconds"
    return timeseries(
        "Mean duration by phase",
        "deprecate: first sign to accepted status. announce: until the last Pod is back. sync: until accepted.",
        "s",
        target(
            f"sum by (phase) (rate({name}_sum[{_RATE}])) / sum by (phase) (rate({name}_count[{_RATE}]))",
            "{{phase}}",
        ),
    )


def _pod_phases() -> Json:
    name = "inplace_pod_restart_phase_duration_seconds"
    return timeseries(
        "Pods: mean duration by phase",
        "What the agents announced. kubelet: old process to new. view, announce: the agent's start. barrier: waiting "
        "for the group. lift: process start to lift. death, stop, start, down: a supervisor's worker.",
        "s",
        target(
            f"sum by (phase) (rate({name}_sum[{_RATE}])) / sum by (phase) (rate({name}_count[{_RATE}]))",
            "{{phase}}",
        ),
    )


def _pod_phases_slowest() -> Json:
    buckets = f"sum by (le, phase) (rate(inplace_pod_restart_phase_duration_seconds_bucket[{_RATE}]))"
    return timeseries(
        "Pods: slowest hundredth by phase",
        "The 99th percentile: a group waits for its last Pod, so this is what its restarts feel.",
        "s",
        target(f"histogram_quantile(0.99, {buckets})", "{{phase}}"),
    )


def _last_restart() -> Json:
    return stat(
        "Last restart",
        "Duration of the last group restart of each JobSet.",
        "s",
        target(f"inplace_last_restart_duration_seconds{_JOBSET}", "{{namespace}}/{{jobset}}"),
    )


def _restarts() -> Json:
    return timeseries(
        "Restarts per hour, by outcome",
        "exceeded: the JobSet failed because maxRestarts was used up.",
        "short",
        target(f"sum by (outcome) (increase(inplace_group_restarts_total{_JOBSET}[1h]))", "{{outcome}}"),
    )


def _budget() -> Json:
    return stat(
        "Restarts left",
        "How many more group restarts maxRestarts allows.",
        "short",
        target(f"inplace_restart_budget_remaining{_JOBSET}", "{{namespace}}/{{jobset}}"),
    )


def _pods_by_state() -> Json:
    return timeseries(
        "Pods by state",
        "running: at the running epoch. waiting: at the barrier. missing: neither.",
        "short",
        target(f"sum by (state) (inplace_pods{_JOBSET})", "{{state}}"),
        target(f"sum(inplace_pods_expected{_JOBSET})", "expected"),
    )


def _epochs() -> Json:
    return timeseries(
        "Epochs",
        "synced: the newest epoch that may run. deprecated: the newest that must not.",
        "short",
        target(f"inplace_epoch{_JOBSET}", "{{jobset}} {{which}}"),
    )


def _pods_restarting() -> Json:
    return timeseries(
        "Group restarts in progress",
        "1 while a JobSet's group restart runs.",
        "short",
        target(f"inplace_restart_in_progress{_JOBSET}", "{{namespace}}/{{jobset}}"),
    )


def _agent_phases() -> Json:
    name = "inplace_agent_restart_phase_duration_seconds"
    return timeseries(
        "Agents: mean duration by phase",
        "What the agents measured since they started. Agents are scraped only where a PodMonitor says so.",
        "s",
        target(f"sum by (phase) ({name}_sum) / sum by (phase) ({name}_count)", "{{phase}}"),
    )


def _agent_retries() -> Json:
    return timeseries(
        "Agents: retries and failed requests",
        "What the herd costs beyond one watch and one patch per start.",
        "short",
        target("sum(inplace_agent_retries_total)", "retries"),
        target('sum by (verb, outcome) (inplace_agent_requests_total{outcome!="ok"})', "{{verb}} {{outcome}}"),
    )


def _agent_watch_endings() -> Json:
    return timeseries(
        "Agents: watch endings",
        "By cause; closed is the server's ordinary time-out.",
        "short",
        target("sum by (cause) (inplace_agent_watch_endings_total)", "{{cause}}"),
    )


def _queue() -> Json:
    return timeseries(
        "Controller: work queue",
        "Keys that wait, and the age of the oldest work in progress.",
        "short",
        target('workqueue_depth{name="jobset"}', "depth"),
        target('workqueue_longest_running_processor_seconds{name="jobset"}', "longest running (s)"),
    )


def _requests() -> Json:
    return timeseries(
        "Controller: requests to the API server",
        "By answer; 409 is a lost race and normal, 429 is not.",
        "reqps",
        target(f"sum by (code, method) (rate(rest_client_requests_total[{_RATE}]))", "{{method}} {{code}}"),
    )


def _leader() -> Json:
    return stat(
        "Controllers that lead",
        "Expected: 1.",
        "short",
        target("sum(leader_election_master_status)", "leaders"),
    )


DASHBOARDS = {"restart-latency.json": restart_latency}


def text_of(board: Json) -> str:
    """Return a dashboard as it stands in its file."""
    return json.dumps(board, indent=2) + "\n"


def main() -> None:
    """Write every dashboard."""
    for name, build in DASHBOARDS.items():
        (FOLDER / name).write_text(text_of(build()))


if __name__ == "__main__":
    main()
