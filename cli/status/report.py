"""
`inplace report`: sum up the restarts of many JobSets, by cause and by node, and what they cost; one request.

A JobSet whose ranks tell steps has its goodput in the status: its cost is the time without new steps, and that of steps
that were made again. Of any other the restarts that its status keeps are counted, each from its first sign to the
moment when all Pods were there: training again takes longer. Pure but for `run_report`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.table import Table

from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_jobsets
from inplace.cli.group.state import GroupState, state_of_status
from inplace.cli.status.document import TRIGGERS
from inplace.cli.terminal.moments import count_text
from inplace.cli.terminal.screen import Output, plain_table, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.observing import Judged, judged
from inplace.common.jobset.restart_history import history_of
from inplace.common.kube.resources import KubeObject

if TYPE_CHECKING:
    from inplace.cli.documents import ReportDocument

NODES_SHOWN: Final = 10
KEPT: Final = "causes and nodes are those of the last 20 restarts of each JobSet"


@dataclass(frozen=True, slots=True)
class JobSetCost:
    """What the restarts of one JobSet cost.

    Args:
        pods: that restart together.
        restarts: all of them, by their epochs.
        goodput: over all scopes; None where no rank tells steps.
        in_restarts_s: seconds from each first sign to the moment when all Pods were there.
        kept: the restarts that the status keeps: (trigger, node, seconds).
        observed: by kind, what would have been done about them, and how often that was right.
    """

    state: GroupState
    pods: int
    restarts: int
    goodput: Goodput | None = None
    in_restarts_s: float = 0.0
    kept: Sequence[tuple[str, str, float]] = ()
    observed: Mapping[str, Judged] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return the effective training time ratio; None if nobody knows."""
        return self.goodput.ratio if self.goodput is not None else None

    @property
    def is_estimate(self) -> bool:
        """Say whether its restarts cost more than is known."""
        return self.restarts > 0 and self.goodput is None

    @property
    def cost_s(self) -> float:
        """Return seconds without new steps and of steps made again; of a JobSet without steps, in restarts alone."""
        return self.in_restarts_s if self.goodput is None else self.goodput.lost_s + self.goodput.restart_s

    @property
    def pod_hours(self) -> float:
        return self.pods * self.cost_s / 3600


@dataclass(slots=True)
class Share:
    """What the restarts of one cause, or of one node, cost."""

    restarts: int = 0
    pod_hours: float = 0.0


@dataclass(slots=True)
class Report:
    """The sum.

    Args:
        causes: by trigger.
        nodes: by the node of the first failure.
        observed: by kind of answer.
    """

    jobsets: Sequence[JobSetCost] = ()
    causes: dict[str, Share] = field(default_factory=dict)
    nodes: dict[str, Share] = field(default_factory=dict)
    observed: dict[str, Judged] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return the training time ratio of all JobSets that tell steps, each weighed with its Pods."""
        known = [(one.pods, one.goodput) for one in self.jobsets if one.goodput is not None and one.ratio is not None]
        return _sum(known).ratio

    @property
    def pod_hours(self) -> float:
        return sum(one.pod_hours for one in self.jobsets)


@command
async def run_report(
    connection: Connection, *, selector: str | None, everywhere: bool, price: float | None, output: Output
) -> None:
    """Print the sum of many JobSets' restarts."""
    found = report(await read_jobsets(connection, everywhere=everywhere, selector=selector), time.time())
    if output != "table":
        print_data(report_data(found, price), output)
    elif found.jobsets:
        show(*report_picture(found, price))
        print(KEPT, file=sys.stderr)
    else:
        which = f" with labels {selector}" if selector else ""
        place = "any namespace" if everywhere else connection.place
        print(f"no JobSets that restart in place{which} in {place}", file=sys.stderr)


def report(jobsets: Iterable[KubeObject], now_s: float) -> Report:
    """Sum up those that restart in place, now, in seconds since 1970."""
    costs = [cost for raw in jobsets if (cost := _cost_of(raw, now_s)) is not None]
    found = Report(sorted(costs, key=lambda one: one.pod_hours, reverse=True))
    for one in found.jobsets:
        for trigger, node, seconds in one.kept:
            for shares, key in ((found.causes, trigger), (found.nodes, node)):
                if key:
                    share = shares.setdefault(key, Share())
                    share.restarts += 1
                    share.pod_hours += one.pods * seconds / 3600
        for kind, share_of in one.observed.items():
            found.observed[kind] = found.observed.get(kind, Judged()) + share_of
    return found


