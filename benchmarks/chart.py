"""Draw curves over two logarithmic axes, and groups of bars, as an SVG that reads on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inplace.cli import svg

WIDTH: Final = 760
# Told apart by the colour-blind (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#009e73", "#7f7f7f", "#cc79a7", "#e69f00", "#d55e00", "#56b4e9")
GREY: Final = "#7f7f7f"
TITLE_SIZE: Final = 14

HEIGHT: Final = 420
LEFT: Final = 60
RIGHT: Final = 200  # room for the curves' names
TOP: Final = 40
BOTTOM: Final = 50
NAME_GAP: Final = 16.0  # least distance of two names

BARS_LEFT: Final = 170  # room for the groups' names
BARS_RIGHT: Final = 60  # and for a bar's number
BARS_TOP: Final = 60
BAR: Final = 13
GROUP_GAP: Final = 14
LEGEND: Final = 106  # from one name to the next


@dataclass(frozen=True, slots=True)
class Curve:
    """Points with a name; x and y above 0."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        marks = (step * 10.0**decade for decade in decades for step in (1, 2, 5))
        return [mark for mark in marks if self.low <= mark <= self.high]


def draw_chart(title: str, x_name: str, y_name: str, curves: Sequence[Curve]) -> str:
    """Return the SVG's text."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    across = _Axis(min(xs) * 0.9, max(xs) * 1.1, LEFT, WIDTH - RIGHT)
    up = _Axis(min(ys) * 0.8, max(ys) * 1.2, HEIGHT - BOTTOM, TOP)
    elements = [
        svg.element("title", title),
        svg.text(LEFT, 20, title, font_size=TITLE_SIZE, fill=GREY),
        *_grid(across, up),
        svg.text(round((LEFT + WIDTH - RIGHT) / 2), HEIGHT - 10, x_name, fill=GREY),
        svg.text(10, TOP - 6, y_name, fill=GREY),
        *_drawn(curves, across, up),
    ]
    return svg.document(WIDTH, HEIGHT, elements, font_family="sans-serif", font_size=12)


def _grid(across: _Axis, up: _Axis) -> Iterable[str]:
    for value in across.ticks():
        x = across.at(value)
        yield svg.line(x, TOP, x, HEIGHT - BOTTOM, GREY, stroke_opacity="0.25")
        yield svg.text(x, HEIGHT - BOTTOM + 16, f"{value:,.0f}", text_anchor="middle", fill=GREY)
    for value in up.ticks():
        y = up.at(value)
        yield svg.line(LEFT, y, WIDTH - RIGHT, y, GREY, stroke_opacity="0.25")
        yield svg.text(LEFT - 6, y + 4, f"{value:g}", text_anchor="end", fill=GREY)


def _drawn(curves: Sequence[Curve], across: _Axis, up: _Axis) -> Iterable[str]:
    """Draw the curves, their names at their ends, pushed apart from the top down."""
    ends = {}
    lowest = -math.inf
    for curve in sorted(curves, key=lambda each: up.at(each.points[-1][1])):
        lowest = max(lowest + NAME_GAP, up.at(curve.points[-1][1]))
        ends[curve.name] = lowest
    for curve, colour in zip(curves, COLOURS, strict=False):
        dashes = {"stroke_dasharray": "4 4"} if colour == GREY else {}
        yield svg.polyline(((across.at(x), up.at(y)) for x, y in curve.points), colour, "2", **dashes)
        words = f"{curve.name}: {curve.points[-1][1]:.1f}"
        yield svg.text(WIDTH - RIGHT + 8, ends[curve.name] + 4, words, fill=colour)


def draw_bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Return the SVG's text.

    Args:
        title: with the unit.
        groups: the bars of each group by name, 0 or more; all groups have the same names.
    """
    most = max((value for bars in groups.values() for value in bars.values()), default=0.0) or 1.0
    names = list(next(iter(groups.values()), {}))
    height = BARS_TOP + sum(len(bars) * BAR + GROUP_GAP for bars in groups.values())
    elements = [svg.element("title", title), svg.text(10, 18, title, font_size=TITLE_SIZE, fill=GREY)]
    for number, name in enumerate(names):
        x = 10 + number * LEGEND
        elements += [svg.rect(x, 30, 10, 10, COLOURS[number]), svg.text(x + 14, 39, name, fill=GREY)]
    y = BARS_TOP
    for group, bars in groups.items():
        middle = round(y + len(bars) * BAR / 2 + 4)
        elements.append(svg.text(BARS_LEFT - 8, middle, group, text_anchor="end", fill=GREY))
        for number, value in enumerate(bars.values()):
            width = max(1.0, value / most * (WIDTH - BARS_LEFT - BARS_RIGHT))
            bar = svg.rect(BARS_LEFT, y, width, BAR - 2, COLOURS[number])
            elements.append(bar + svg.text(BARS_LEFT + width + 4, y + BAR - 4, f"{value:.1f}", fill=GREY))
            y += BAR
        y += GROUP_GAP
    return svg.document(WIDTH, height, elements, font_family="sans-serif", font_size=11)
