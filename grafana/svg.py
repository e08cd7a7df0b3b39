"""A few elements of SVG, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

BACKGROUND: Final = "#111217"  # Grafana's dark theme
PANEL: Final = "#181b1f"
GRID: Final = "#2c3235"
INK: Final = "#ccccdc"
FAINT: Final = "#8e8e9c"
RED: Final = "#f2495c"
GREEN: Final = "#73bf69"
COLOURS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff", "#f2495c", "#96d98d", "#ffb357")
LETTER: Final = 0.56  # width of a letter by its size, on average, of a sans-serif font


def text(x: float, y: float, words: str, *, size: int = 11, fill: str = INK, anchor: str = "start") -> str:
    """Return a line of text whose baseline is at y."""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{escape(words)}</text>'
    )


def fitting(words: str, width: float, size: int = 11) -> str:
    """Return the words, shortened to a width."""
    letters = int(width / (size * LETTER))
    return words if len(words) <= letters else words[: max(letters - 1, 1)] + "…"


def rect(x: float, y: float, width: float, height: float, fill: str, *, opacity: float = 1.0) -> str:
    """Return a filled rectangle."""
    shade = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{shade}/>'


def line(points: Iterable[tuple[float, float]], stroke: str, *, dashed: bool = False) -> str:
    """Return a line through points."""
    style = ' stroke-dasharray="4 3"' if dashed else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="1.5"{style}/>'


def area(points: Iterable[tuple[float, float]], fill: str) -> str:
    """Return a filled shape."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{fill}" fill-opacity="0.45"/>'


def document(width: float, height: float, body: Iterable[str]) -> str:
    """Return a whole file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="Inter, Helvetica, Arial, sans-serif">'
    )
    return "\n".join([head, rect(0, 0, width, height, BACKGROUND), *body, "</svg>"]) + "\n"
