"""
Put screens of a terminal together into one SVG that plays them, one after the other, for ever.

The screens stand below each other, and a window of one screen's height moves over them in steps. A viewer that does not
animate, or whose user wants less motion, shows the last screen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

LINE_HEIGHT: Final = 24.4  # of rich's SVG, in its own unit, as all below
FRAME_HEIGHT: Final = 48  # of the window around the screen
MARGIN: Final = 2
NAME: Final = "film"  # every film is a file of its own
_FORMAT: Final = """\
<svg class="rich-terminal" viewBox="0 0 {{width}} {height:g}" xmlns="http://www.w3.org/2000/svg">
<!-- Made by docs/pictures.py with Rich, https://www.textualize.io -->
<style>
.{{unique_id}}-matrix {{{{ font-family: monospace; font-size: {{char_height}}px; line-height: {{line_height}}px; }}}}
.{{unique_id}}-title {{{{ font: bold 18px arial; }}}}
{{styles}}
.strip {{{{ transform: translateY({last:g}px); }}}}
@media (prefers-reduced-motion: no-preference) {{{{
.strip {{{{ animation: play {seconds:g}s step-end infinite; }}}}
}}}}
@keyframes play {{{{
{keyframes}
}}}}
</style>
<defs>
<clipPath id="screen"><rect width="{{terminal_width}}" height="{screen:g}"/></clipPath>
</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#screen)">
<g class="strip">{{backgrounds}}<g class="{{unique_id}}-matrix">{{matrix}}</g></g>
</g>
</svg>
"""


@dataclass(frozen=True, slots=True)
class Shot:
    """One screen.

    Args:
        screen: what the terminal shows, with its colours as escape sequences.
        shown_s: for how long, in the film's own time.
    """

    screen: str
    shown_s: float


def film(shots: Sequence[Shot], title: str, columns: int, lines: int) -> str:
    """Return the SVG; the reader's own fonts, nothing is fetched."""
    console = Console(record=True, width=columns, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - never written to
    for shot in shots:
        rows = shot.screen.splitlines()[:lines]
        console.print(Text.from_ansi("\n".join([*rows, *[""] * (lines - len(rows))])))
    screen = lines * LINE_HEIGHT
    form = _FORMAT.format(
        height=screen + FRAME_HEIGHT + MARGIN,
        screen=screen,
        last=-(len(shots) - 1) * screen,
        seconds=sum(shot.shown_s for shot in shots),
        keyframes="\n".join(_keyframes(shots, screen)),
    )
    text = console.export_svg(title=title, code_format=form, unique_id=NAME)
    text = re.sub(rf' clip-path="url\(#{NAME}-line-\d+\)"', "", text)  # the lines need none of their own
    # The window is as high as one screen, not as all of them.
    return re.sub(r'(y="1" width="\d+" height=")[\d.]+', rf"\g<1>{screen + FRAME_HEIGHT:g}", text)


def _keyframes(shots: Sequence[Shot], screen: float) -> Iterator[str]:
    seconds, at_s = sum(shot.shown_s for shot in shots), 0.0
    for number, shot in enumerate(shots):
        yield f"{at_s / seconds:.2%} {{{{ transform: translateY({-number * screen:g}px); }}}}"
        at_s += shot.shown_s
    yield f"100% {{{{ transform: translateY({-(len(shots) - 1) * screen:g}px); }}}}"
