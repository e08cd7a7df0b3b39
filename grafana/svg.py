"""
Draw with elements of SVG, as text: every picture of this project is made of them. Pure.

A picture has no script, fetches nothing, and takes the reader's own font. Words may be other people's. Attributes are
ours and are not escaped: an underscore in a name stands for a hyphen, and a float is written with one decimal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from inplace.cli.terminal.visible import visible

_NO_XML: Final = re.compile("[\ufffe\uffff]")  # with what `visible` escapes, all that XML cannot hold


def document(width: float, height: float, elements: Iterable[str], **style: str | float) -> str:
    """Return a whole file; its elements inherit the style."""
    box = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}{_written(style)}>'
    return "\n".join([head, *elements, "</svg>"]) + "\n"


def element(name: str, words: str | None = None, /, **attributes: str | float) -> str:
    """Return one element, with words in it or empty."""
    head = f"<{name}{_written(attributes)}"
    if words is None:
        return f"{head}/>"
    shown = _NO_XML.sub("\ufffd", visible(words))
    return f"{head}>{escape(shown)}</{name}>"


def text(x: float, y: float, words: str, **style: str | float) -> str:
    """Return a line of text whose baseline is at y."""
    return element("text", words, x=x, y=y, **style)


def rect(x: float, y: float, width: float, height: float, fill: str, **style: str | float) -> str:
    """Return a filled rectangle."""
    return element("rect", x=x, y=y, width=width, height=height, fill=fill, **style)


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, **style: str | float) -> str:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **style)


def polyline(points: Iterable[tuple[float, float]], stroke: str, stroke_width: str, **style: str | float) -> str:
    """Return a line through points."""
    return element(
        "polyline", points=coordinates(points), fill="none", stroke=stroke, stroke_width=stroke_width, **style
    )


def coordinates(points: Iterable[tuple[float, float]]) -> str:
    """Return points as an attribute holds them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _written(attributes: dict[str, str | float]) -> str:
    written = ((name.replace("_", "-"), value) for name, value in attributes.items())
    return "".join(
        f' {name}="{value:.1f}"' if isinstance(value, float) else f' {name}="{value}"' for name, value in written
    )
