"""Panels that several boards have, and the variables of all boards."""

from __future__ import annotations

from typing import Final

from grafana.panels import Json, Panel, Query, mark, variable
from grafana.promql import (
    BY_JOBSET,
    CLUSTER,
    JOBSET,
    RANGE,
    RATE,
    counted,
    lost_seconds,
    lost_share,
    mean,
    ours,
    quantile,
)

_STATES: Final = {
    "running": "#73bf69",
    "waiting": "#f2cc0c",
    "restarting": "#5794f2",
    "missing": "#f2495c",
    "spare": "#b877d9",
    "expected": "#8e8e9c",
    "most members": "#ccccdc",
}
PROMISE_S: Final = 10.0  # a group restart in place at 5,000 Pods
_DURATION: Final = "inplace_group_restart_duration_seconds"
_FAILURE: Final = "class, pod, node, container, reason, exit_code"
_ENDED: Final = f"max by ({BY_JOBSET}) (inplace_last_restart_timestamp_seconds{{{JOBSET}}})"
_FINISHED: Final = f'inplace_group_restarts_total{{{JOBSET},outcome="finished"}}'
_EXCEEDED: Final = f'inplace_group_restarts_total{{{JOBSET},outcome="exceeded"}}'
QUIET: Final = "no group restart in this range"
NOT_RESTARTED: Final = "not restarted since the controller started"
UNWATCHED: Final = "no restart whose Pods told their steps; that needs a watchdog"
WITHOUT_ESCALATION: Final = "no escalation step was used: no JobSet has inplace.dev/escalation, or none failed"
CLUSTERS: Final = variable("cluster", "Cluster", "label_values(inplace_build_info, cluster)")
JOBSETS: Final[tuple[Json, ...]] = (
    CLUSTERS,
    variable("namespace", "Namespace", f"label_values(inplace_pods_expected{{{CLUSTER}}}, namespace)"),
    variable("jobset", "JobSet", f'label_values(inplace_pods_expected{{{CLUSTER},namespace=~"$namespace"}}, jobset)'),
)


def group_restarts(*, shown: bool) -> Json:
    """Return the marks of the group restarts: when each ended, and what failed first in it.

    Time and failure come from one entry of the JobSet's status, so they belong together at every moment. The trigger is
    the label of a counter alone, and would not. Grafana writes a label's name where the label is absent, so the texts
    are joined here, where an absent label is empty.
    """
    failed = f"max by ({BY_JOBSET}, {_FAILURE}) (topk by ({BY_JOBSET}) (1, inplace_first_failure_info{{{JOBSET}}}))"
    otherwise = f'label_replace({_ENDED}, "pod", "no failure known", "", "")'
    moments = f"({failed} * on ({BY_JOBSET}) group_left () {_ENDED}) or on ({BY_JOBSET}) {otherwise}"
    labels = ", ".join(f'"{label}"' for label in _FAILURE.split(", "))
    return mark(
        "Group restarts",
        f'1000 * label_join({moments}, "what", " ", {labels})',
        "Group restart of {{namespace}}/{{jobset}}",
        "{{what}}",
        shown=shown,
    )


DURATION_QUANTILES: Final = Panel(
    "timeseries",
    "Restart duration",
    "From the first sign of a failure to the status that lets the workers start, all JobSets of the controller. "
    "The line is the promise for restarts in place; a lost Pod has to be scheduled again and may be above it.",
    "s",
    "InplaceRestartSlow",
    (
        Query(quantile(0.5, _DURATION), "p50"),
        Query(quantile(0.99, _DURATION), "p99"),
        Query(quantile(0.99, _DURATION, by="trigger"), "p99 {{trigger}}"),
    ),
    empty=QUIET,
    limit=PROMISE_S,
)

DURATION_BY_PHASE: Final = Panel(
    "timeseries",
    "Where the time goes",
    "Mean duration of each phase, stacked. detect: from the worker's end to the decision. deprecate: to the "
    "accepted status. announce: until the last Pod is back. sync: to the accepted status. lift: until Pods saw it.",
    "s",
    "InplaceRestartSlow",
    (Query(mean("inplace_group_restart_phase_duration_seconds", by="phase"), "{{phase}}"),),
    empty=QUIET,
    stacked=True,
)

