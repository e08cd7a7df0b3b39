"""
The few Grafana shapes that the dashboards use: a panel has queries, a runbook, and a text for when it is empty.

`python -m grafana.build --docs-url URL --to FOLDER` writes the same boards with links to your documentation
(docs/operations.md). Grafana's own address is not known either, so links between dashboards are paths.

Why not a dashboard SDK: grafanalib is idle and the foundation SDK is in public preview; a dashboard is JSON, and the
subset we need fits on one screen. Written for Grafana 10 to 13 (schemaVersion 39).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

Json = dict[str, Any]
Kind = Literal["timeseries", "stat", "table", "bargauge"]

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
NO_DATA: Final = "no data: does Prometheus scrape the controller?"  # where there must be some
REFRESH: Final = "30s"  # how often Prometheus usually scrapes: more often shows the same samples, and costs queries
_WIDTH: Final = 24  # Grafana's grid has 24 columns

DOCS_URL: Final = "http://127.0.0.1:8000"
"""The documentation's address stands only here: that of `mkdocs serve`, because nobody knows where you publish it."""

_JOBSET: Final = "/d/inplace-jobset?${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
JOBSET_ROW: Final = f"{_JOBSET}&var-namespace=${{__data.fields.namespace}}&var-jobset=${{__data.fields.jobset}}"
JOBSET_SERIES: Final = f"{_JOBSET}&var-namespace=${{__field.labels.namespace}}&var-jobset=${{__field.labels.jobset}}"
"""From a row of a table, and from a series, that have these two labels: data source, cluster and range go along."""


def runbook_url(alert: str) -> str:
    """Return the page that docs/runbooks/ALERT.md becomes."""
    return f"{DOCS_URL}/runbooks/{alert}.html"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query.

    Args:
        legend: Grafana's format, "{{label}}"; of a table the column's title.
        empty: why it may return nothing while the panel's other queries do not; "" when it may not.
    """

    expr: str
    legend: str
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        unit: a Grafana unit id ("s", "short", "reqps", "bytes", "percentunit").
        runbook: the alert whose page says what to do about what is seen here.
        empty: why all its queries may return nothing where all is well; shown in place of the data.
        limit: where the line is drawn that should not be crossed.
        stacked: the series are parts of a whole.
        names_jobsets: each row or series is of one JobSet, and leads to its board.
        colours: of series, by the name that the legend gives them; the others get whatever comes next.
    """

    kind: Kind
    title: str
    description: str
    unit: str
    runbook: str
    queries: tuple[Query, ...]
    empty: str = ""
    limit: float | None = None
    stacked: bool = False
    names_jobsets: bool = False
    colours: Mapping[str, str] = field(default_factory=dict)

    def render(self) -> Json:
        """Return the panel as Grafana reads it, without its place."""
        links = [{"title": f"Runbook: {self.runbook}", "url": runbook_url(self.runbook), "targetBlank": True}]
        panel: Json = {
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "links": links,
            "targets": [self._target(query, index) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": self._options(),
        }
        if self.kind == "table":
            panel["transformations"] = self._columns()
        return panel

    def _target(self, query: Query, index: int) -> Json:
        at_once = self.kind in ("table", "stat", "bargauge")
        return {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "format": "table" if self.kind == "table" else "time_series",
            "instant": at_once,
            "range": not at_once,
        }

    def _defaults(self) -> Json:
        defaults: Json = {"unit": self.unit, "noValue": self.empty or NO_DATA}
        if self.limit is not None:
            steps = [{"color": "green", "value": None}, {"color": "red", "value": self.limit}]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        if self.kind == "timeseries":
            defaults["custom"] = {"fillOpacity": 20 if self.stacked else 0}
            if self.stacked:
                defaults["custom"]["stacking"] = {"mode": "normal", "group": "A"}
            if self.limit is not None:
                defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
        if self.names_jobsets:
            url = JOBSET_ROW if self.kind == "table" else JOBSET_SERIES
            defaults["links"] = [{"title": "Open the JobSet's board", "url": url}]
        return defaults

    def _overrides(self) -> list[Json]:
        return [
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }
            for name, colour in self.colours.items()
        ]

    def _options(self) -> Json:
        match self.kind:
            case "timeseries":
                return {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}}
            case "stat":
                return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "graphMode": "none"}
            case "bargauge":
                return {
                    "reduceOptions": {"calcs": ["lastNotNull"]},
                    "orientation": "horizontal",
                    "displayMode": "basic",
                }
            case "table":
                return {"showHeader": True, "cellHeight": "sm"}

    def _columns(self) -> list[Json]:
        """Make one row of the same labels, and name the columns as the legends do."""
        values = {f"Value #{chr(ord('A') + i)}": query.legend for i, query in enumerate(self.queries)}
        if len(self.queries) == 1:
            values["Value"] = self.queries[0].legend  # Grafana numbers them only where there are several
        organize = {"excludeByName": {"Time": True}, "renameByName": values}
        return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels that share the width.

    Args:
        height: in Grafana's units of some 30 pixels.
    """

    title: str
    panels: tuple[Panel, ...]
    height: int = 8


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard.

    Args:
        uid: fixed, for links lead here.
        since: how long the range is at first, as Grafana writes it: "6h".
        variables: see `variable` and `amount`, in the order in which they depend on each other.
        annotations: what is marked on every time axis, see `mark`.
    """

    uid: str
    title: str
    description: str
    since: str
    variables: tuple[Json, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Json, ...] = ()

    @property
    def panels(self) -> list[Panel]:
        """Return all panels, from the top."""
        return [panel for row in self.rows for panel in row.panels]


