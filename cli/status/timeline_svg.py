"""Draw a restart as SVG: some hundred rectangles, no script, the reader's own font. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

from inplace.cli.status.restart_timeline import STAGE_WORDS, RestartTimeline, Row, Stage
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.cli.terminal.visible import visible

ROWS_MAX: Final = 200  # more rows than that are thinner than a line of this picture
COLOURS: Final = {
    Stage.OLD: "#a8ddb5",
    Stage.DOWN: "#e34a33",
    Stage.BACK: "#fdbb84",
    Stage.BARRIER: "#9ebcda",
    Stage.RUNS: "#31a354",
}
WIDTH: Final = 960
LEFT: Final = 170  # for names
TOP: Final = 74  # for title and legend
BOTTOM: Final = 34  # for the axis
HEIGHT_MAX: Final = 700  # of all rows
ROW_MAX: Final = 18
NAMED_ROW_MIN: Final = 9  # thinner rows get no name
FONT: Final = 'font-family="sans-serif" font-size="11"'
TICKS: Final = 8
STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_NO_XML: Final = re.compile("[\ufffe\uffff]")  # with what `visible` escapes, all that XML cannot hold


def timeline_svg(timeline: RestartTimeline, title: str) -> str:
    """Return the picture as one SVG document."""
    row_height = min(ROW_MAX, HEIGHT_MAX / max(len(timeline.rows), 1))
    height = round(TOP + row_height * len(timeline.rows) + BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f"<title>{_words(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="bold">{_words(title)}</text>',
        *_legend(),
        *_axis(timeline, height),
    ]
    for number, row in enumerate(timeline.rows):
        parts += _row(timeline, row, TOP + number * row_height, row_height)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _words(text: str) -> str:
    """Return other people's text for XML; what XML cannot hold is visible."""
    return escape(_NO_XML.sub("\ufffd", visible(text)))


def _legend() -> Iterator[str]:
    x = 12
    for stage, words in STAGE_WORDS.items():
        yield f'<rect x="{x}" y="38" width="12" height="12" fill="{COLOURS[stage]}"/>'
        yield f'<text x="{x + 17}" y="48">{words}</text>'
        x += 40 + 6 * len(words)


def _axis(timeline: RestartTimeline, height: int) -> Iterator[str]:
    """Yield lines at round seconds, and where S was written."""
    span_s = timeline.until_s - timeline.began_s
    step_s = next((step for step in STEPS_S if span_s / step <= TICKS), STEPS_S[-1])
    for number in range(int(span_s // step_s) + 1):
        x = _x(timeline, timeline.began_s + number * step_s)
        yield f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - 22}" stroke="#dddddd"/>'
        yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{duration_text(number * step_s)}</text>'
    if timeline.synced_s is not None:
        x = _x(timeline, timeline.synced_s)
        ends = f'x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 22}"'
        yield f'<line {ends} stroke="#000000" stroke-dasharray="3 3"/>'
        yield f'<text x="{x:.1f}" y="{TOP - 11}" text-anchor="middle">synced</text>'


def _row(timeline: RestartTimeline, row: Row, y: float, height: float) -> Iterator[str]:
    bar = max(height - (2 if height >= NAMED_ROW_MIN else 0), 0.5)
    if height >= NAMED_ROW_MIN:
        name = row.name if len(row.name) <= 26 else f"…{row.name[-25:]}"  # what fits LEFT at this size
        yield f'<text x="{LEFT - 8}" y="{y + height - 5:.1f}" text-anchor="end">{_words(name)}</text>'
    starts = [timeline.began_s - _lead(timeline), *row.ends]
    yield "<g>"
    shared = "" if row.pods == 1 else f", the slowest of {count_text(row.pods, 'Pod')}"
    whole = ", ".join(STAGE_WORDS[stage] for stage in sorted(row.whole))
    ends = f"; ends in whole seconds, as Kubernetes keeps them: {whole}" if whole else ""
    yield f"<title>{_words(row.name)}{shared}{ends}</title>"
    for stage, start_s in zip(Stage, starts, strict=True):
        if start_s is None:
            break
        end_s = row.ends[stage] if stage < len(row.ends) else None
        x, to = _x(timeline, start_s), _x(timeline, timeline.until_s if end_s is None else end_s)
        if to > x:
            yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{to - x:.1f}" height="{bar:.1f}" fill="{COLOURS[stage]}"/>'
    yield "</g>"


def _lead(timeline: RestartTimeline) -> float:
    """Return how much is shown before the restart began."""
    return (timeline.until_s - timeline.began_s) * 0.05


def _x(timeline: RestartTimeline, at_s: float) -> float:
    """Return where a moment is, inside the picture."""
    first_s = timeline.began_s - _lead(timeline)
    share = (at_s - first_s) / (timeline.until_s - first_s)
    return LEFT + (WIDTH - LEFT - 16) * min(max(share, 0.0), 1.0)
