"""Place a dashboard's rows and panels on Grafana's grid."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from grafana.panels import DATASOURCE_VARIABLE, LINKS, REFRESH, Board, Json, Row

_WIDTH: Final = 24  # Grafana's grid has 24 columns


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