def variable(name: str, label: str, query: str) -> Json:
    """Return a variable that lists a label's values; All matches everything, and series without the label too."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def amount(name: str, label: str, value: str) -> Json:
    """Return a variable that a person types."""
    current = {"text": value, "value": value}
    return {"name": name, "label": label, "type": "textbox", "query": value, "current": current, "options": [current]}


def mark(name: str, expr: str, title: str, text: str, *, shown: bool) -> Json:
    """Return an annotation at the moments (Unix milliseconds) that are the values of `expr`.

    It is `shown` at first or not; a switch at the top of the board changes that.
    """
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": shown,
        "iconColor": "orange",
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": text,
        "useValueForTime": True,
    }


DATASOURCE_VARIABLE: Final[Json] = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
}
LINKS: Final[list[Json]] = [
    {
        "title": "inplace",
        "type": "dashboards",
        "tags": ["inplace"],
        "includeVars": True,
        "keepTime": True,
        "asDropdown": False,
    },
    {"title": "On call", "type": "link", "url": f"{DOCS_URL}/on-call.html", "targetBlank": True},
    {"title": "What answers what", "type": "link", "url": f"{DOCS_URL}/observability.html", "targetBlank": True},
]


def render(board: Board) -> Json:
    """Return a dashboard as Grafana imports it."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["inplace", "jobset"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels, to compare one moment
        "refresh": REFRESH,
        "time": {"from": f"now-{board.since}", "to": "now"},
        "timezone": "browser",
        "links": LINKS,
        "annotations": {"list": list(board.annotations)},
        "templating": {"list": [DATASOURCE_VARIABLE, *board.variables]},
        "panels": _lay_out(board.rows),
    }


def _lay_out(rows: tuple[Row, ...]) -> list[Json]:
    """Number everything and place each row's panels side by side below its title."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        title = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        placed.append({"id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": title})
        y += 1
        edges = [_WIDTH * i // len(row.panels) for i in range(len(row.panels) + 1)]
        for panel, (left, right) in zip(row.panels, pairwise(edges), strict=True):
            position = {"x": left, "y": y, "w": right - left, "h": row.height}
            placed.append({"id": len(placed) + 1, "gridPos": position} | panel.render())
        y += row.height
    return placed
