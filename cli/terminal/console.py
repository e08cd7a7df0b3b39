"""A rich console that prints only its own styles as escape sequences."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from inplace.cli.terminal.visible import visible


class VisibleConsole(Console):
    """Print texts of strangers, see cli/terminal/visible.py."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield segments, each text among them visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
