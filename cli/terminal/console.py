"""A rich console that prints only its own styles as escape sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from inplace.cli.terminal.visible import raw_of, visible


class VisibleConsole(Console):
    """Print texts of strangers, see cli/terminal/visible.py."""

    @property
    def file(self) -> IO[str]:
        """Return the stream itself, also below the one that a live picture puts before standard output."""
        return raw_of(super().file)

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield segments, each text among them visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
