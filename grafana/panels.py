"""
The few Grafana shapes the dashboards use, as plain dictionaries.

Why not a dashboard SDK: grafanalib is idle and the foundation SDK is in public preview; a dashboard is JSON, and the
subset we need fits on one screen. Written for Grafana 10 to 13 (schemaVersion 39).
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24  # Grafana's grid has 24 columns


def target(expr: str, legend: str) -> Json:
    """Return one PromQL query."""
    return {"expr": expr, "legendFormat": legend, "datasource": DATASOURCE}


def timeseries(title: str, description: str, unit: str, *targets: Json) -> Json:
    """Return a time series panel; `unit` is a Grafana unit id ("s", "short", "reqps", "bytes")."""
    return _panel("timeseries", title, description, unit, targets)


def stat(title: str, description: str, unit: str, *targets: Json) -> Json:
    """Return a panel that shows the last value, large."""
    return _panel("stat", title, description, unit, targets)


def heatmap(title: str, description: str, unit: str, *targets: Json) -> Json:
    """Return a heat map over the buckets of a histogram."""
    panel = _panel("heatmap", title, description, unit, targets)
    for query in panel["targets"]:
        query["format"] = "heatmap"
    panel["options"] = {"calculate": False, "yAxis": {"unit": unit}}
    return panel


def variable(name: str, label: str, query: str) -> Json:
    """Return a template variable that lists a label's values; All matches everything."""
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
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard(uid: str, title: str, description: str, variables: list[Json], rows: list[list[Json]]) -> Json:
    """Return a whole dashboard; each row's panels share the width."""
    datasource = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["inplace", "jobset"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [datasource, *variables]},
        "panels": _lay_out(rows),
    }


def _panel(kind: str, title: str, description: str, unit: str, targets: tuple[Json, ...]) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [query | {"refId": chr(ord("A") + i)} for i, query in enumerate(targets)],
        "fieldConfig": {"defaults": {"unit": unit, "noValue": "none yet"}, "overrides": []},
    }


def _lay_out(rows: list[list[Json]], height: int = 8) -> list[Json]:
    """Number the panels and place each row's side by side."""
    placed: list[Json] = []
    for y, row in enumerate(rows):
        width = _WIDTH // len(row)
        for x, panel in enumerate(row):
            position = {"x": x * width, "y": y * height, "w": width, "h": height}
            placed.append({"id": len(placed) + 1, "gridPos": position} | panel)
    return placed
