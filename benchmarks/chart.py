"""Draw curves over two logarithmic axes as an SVG that reads on light and dark pages; no dependency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 760
HEIGHT: Final = 420
LEFT: Final = 60
RIGHT: Final = 200  # room for the curves' names
TOP: Final = 40
BOTTOM: Final = 50
NAME_GAP: Final = 16.0  # least distance of two names
COLOURS: Final = ("#0072b2", "#009e73", "#7f7f7f", "#cc79a7", "#e69f00", "#d55e00")  # told apart by the colour-blind
GREY: Final = "#7f7f7f"


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
    style = 'font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {style}>',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="20" font-size="14" fill="{GREY}">{escape(title)}</text>',
        *_grid(across, up),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" fill="{GREY}">{escape(x_name)}</text>',
        f'<text x="10" y="{TOP - 6}" fill="{GREY}">{escape(y_name)}</text>',
        *_drawn(curves, across, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(across: _Axis, up: _Axis) -> Iterable[str]:
    line = f'stroke="{GREY}" stroke-opacity="0.25"'
    for value in across.ticks():
        x = across.at(value)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" {line}/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="{GREY}">{value:,.0f}</text>'
    for value in up.ticks():
        y = up.at(value)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" {line}/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">{value:g}</text>'


def _drawn(curves: Sequence[Curve], across: _Axis, up: _Axis) -> Iterable[str]:
    """Draw the curves, their names at their ends, pushed apart from the top down."""
    ends = {}
    lowest = -math.inf
    for curve in sorted(curves, key=lambda each: up.at(each.points[-1][1])):
        lowest = max(lowest + NAME_GAP, up.at(curve.points[-1][1]))
        ends[curve.name] = lowest
    for curve, colour in zip(curves, COLOURS, strict=True):
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in curve.points)
        dashes = ' stroke-dasharray="4 4"' if colour == GREY else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        y = ends[curve.name] + 4
        words = f"{escape(curve.name)}: {curve.points[-1][1]:.1f}"
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{y:.1f}" fill="{colour}">{words}</text>'
