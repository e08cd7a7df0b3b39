"""
Draw a board with its data without Grafana, for the documentation.

Each kind of panel is one function from a box and series to elements of SVG. No interaction, no second axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from grafana import svg
from grafana.panels import Board, Panel, render
from grafana.series import Series, with_unit

COLUMN: Final = 56  # pixels of one of Grafana's 24 columns
UNIT: Final = 30  # pixels of one unit of height
_LEGENDS_MAX: Final = 5  # lines below a time series; Grafana lets one scroll
_LINE: Final = 14  # pixels between two of them

# The colours and the type of Grafana's dark theme.
FONT: Final = "Inter, Helvetica, Arial, sans-serif"
BACKGROUND: Final = "#111217"
PANEL: Final = "#181b1f"
GRID: Final = "#2c3235"
INK: Final = "#ccccdc"
FAINT: Final = "#8e8e9c"
RED: Final = "#f2495c"
MARK: Final = "#ff9830"  # of an annotation
GREEN: Final = "#73bf69"
COLOURS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff", "#f2495c", "#96d98d", "#ffb357")
STROKE: Final = "1.5"  # width of a line
LETTER: Final = 0.56  # width of a letter by its size, on average, of a sans-serif font

Answers = Mapping[str, Sequence[list[Series]]]  # by the panel's title: one list of series per query


@dataclass(frozen=True, slots=True)
class Box:
    """Where something is drawn."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Span:
    """What a time axis shows: a range, and the moments in it that are marked (Unix time)."""

    start_s: float
    end_s: float
    marks: Sequence[float] = ()


def draw(board: Board, answers: Answers, start_s: float, end_s: float, marks: Sequence[float] = ()) -> str:
    """Return a board as SVG, with a line in each time series at the moments that are marked (Unix time)."""
    span = Span(start_s, end_s, marks)
    panels = {panel.title: panel for panel in board.panels}
    body = [text(12, 26, board.title, size=18), text(12, 44, board.description, fill=FAINT)]
    bottom = 56.0
    for placed in render(board)["panels"]:
        place = placed["gridPos"]
        box = Box(
            place["x"] * COLUMN + 4.0, 56.0 + place["y"] * UNIT, place["w"] * COLUMN - 8.0, place["h"] * UNIT - 8.0
        )
        bottom = max(bottom, box.y + box.height)
        if placed["type"] == "row":
            body.append(text(box.x + 6, box.y + 18, placed["title"], size=13))
        else:
            panel = panels[placed["title"]]
            body += _panel(panel, box, answers[panel.title], span)
    width, height = 24.0 * COLUMN, bottom + 8
    background = svg.rect(0.0, 0.0, width, height, BACKGROUND)
    return svg.document(width, height, [background, *body], font_family=FONT)


def _panel(panel: Panel, box: Box, found: Sequence[list[Series]], span: Span) -> list[str]:
    title = text(box.x + 8, box.y + 16, fitting(panel.title, box.width - 12, 12), size=12)
    frame = [svg.rect(box.x, box.y, box.width, box.height, PANEL), title]
    inner = Box(box.x + 8, box.y + 24, box.width - 16, box.height - 30)
    series = [each for of_query in found for each in of_query]
    if not series:
        words = fitting(panel.empty or "no data", inner.width)
        middle = (inner.x + inner.width / 2, inner.y + inner.height / 2)
        return [*frame, text(*middle, words, fill=FAINT, anchor="middle")]
    match panel.kind:
        case "stat":
            return frame + _stat(panel, inner, series)
        case "bargauge":
            return frame + _bars(panel, inner, series)
        case "table":
            return frame + _table(panel, inner, found)
        case "timeseries":
            return frame + _lines(panel, inner, series, span)


def _colour(panel: Panel, value: float) -> str:
    return RED if panel.limit is not None and value >= panel.limit else GREEN


def _stat(panel: Panel, box: Box, series: list[Series]) -> list[str]:
    shown = series[:3]
    width = box.width / len(shown)
    drawn = []
    for index, each in enumerate(shown):
        x = box.x + width * (index + 0.5)
        words = with_unit(each.last, panel.unit)
        drawn.append(
            text(x, box.y + box.height / 2 + 8, words, size=26, fill=_colour(panel, each.last), anchor="middle")
        )
        if panel.queries[0].legend.startswith("{{"):
            drawn.append(text(x, box.y + box.height - 4, each.legend, fill=FAINT, anchor="middle"))
    return drawn


def _bars(panel: Panel, box: Box, series: list[Series]) -> list[str]:
    most = max(each.last for each in series) or 1.0
    height = min(box.height / len(series), 34.0)
    drawn = []
    for index, each in enumerate(sorted(series, key=lambda one: one.last)):
        y = box.y + index * height
        width = (box.width - 60) * each.last / most
        drawn += [
            text(box.x, y + 11, fitting(each.legend, box.width), fill=FAINT),
            svg.rect(box.x, y + 14, max(width, 2.0), height - 20, _colour(panel, each.last)),
            text(box.x + width + 6, y + height / 2 + 8, with_unit(each.last, panel.unit)),
        ]
    return drawn


