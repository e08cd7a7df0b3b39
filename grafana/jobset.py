"""The board of one JobSet, for its owner."""

from __future__ import annotations

from typing import Final

from grafana import shared
from grafana.panels import Board, Panel, Query, Row, amount
from grafana.promql import BY_JOBSET, JOBSET, RANGE, RANGE_S, lost_share, restarts

_BETWEEN: Final = f"{RANGE_S} / (sum({restarts(RANGE)}) > 0)"
_ANSWERS: Final = (
    Panel(
        "stat",
        "Pods that run",
        "Share of the expected Pods that joined the epoch that runs. `inplace explain` says whether ranks make steps.",
        "percentunit",
        "InplaceBarrierStuck",
        (
            Query(
                f'sum(inplace_pods{{{JOBSET},state="running"}}) / (sum(inplace_pods_expected{{{JOBSET}}}) > 0)', "run"
            ),
        ),
    ),
    Panel(
        "stat",
        "Time between interruptions",
        "The range of the board divided by the group restarts in it.",
        "s",
        "InplaceRestartStorm",
        (Query(_BETWEEN, "between"),),
        empty=shared.QUIET,
    ),
    Panel(
        "stat",
        "Time to recover",
        "How long a restart kept a Pod from training, on average over Pods and restarts of the range.",
        "s",
        "InplaceRestartSlow",
        (Query(f"{lost_share()} * {_BETWEEN}", "to recover"),),
        empty=shared.QUIET,
    ),
    *shared.COST,
)

_WAIT: Final = Panel(
    "timeseries",
    "Wait at the barrier",
    "How long the group has waited for Pods, at a barrier or since one was lost; 0 while all run. The JobSet's "
    "condition BarrierWaiting names whom it waits for.",
    "s",
    "InplaceBarrierStuck",
    (
        Query(
            f"max by ({BY_JOBSET}, scope) (inplace_barrier_wait_seconds{{{JOBSET}}})",
            "{{namespace}}/{{jobset}} {{scope}}",
        ),
    ),
    limit=120,
    names_jobsets=True,
)

_LAST_DURATIONS: Final = Panel(
    "timeseries",
    "Duration of its last restart",
    "From the first sign of a failure to the status that lets the workers start, of this JobSet.",
    "s",
    "InplaceRestartSlow",
    (Query(f"max by ({BY_JOBSET}) (inplace_last_restart_duration_seconds{{{JOBSET}}})", "{{namespace}}/{{jobset}}"),),
    empty=shared.NOT_RESTARTED,
    limit=shared.PROMISE_S,
    names_jobsets=True,
)

BOARD: Final = Board(
    "inplace-jobset",
    "inplace / JobSet",
    "One JobSet: does it run, what does it wait for, who failed first and why, what did it cost.",
    "6h",  # as on Fleet, and a night's sleep: what has happened since somebody last looked
    (*shared.JOBSETS, amount("price", "Price of a Pod-hour", "16.8")),
    (
        Row("Does it run, and what did it cost?", _ANSWERS, height=4),
        Row("What it waits for", (shared.PODS_BY_STATE, _WAIT)),
        Row("Who failed first, and why", (shared.FIRST_FAILURES, shared.VERDICTS, shared.FIRST_SILENT), height=4),
        Row(
            "When restarting in place is not enough",
            (shared.ESCALATION_STEPS, shared.NODE_VERDICTS, shared.BUDGET),
            height=4,
        ),
        Row("How often, and how long", (shared.RESTARTS_BY_TRIGGER, _LAST_DURATIONS)),
        Row("What restarts cost in training time", (shared.TRAINING_TIME, shared.TRAINING_TIME_LOST)),
    ),
    annotations=(shared.group_restarts(shown=True),),
)
