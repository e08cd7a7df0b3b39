"""The colours and the type of Grafana's dark theme."""

from __future__ import annotations

from typing import Final

from grafana import svg

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


def text(x: float, y: float, words: str, *, size: int = 11, fill: str = INK, anchor: str = "start") -> str:
    """Return a line of text on whole pixels."""
    return svg.text(round(x), round(y), words, font_size=size, fill=fill, text_anchor=anchor)


def fitting(words: str, width: float, size: int = 11) -> str:
    """Return the words, shortened to a width."""
    letters = int(width / (size * LETTER))
    return words if len(words) <= letters else words[: max(letters - 1, 1)] + "…"
