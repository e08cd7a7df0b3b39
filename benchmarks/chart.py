"""Draw groups of bars as an SVG that reads on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana import svg

WIDTH: Final = 760
# Told apart by the colour-blind (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#009e73", "#7f7f7f", "#cc79a7", "#e69f00", "#d55e00", "#56b4e9")
GREY: Final = "#7f7f7f"
TITLE_SIZE: Final = 14

BARS_LEFT: Final = 170  # room for the groups' names
BARS_RIGHT: Final = 60  # and for a bar's number
BARS_TOP: Final = 60
BAR: Final = 13
GROUP_GAP: Final = 14
LEGEND: Final = 106  # from one name to the next


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