def _cost_of(raw: KubeObject, now_s: float) -> JobSetCost | None:
    state = state_of_status(raw)
    if state.jobset is None or not state.jobset.is_in_place or state.managed_by is not None:
        return None
    goodputs = [scope.goodput for scope in state.scopes if scope.goodput is not None and scope.goodput.restarts]
    history = history_of(raw.get("status") or {})
    kept = [
        (past.trigger, past.node, (past.cost_ms if past.cost_ms is not None else past.took_ms or 0) / 1000)
        for past in history
    ]
    return JobSetCost(
        state,
        state.expected,
        sum(max(0, scope.synced - 1) for scope in state.scopes),
        _sum([(1, one) for one in goodputs]) if goodputs else None,
        sum((past.took_ms or 0) / 1000 for past in history),
        kept,
        judged(history, now_s),
    )


def _sum(goodputs: Iterable[tuple[int, Goodput]]) -> Goodput:
    """Return goodputs together, each weighed."""
    total = Goodput()
    for weight, one in goodputs:
        total = Goodput(
            total.restarts + one.restarts,
            total.useful_s + weight * one.useful_s,
            total.lost_s + weight * one.lost_s,
            total.restart_s + weight * one.restart_s,
        )
    return total


def report_data(found: Report, price: float | None) -> ReportDocument:
    """Return the report for programs."""
    causes, nodes = (
        [(key, one.restarts, round(one.pod_hours, 3)) for key, one in _ordered(shares)]
        for shares in (found.causes, found.nodes)
    )
    return {
        "trainingTimeRatio": _rounded(found.ratio),
        "restarts": sum(one.restarts for one in found.jobsets),
        "podHours": round(found.pod_hours, 3),
        "cost": _price(found.pod_hours, price),
        "jobsets": [
            {
                "namespace": one.state.namespace,
                "name": one.state.name,
                "phase": one.state.phase.value,
                "pods": one.pods,
                "restarts": one.restarts,
                "trainingTimeRatio": _rounded(one.ratio),
                "costSeconds": round(one.cost_s, 3),
                "podHours": round(one.pod_hours, 3),
                "cost": _price(one.pod_hours, price),
            }
            for one in found.jobsets
        ],
        "causes": [{"trigger": key, "restarts": count, "podHours": hours} for key, count, hours in causes],
        "nodes": [{"node": key, "restarts": count, "podHours": hours} for key, count, hours in nodes],
        "observed": [
            {"answer": kind, "count": one.count, "right": one.right, "wrong": one.wrong}
            for kind, one in sorted(found.observed.items())
        ],
    }


def report_picture(found: Report, price: float | None) -> list[Table | str]:
    """Return the tables for people, with lines between them."""
    costs = ("POD-HOURS", "COST") if price is not None else ("POD-HOURS",)
    table = plain_table("NAMESPACE", "JOBSET", "PHASE", "PODS", "RESTARTS", "TRAINING TIME", *costs)
    for one in found.jobsets:
        names = one_line(one.state.namespace), one_line(one.state.name), one.state.phase.value
        spent = _spent(one.pod_hours, price, about=one.is_estimate)
        table.add_row(*names, f"{one.pods:,}", f"{one.restarts:,}", _percent(one.ratio), *spent)
    restarts = f"{sum(one.restarts for one in found.jobsets):,}"
    all_of_them = count_text(len(found.jobsets), "JobSet")
    about = any(one.is_estimate for one in found.jobsets)
    spent = _spent(found.pod_hours, price, about=about)
    table.add_row("all", all_of_them, "", "", restarts, _percent(found.ratio), *spent)
    parts: list[Table | str] = [table]
    if about:
        parts.append("~ without steps: the time in restarts alone, and not the way back to the last step")
    causes = {TRIGGERS.get(key, key): share for key, share in found.causes.items()}
    for title, shares in (("CAUSE", causes), ("NODE OF THE FIRST FAILURE", found.nodes)):
        if shares:
            rows = plain_table(title, "RESTARTS", *costs)
            for key, share in _ordered(shares)[:NODES_SHOWN]:
                rows.add_row(one_line(key), f"{share.restarts:,}", *_spent(share.pod_hours, price))
            rest = len(shares) - NODES_SHOWN
            parts += ["", rows, *([f"and {rest:,} more: -o json"] if rest > 0 else [])]
    if found.observed:
        total = sum(found.observed.values(), Judged())
        kinds = ", ".join(f"{kind} {one.count}" for kind, one in sorted(found.observed.items()))
        parts += ["", f"{total} ({kinds})"]
    return parts


def _ordered(shares: dict[str, Share]) -> list[tuple[str, Share]]:
    """Return the most expensive first."""
    return sorted(shares.items(), key=lambda pair: (-pair[1].pod_hours, -pair[1].restarts, pair[0]))


def _spent(pod_hours: float, price: float | None, *, about: bool = False) -> list[str]:
    words = f"{'~' if about else ''}{pod_hours:,.2f}"
    return [words] if price is None else [words, f"{pod_hours * price:,.2f}"]


def _price(pod_hours: float, price: float | None) -> float | None:
    return None if price is None else round(pod_hours * price, 2)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
