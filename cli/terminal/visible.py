"""
Print other people's texts so that no terminal obeys them.

Container messages, Events, names and manifests may contain characters that clear a screen, set a title, fill the
clipboard or reverse text. Everything that `inplace` prints, also errors and tracebacks, passes `VisibleText`, which
`cli.main` puts before both standard streams, or `VisibleConsole` (cli/terminal/console.py), whose own colours are
allowed. Both escape the same characters with `visible`, on terminals and in pipes.
"""

from __future__ import annotations

import os
import re
import sys
from io import TextIOWrapper
from typing import IO, Any, Final, TextIO, cast

# C0 without tab and newline; DEL and C1; bidi marks, embeddings, overrides and isolates; line separators; surrogates.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return the text with every control as `\u001b`, which a string in JSON may hold and means the same in."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return the words of a text on one line: no stranger's line looks like one of ours."""
    return " ".join(text.split())


class VisibleText:
    """A stream that writes what is visible; everything else is the stream's own.

    Attributes:
        raw: the stream.
    """

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw
        self.rich_proxied_file = raw  # rich looks for this name, and writes there what its console made visible

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        self.raw.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return what the stream has."""
        return getattr(self.raw, name)


def raw_of(stream: IO[str]) -> IO[str]:
    """Return the stream itself, for what was made visible before and for what only programs read."""
    return stream.raw if isinstance(stream, VisibleText) else stream


def guard_streams() -> None:
    """Let both standard streams escape control characters, and those that their encoding does not have.

    A stream that was closed before the start (`inplace status >&-`) takes everything and keeps nothing.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 - as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for raw in (raw_of(sys.stdout), raw_of(sys.stderr)):
        if isinstance(raw, TextIOWrapper):
            raw.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", VisibleText(raw_of(sys.stdout)))
    sys.stderr = cast("TextIO", VisibleText(raw_of(sys.stderr)))
