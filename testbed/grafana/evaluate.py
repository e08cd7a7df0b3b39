"""
Ask a real Prometheus every question of every panel and rule: `make dashboards-test`.

It plays testbed/grafana/scene.py, evaluates, and prints a table. It fails when an expression is refused, when a rule is
unhealthy, and when a query is empty for no reason. A query may have a reason of its own, such as "no error". A panel's
reason, such as "no group restart in this range", counts only where the scene says that it holds; so no panel is empty
in the demo.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from grafana.build import BOARDS
from grafana.panels import Board, Panel, Query
from grafana.promql import concrete
from grafana.series import legend
from testbed.grafana.prometheus import PrometheusError
from testbed.grafana.scene import SCRAPE_S, Played, scene

RATE_S: Final = 4 * SCRAPE_S  # Grafana's least $__rate_interval
POINTS: Final = 60  # of a picture over the whole scene
GET: Final = (
    "expected Debian's prometheus on PATH, found none. It is in the package prometheus, whose installation starts a "
    "server; to take the program alone, as .ci/run takes promtool: apt-get download prometheus && "
    "dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/prometheus > prometheus && chmod +x prometheus"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Prometheus' answer to one query.

    Args:
        where: board and panel, or the group of a rule.
        series: how many have a number.
        shown: the last number of one of them.
        fault: what is wrong; "" when nothing is.
        excuse: why it may be empty.
    """

    where: str
    what: str
    series: int
    shown: str
    fault: str
    excuse: str = ""

    def line(self) -> str:
        """Return a line of the table."""
        state = self.fault or ("ok" if self.series else f"empty: {self.excuse}")
        return f"{self.where:<62.62}  {self.what:<24.24}  {self.series:>6}  {self.shown:>12}  {state}"


class Mark(NamedTuple):
    """What an annotation says of one moment (Unix time)."""

    at_s: float
    text: str


def program() -> str:
    """Return the path of Prometheus, or exit and say how to get it."""
    found = shutil.which("prometheus")
    if found is None:
        sys.exit(GET)
    return found


async def ask(played: Played, panel: Panel, query: Query) -> list[Any]:
    """Return the series of one query, as Grafana would ask for them at the end of the scene."""
    expr = concrete(query.expr, rate_s=RATE_S, range_s=played.range_s, jobset=played.jobset)
    if panel.kind in ("stat", "table", "bargauge"):
        return await played.prometheus.instant(expr, played.end_s)
    step_s = max(1.0, played.range_s / POINTS)
    return await played.prometheus.over_time(expr, played.start_s, played.end_s, step_s)


def numbers(series: Any) -> list[float]:
    """Return the finite values of a series."""
    values = series["values"] if "values" in series else [series["value"]]
    return [number for _, text in values if math.isfinite(number := float(text))]


async def panels(played: Played) -> AsyncIterator[Answer]:
    """Evaluate every query of every panel."""
    for board in BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                yield await verdict_on(played, f"{board.uid}: {panel.title}", panel, query)


async def verdict_on(played: Played, where: str, panel: Panel, query: Query) -> Answer:
    """Ask one query, and judge the answer."""
    try:
        found = [numbers(series) for series in await ask(played, panel, query)]
    except PrometheusError as error:
        return Answer(where, query.legend, 0, "", f"REFUSED: {error}")
    full = [values for values in found if values]
    excuse = query.empty or (panel.empty if panel.empty in played.holds else "")
    fault = "" if full or excuse else "EMPTY, and no reason for it holds here"
    return Answer(where, query.legend, len(full), f"{full[0][-1]:.4g}" if full else "", fault, excuse)


async def marks(played: Played, board: Board) -> list[Mark]:
    """Return what a board's annotations mark in the scene, in the order of time."""
    found = set()
    for each in board.annotations:
        expr = concrete(each["expr"], rate_s=RATE_S, range_s=played.range_s, jobset=played.jobset)
        for series in await played.prometheus.over_time(expr, played.start_s, played.end_s, SCRAPE_S):
            text = legend(each["textFormat"], series["metric"])
            found |= {Mark(float(value) / 1000, text) for _, value in series["values"]}
    return sorted(found)


async def rules(played: Played) -> AsyncIterator[Answer]:
    """Return every rule's health during the scene, and its result at the end."""
    for rule in await played.prometheus.rules():
        fault = "" if rule["health"] == "ok" else f"{rule['health']}: {rule.get('lastError', '')}"
        full = [
            values
            for series in await played.prometheus.instant(rule["query"], played.end_s)
            if (values := numbers(series))
        ]
        shown = f"{full[0][-1]:.4g}" if full else ""
        if rule["type"] == "recording" and not full:
            fault = fault or "EMPTY, and a recording rule must not be"
        yield Answer(
            f"rule: {rule['name']}", rule.get("state", rule["type"]), len(full), shown, fault, "nothing is wrong"
        )


async def evaluate(path: str, *, with_api_server: bool) -> list[Answer]:
    """Play the scene and return every answer."""
    async with scene(path, lambda text: print(f"- {text}", file=sys.stderr), with_api_server=with_api_server) as played:
        answers = [answer async for answer in panels(played)]
        answers += [answer async for answer in rules(played)]
        down = [target for target in await played.prometheus.targets() if target["health"] == "down"]
        jobs = {target["labels"]["job"] for target in down} - {"inplace-agents"}  # one may be starting just now
        return answers + [Answer(f"scrape: {job}", "", 0, "", "DOWN") for job in sorted(jobs)]


def main() -> int:
    """Print the table; return 1 when an answer has a fault."""
    parser = argparse.ArgumentParser(description="Evaluate every panel and rule on a real Prometheus.")
    parser.add_argument("--without-api-server", action="store_true", help="no kube-apiserver; its panels stay empty")
    options = parser.parse_args()
    answers = asyncio.run(evaluate(program(), with_api_server=not options.without_api_server))
    print(f"{'board: panel, or rule':<62}  {'query':<24}  {'series':>6}  {'last':>12}  verdict")
    for answer in answers:
        print(answer.line())
    faults = sum(bool(answer.fault) for answer in answers)
    empty = sum(not answer.series and not answer.fault for answer in answers)
    full = len(answers) - faults - empty
    print(f"{len(answers)} expressions: {full} with data, {empty} empty for a reason, {faults} wrong")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
