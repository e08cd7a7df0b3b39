"""Draw a restart as SVG: some hundred rectangles, no script, the reader's own font. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.cli import svg
from inplace.cli.status.restart_timeline import STAGE_WORDS, RestartTimeline, Row, Stage
from inplace.cli.terminal.moments import count_text, duration_text

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
ROW_MAX: Final = 18.0
NAMED_ROW_MIN: Final = 9  # thinner rows get no name
TICKS: Final = 8
STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200)


def timeline_svg(timeline: RestartTimeline, title: str) -> str:
    """Return the picture as one SVG document."""
    row_height = min(ROW_MAX, HEIGHT_MAX / max(len(timeline.rows), 1))
    height = round(TOP + row_height * len(timeline.rows) + BOTTOM)
    parts = [
        svg.element("title", title),
        svg.element("rect", width=WIDTH, height=height, fill="#ffffff"),
        svg.text(12, 22, title, font_size=15, font_weight="bold"),
        *_legend(),
        *_axis(timeline, height),
    ]
    for number, row in enumerate(timeline.rows):
        parts += _row(timeline, row, TOP + number * row_height, row_height)
    return svg.document(WIDTH, height, parts, font_family="sans-serif", font_size=11)


def _legend() -> Iterator[str]:
    x = 12
    for stage, words in STAGE_WORDS.items():
        yield svg.rect(x, 38, 12, 12, COLOURS[stage])
        yield svg.text(x + 17, 48, words)
        x += 40 + 6 * len(words)


def _axis(timeline: RestartTimeline, height: int) -> Iterator[str]:
    """Yield lines at round seconds, and where S was written."""
    span_s = timeline.until_s - timeline.began_s
    step_s = next((step for step in STEPS_S if span_s / step <= TICKS), STEPS_S[-1])
    for number in range(int(span_s // step_s) + 1):
        x = _x(timeline, timeline.began_s + number * step_s)
        yield svg.line(x, TOP - 4, x, height - 22, "#dddddd")
        yield svg.text(x, height - 8, duration_text(number * step_s), text_anchor="middle")
    if timeline.synced_s is not None:
        x = _x(timeline, timeline.synced_s)
        yield svg.line(x, TOP - 8, x, height - 22, "#000000", stroke_dasharray="3 3")
        yield svg.text(x, TOP - 11, "synced", text_anchor="middle")


def _row(timeline: RestartTimeline, row: Row, y: float, height: float) -> Iterator[str]:
    bar = max(height - (2 if height >= NAMED_ROW_MIN else 0), 0.5)
    if height >= NAMED_ROW_MIN:
        name = row.name if len(row.name) <= 26 else f"…{row.name[-25:]}"  # what fits LEFT at this size
        yield svg.text(LEFT - 8, y + height - 5, name, text_anchor="end")
    starts = [timeline.began_s - _lead(timeline), *row.ends]
    yield "<g>"
    shared = "" if row.pods == 1 else f", the slowest of {count_text(row.pods, 'Pod')}"
    whole = ", ".join(STAGE_WORDS[stage] for stage in sorted(row.whole))
    ends = f"; ends in whole seconds, as Kubernetes keeps them: {whole}" if whole else ""
    yield svg.element("title", f"{row.name}{shared}{ends}")
    for stage, start_s in zip(Stage, starts, strict=True):
        if start_s is None:
            break
        end_s = row.ends[stage] if stage < len(row.ends) else None
        x, to = _x(timeline, start_s), _x(timeline, timeline.until_s if end_s is None else end_s)
        if to > x:
            yield svg.rect(x, y, to - x, bar, COLOURS[stage])
    yield "</g>"


def _lead(timeline: RestartTimeline) -> float:
    """Return how much is shown before the restart began."""
    return (timeline.until_s - timeline.began_s) * 0.05


def _x(timeline: RestartTimeline, at_s: float) -> float:
    """Return where a moment is, inside the picture."""
    first_s = timeline.began_s - _lead(timeline)
    share = (at_s - first_s) / (timeline.until_s - first_s)
    return LEFT + (WIDTH - LEFT - 16) * min(max(share, 0.0), 1.0)
