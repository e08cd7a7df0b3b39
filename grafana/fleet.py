"""The board of all JobSets: which run, which wait, what it costs."""

from __future__ import annotations

from typing import Final

from grafana import shared
from grafana.panels import Board, Panel, Query, Row, amount
from grafana.promql import BY_JOBSET, JOBSET, RANGE, none_if_absent, restarts


def _standing(state: str) -> str:
    """Return the Pods of each JobSet, or those in some states."""
    name, only = ("inplace_pods", f'{JOBSET},state=~"{state}"') if state else ("inplace_pods_expected", JOBSET)
    return f"sum by ({BY_JOBSET}) ({name}{{{only}}})"


def _largest(name: str) -> str:
    """Return a gauge of each JobSet, of its scope with the most."""
    return f"max by ({BY_JOBSET}) ({name}{{{JOBSET}}})"


_RUNNING: Final = _standing("running")
_EXPECTED: Final = _standing("")
_COUNTS: Final = (
    Panel(
        "stat",
        "JobSets that run",
        "All their Pods joined the epoch that runs. `inplace explain` says whether ranks make steps.",
        "short",
        "InplaceBarrierStuck",
        (Query(none_if_absent(f"count({_RUNNING} >= ({_EXPECTED} > 0))"), "run"),),
    ),
    Panel(
        "stat",
        "JobSets that do not",
        "At least one Pod is not running: they start, restart, or wait.",
        "short",
        "InplaceBarrierStuck",
        (Query(none_if_absent(f"count({_RUNNING} < {_EXPECTED})"), "do not run"),),
        limit=1,
    ),
    Panel(
        "stat",
        "Restarts",
        "Group restarts in the range of the board, whatever caused them.",
        "short",
        "InplaceRestartStorm",
        (Query(f"sum({restarts(RANGE)})", "restarts"),),
    ),
    *shared.COST,
)

_TABLE: Final = Panel(
    "table",
    "JobSets",
    "How each JobSet stands: its Pods, how long its barrier has waited, what is left of maxRestarts, and its last "
    "restart.",
    "none",
    "InplaceBarrierStuck",
    (
        Query(_EXPECTED, "Pods"),
        Query(_RUNNING, "running"),
        Query(_standing("waiting"), "waiting"),
        Query(_standing("missing|restarting"), "awaited"),
        Query(_largest("inplace_barrier_wait_seconds"), "barrier waits (s)"),
        Query(f'max by ({BY_JOBSET}) (inplace_epoch{{{JOBSET},which="synced"}})', "epoch"),
        Query(f"min by ({BY_JOBSET}) (inplace_restart_budget_remaining{{{JOBSET}}})", "restarts left"),
        Query(_largest("inplace_last_restart_duration_seconds"), "last restart (s)", shared.NOT_RESTARTED),
        Query(f"time() - {_largest('inplace_last_restart_timestamp_seconds')}", "ago (s)", shared.NOT_RESTARTED),
    ),
    names_jobsets=True,
)

_WAITS: Final = Panel(
    "timeseries",
    "Longest waits at a barrier",
    "How long the present barrier of a group has waited; 0 while its workers run.",
    "s",
    "InplaceBarrierStuck",
    (
        Query(
            f"topk(10, max by ({BY_JOBSET}, scope) (inplace_barrier_wait_seconds{{{JOBSET}}}))",
            "{{namespace}}/{{jobset}} {{scope}}",
        ),
    ),
    limit=120,
    names_jobsets=True,
)

_NODES: Final = Panel(
    "bargauge",
    "Nodes that failed first",
    "How many JobSets' last restart began on a node. One node in several is a reason to cordon it.",
    "short",
    "InplaceNodeFailsFirst",
    (Query(f'topk(10, count by (node) (inplace_first_failure_info{{{JOBSET},node!=""}}))', "{{node}}"),),
    empty="no container failed first in any JobSet's last group restart",
)

BOARD: Final = Board(
    "inplace-fleet",
    "inplace / Fleet",
    "All JobSets: which of them run, what the others wait for, who failed first, and what it cost.",
    "6h",  # the window of the alerts on nodes, hangs and escalations: a board opened from one shows all that it counted
    (*shared.JOBSETS, amount("price", "Price of a Pod-hour", "16.8")),
    (
        Row("Does everything run?", _COUNTS, height=4),
        Row("Every JobSet; a row leads to its board", (_TABLE,), height=7),
        Row("What is waited for", (shared.PODS_BY_STATE, _WAITS)),
        Row("Who failed, and why", (shared.FIRST_FAILURES, shared.VERDICTS, _NODES), height=7),
        Row("When restarting in place is not enough", (shared.ESCALATION_STEPS, shared.NODE_VERDICTS, shared.BUDGET)),
        Row(
            "How often, and how long", (shared.RESTARTS_BY_TRIGGER, shared.DURATION_QUANTILES, shared.DURATION_BY_PHASE)
        ),
    ),
    annotations=(shared.group_restarts(shown=False),),  # a fleet has too many
)