def _table(panel: Panel, box: Box, found: Sequence[list[Series]]) -> list[str]:
    """Join the queries' series by the labels that all have, as the transformation `merge` does."""
    shared = set.intersection(*(set(each.labels) for series in found for each in series))
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for query, series in zip(panel.queries, found, strict=True):
        for each in series:
            row = rows.setdefault(tuple(sorted((name, each.labels[name]) for name in shared)), {})
            row |= each.labels
            row[query.legend] = with_unit(each.last, panel.unit)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    columns.sort(key=lambda name: next((i for i, q in enumerate(panel.queries) if q.legend == name), -1))
    width = box.width / len(columns)
    drawn = []
    for line_number, row in enumerate([{name: name for name in columns}, *rows.values()]):
        y = box.y + 14 + line_number * 22
        if y > box.y + box.height:
            break
        fill = INK if line_number else FAINT
        drawn += [
            text(box.x + i * width, y, fitting(row.get(name, ""), width - 6), fill=fill)
            for i, name in enumerate(columns)
        ]
        drawn.append(svg.polyline([(box.x, y + 6), (box.x + box.width, y + 6)], GRID, STROKE))
    return drawn


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where a time and a value are in a box."""

    box: Box
    span: Span
    top: float

    def at(self, moment: float, value: float) -> tuple[float, float]:
        seconds = max(self.span.end_s - self.span.start_s, 1.0)
        x = self.box.x + (moment - self.span.start_s) / seconds * self.box.width
        return x, self.box.y + self.box.height * (1 - value / self.top)


def _lines(panel: Panel, box: Box, series: list[Series], span: Span) -> list[str]:
    legends = min(len(series), _LEGENDS_MAX)
    plot = Box(box.x + 44, box.y + 4, box.width - 48, box.height - 24 - legends * _LINE)
    layers = (
        _stacked(series) if panel.stacked else [(each, tuple((at, 0.0) for at, _ in each.points)) for each in series]
    )
    tops = [value + base for each, under in layers for (_, value), (_, base) in zip(each.points, under, strict=True)]
    limit = panel.limit if panel.limit is not None and panel.limit < 4 * max(tops) else 0.0
    axes = _Axes(plot, span, max(*tops, limit, 0.0) * 1.05 or 1.0)
    drawn = _grid(axes, panel.unit)
    for moment in span.marks:
        ends = [axes.at(moment, 0.0), axes.at(moment, axes.top)]
        drawn.append(svg.polyline(ends, MARK, "1", stroke_dasharray="2 2"))
    for index, (each, under) in enumerate(layers):
        colour = _series_colour(panel, each, index)
        for stretch in _unbroken(each, under):
            above = [axes.at(at, value + base) for at, value, base in stretch]
            if panel.stacked:
                edge = svg.coordinates([*above, *(axes.at(at, base) for at, _, base in reversed(stretch))])
                drawn.append(svg.element("polygon", points=edge, fill=colour, fill_opacity="0.45"))
            drawn.append(svg.polyline(above, colour, STROKE))
    if limit:
        ends = [axes.at(span.start_s, limit), axes.at(span.end_s, limit)]
        drawn.append(svg.polyline(ends, RED, STROKE, stroke_dasharray="4 3"))
    y = box.y + box.height - legends * _LINE + 8
    for index, each in enumerate(series[:legends]):
        words = f"{each.legend}  {with_unit(each.last, panel.unit)}"
        if index == legends - 1 and len(series) > legends:
            words += f"   and {len(series) - legends} more"
        drawn.append(svg.rect(box.x, y + index * _LINE - 8, 10.0, 3.0, _series_colour(panel, each, index)))
        drawn.append(text(box.x + 16, y + index * _LINE - 3, fitting(words, box.width - 16, 10), size=10))
    return drawn


def _series_colour(panel: Panel, series: Series, index: int) -> str:
    return panel.colours.get(series.legend, COLOURS[index % len(COLOURS)])


def _unbroken(each: Series, under: Sequence[tuple[float, float]]) -> list[list[tuple[float, float, float]]]:
    """Return stretches of (time, value, base); like Grafana, draw no line where there was no answer."""
    step_s = min((later[0] - at[0] for at, later in pairwise(each.points)), default=1.0)
    stretches: list[list[tuple[float, float, float]]] = []
    for (at, value), (_, base) in zip(each.points, under, strict=True):
        if not stretches or at - stretches[-1][-1][0] > 1.5 * step_s:
            stretches.append([])
        stretches[-1].append((at, value, base))
    return stretches


def _stacked(series: list[Series]) -> list[tuple[Series, tuple[tuple[float, float], ...]]]:
    """Return each series with the sum of the series below it at its moments."""
    below: dict[float, float] = {}
    layers = []
    for each in series:
        layers.append((each, tuple((at, below.get(at, 0.0)) for at, _ in each.points)))
        for at, value in each.points:
            below[at] = below.get(at, 0.0) + value
    return layers


def _grid(axes: _Axes, unit: str) -> list[str]:
    start, end = axes.span.start_s, axes.span.end_s
    drawn = []
    for share in (0.0, 0.5, 1.0):
        x, y = axes.at(start, axes.top * share)
        drawn.append(svg.polyline([(x, y), (x + axes.box.width, y)], GRID, STROKE))
        drawn.append(text(x - 4, y + 4, with_unit(axes.top * share, unit), size=9, fill=FAINT, anchor="end"))
    x, y = axes.at(end, 0.0)
    drawn.append(text(x, y + 11, f"{end - start:.0f} s", size=9, fill=FAINT, anchor="end"))
    return drawn


def text(x: float, y: float, words: str, *, size: int = 11, fill: str = INK, anchor: str = "start") -> str:
    """Return a line of text on whole pixels."""
    return svg.text(round(x), round(y), words, font_size=size, fill=fill, text_anchor=anchor)


def fitting(words: str, width: float, size: int = 11) -> str:
    """Return the words, shortened to a width."""
    letters = int(width / (size * LETTER))
    return words if len(words) <= letters else words[: max(letters - 1, 1)] + "…"