RESTARTS_BY_TRIGGER: Final = Panel(
    "timeseries",
    "Restarts per hour, by trigger",
    "worker_exit: a worker ended. stalled: a worker hangs. loss_not_finite, slow: a Pod told. completed_early: "
    "one ended with 0 before the others. pod_lost: a Pod was deleted. disrupted: one was evicted (not "
    "counted). job_failed: its Job was recreated. manual: somebody asked. resize, resume, join: the group changed. "
    "exceeded: maxRestarts was used up.",
    "short",
    "InplaceRestartStorm",
    (
        Query(f"sum by (trigger) {counted(_FINISHED, '1h')}", "{{trigger}}"),
        Query(f"sum {counted(_EXCEEDED, '1h')} > 0", "exceeded", empty="nothing failed for good"),
    ),
    empty="no group restart yet",
    stacked=True,
)

PODS_BY_STATE: Final = Panel(
    "timeseries",
    "Pods by state",
    "running: it joined the epoch that runs. waiting: at the barrier. restarting: the Pod exists, but has "
    "not come to the barrier yet (its containers start, or it is Pending). missing: the Pod does not exist. spare: it "
    "waits to take a rank; a group with spares expects its members alone.",
    "short",
    "InplaceBarrierStuck",
    (
        Query(f"sum by (state) (inplace_pods{{{JOBSET}}})", "{{state}}"),
        Query(f"sum(inplace_pods_expected{{{JOBSET}}})", "expected"),
        Query(f'sum(inplace_members{{{JOBSET},which="max"}})', "most members", empty="no group has spares"),
    ),
    colours=_STATES,
)

FIRST_FAILURES: Final = Panel(
    "table",
    "Who failed first, and why",
    "The verdict on each JobSet's last restart, and how long ago that was. `inplace explain JOBSET` adds the words "
    "that prove it.",
    "s",
    "InplaceNodeFailsFirst",
    (
        Query(
            f"time() - max by ({BY_JOBSET}, {_FAILURE}) "
            f"(inplace_first_failure_info{{{JOBSET}}} * on ({BY_JOBSET}) group_left () {_ENDED})",
            "age",
        ),
    ),
    empty="no container failed first in any JobSet's last group restart",
    names_jobsets=True,
)

_FOUND: Final = counted(f"inplace_verdicts_total{{{JOBSET}}}", RANGE)
VERDICTS: Final = Panel(
    "bargauge",
    "Verdicts",
    "What was to blame for failures in the range of the board, by class; vain: JobSets whose restarts do not help.",
    "short",
    "InplaceRestartsInVain",
    (
        Query(f"sum by (class) ({_FOUND}) > 0", "{{class}}"),
        Query(f"sum(max by ({BY_JOBSET}) (inplace_restarts_in_vain{{{JOBSET}}})) > 0", "vain", empty="restarts help"),
    ),
    empty="nothing failed",
)

TRAINING_TIME: Final = Panel(
    "timeseries",
    "Effective training time",
    "Share of the time in which steps were made that no restart took back, up to the newest run's first step. The "
    "rest is work that was done again, and time without a step: silence, restart, loading.",
    "percentunit",
    "InplaceRestartStorm",
    (Query(f"max by ({BY_JOBSET}, scope) (inplace_effective_training_ratio{{{JOBSET}}})", "{{jobset}} {{scope}}"),),
    empty=UNWATCHED,
)

_LOST: Final = f'inplace_goodput_seconds{{{JOBSET},part=~"lost|restart"}}'
TRAINING_TIME_LOST: Final = Panel(
    "timeseries",
    "Training time lost",
    "Seconds of all restarts so far. lost: steps that were made again, from the last checkpoint on. restart: no "
    "step, from a run's last one to the first one of the next.",
    "s",
    "InplaceRestartStorm",
    (Query(f"max by ({BY_JOBSET}, scope, part) ({_LOST})", "{{part}} {{jobset}} {{scope}}"),),
    empty=UNWATCHED,
)

