"""Draw groups of horizontal bars as an SVG that reads on light and dark pages; no dependency."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from benchmarks.chart import COLOURS, GREY

WIDTH: Final = 760
LEFT: Final = 170  # room for the groups' names
RIGHT: Final = 60  # and for a bar's number
TOP: Final = 60
BAR: Final = 13
GAP: Final = 14  # between two groups
LEGEND: Final = 115


def draw_bars(title: str, groups: Mapping[str, Mapping[str, float]], form: str = "{:.1f}") -> str:
    """Return the SVG's text.

    Args:
        title: with the unit.
        groups: the bars of each group by name, 0 or more; all groups have the same names.
        form: how a number is written beside its bar.
    """
    most = max((value for bars in groups.values() for value in bars.values()), default=0.0) or 1.0
    names = list(next(iter(groups.values()), {}))
    height = TOP + sum(len(bars) * BAR + GAP for bars in groups.values())
    style = 'font-family="sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {style}>',
        f"<title>{escape(title)}</title>",
        f'<text x="10" y="18" font-size="14" fill="{GREY}">{escape(title)}</text>',
    ]
    for number, name in enumerate(names):
        x = 10 + number * LEGEND
        parts.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{x + 14}" y="39" fill="{GREY}">{escape(name)}</text>')
    y = TOP
    for group, bars in groups.items():
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + len(bars) * BAR / 2 + 4:.0f}" text-anchor="end" fill="{GREY}">'
            f"{escape(group)}</text>"
        )
        for number, value in enumerate(bars.values()):
            width = max(1.0, value / most * (WIDTH - LEFT - RIGHT))
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[number]}"/>'
                f'<text x="{LEFT + width + 4:.1f}" y="{y + BAR - 4}" fill="{GREY}">{form.format(value)}</text>'
            )
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])