FIRST_SILENT: Final = Panel(
    "table",
    "Who was silent first",
    "The Pod whose worker was furthest behind when the last epoch failed, and for how long it had made no step.",
    "s",
    "InplaceWorkersHang",
    (Query(f"max by ({BY_JOBSET}, pod) (inplace_first_silent_seconds{{{JOBSET}}})", "silent"),),
    empty=UNWATCHED,
    names_jobsets=True,
)

BUDGET: Final = Panel(
    "bargauge",
    "Restarts left",
    "The ten JobSets that have the fewest group restarts left of their maxRestarts.",
    "short",
    "InplaceBudgetLow",
    (
        Query(
            f"bottomk(10, min by ({BY_JOBSET}) (inplace_restart_budget_remaining{{{JOBSET}}}))",
            "{{namespace}}/{{jobset}}",
        ),
    ),
    names_jobsets=True,
)

_USES: Final = counted(f"inplace_escalation_steps_total{{{JOBSET}}}", RANGE)
ESCALATION_STEPS: Final = Panel(
    "bargauge",
    "Escalation steps used",
    "How often each JobSet used each step of its escalation in the range of the board. Fail: no step had room.",
    "short",
    "InplaceLastEscalationStep",
    (Query(f"topk(10, sum by ({BY_JOBSET}, step) ({_USES}) > 0)", "{{namespace}}/{{jobset}} {{step}}"),),
    empty=WITHOUT_ESCALATION,
    names_jobsets=True,
)

_VERDICTS: Final = counted(f"inplace_node_verdicts_total{{{JOBSET}}}", RANGE)
NODE_VERDICTS: Final = Panel(
    "bargauge",
    "Bad nodes",
    "NodeAvoided: a JobSet found a node bad, in the range of the board. NodeVerdictTakenBack: no other node was "
    "free, so a Pod returned there. `inplace explain JOBSET` names them.",
    "short",
    "InplaceNodesAvoided",
    (Query(f"topk(10, sum by ({BY_JOBSET}, verdict) ({_VERDICTS}) > 0)", "{{namespace}}/{{jobset}} {{verdict}}"),),
    empty="no node was found bad, or no JobSet has inplace.dev/nodes",
    names_jobsets=True,
)

COST: Final = (
    Panel(
        "stat",
        "Effective time",
        "Share of the Pods' time, in the range of the board, that group restarts left to training.",
        "percentunit",
        "InplaceRestartStorm",
        (Query(f"1 - {lost_share()}", "effective"),),
    ),
    Panel(
        "stat",
        "Lost Pod-hours",
        "Time in which Pods of a JobSet did not train because its group restarted, added up over its Pods.",
        "h",
        "InplaceRestartStorm",
        (Query(f"{lost_seconds()} / 3600", "lost"),),
    ),
    Panel(
        "stat",
        "What it cost",
        "Lost Pod-hours times the price of a Pod's hour, which the field at the top takes.",
        "currencyUSD",
        "InplaceRestartStorm",
        (Query(f"{lost_seconds()} / 3600 * $price", "cost"),),
    ),
)

_REQUESTS: Final = ours(f"rate(rest_client_requests_total{{{CLUSTER}}}[{RATE}])")
REQUESTS: Final = Panel(
    "timeseries",
    "Controller: requests to the API server",
    "By method and answer. 409 is a lost race and normal; 429 says that the server throttles us.",
    "reqps",
    "InplaceApiThrottled",
    (Query(f"sum by (method, code) {_REQUESTS}", "{{method}} {{code}}"),),
)

STALENESS: Final = Panel(
    "timeseries",
    "Silence of the watches",
    "Time since the API server last sent anything on a watch. It sends at least a bookmark, about once a minute.",
    "s",
    "InplaceWatchStale",
    (Query(f"max by (kind) (inplace_watch_staleness_seconds{{{CLUSTER}}})", "{{kind}}"),),
    limit=90,
)

LEADERS: Final = Panel(
    "stat",
    "Controllers that lead",
    "Exactly one leads; the other replicas stand by.",
    "short",
    "InplaceNoLeader",
    (Query(f"sum {ours(f'leader_election_master_status{{{CLUSTER}}}')}", "leaders"),),
)
