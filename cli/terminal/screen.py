"""
Print the output of commands: tables for people, JSON or YAML for programs.

Colours and the live picture are for terminals only (rich checks; NO_COLOR is obeyed). A pipe gets whole lines, however
long, so that grep finds them.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from inplace.cli.terminal.visible import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Output = Literal["table", "json", "yaml"]
PIPE_COLUMNS = 200  # of a table that goes into a pipe; a terminal says how wide it is
COLUMNS_RANGE = range(20, 10_001)  # of $COLUMNS; another number is nobody's terminal


def show(*parts: RenderableType) -> None:
    """Print for people: wrapped to the terminal's width, or whole lines into a pipe."""
    screen = console()
    for part in parts:
        screen.print(part, soft_wrap=not screen.is_terminal)


def plain_table(*columns: str) -> Table:
    """Return a table without lines, whose long cells go on below."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def console() -> Console:
    """Return where people's output goes."""
    from inplace.cli.terminal.console import VisibleConsole

    asked = os.environ.get("COLUMNS", "")  # for terminals and pipes, where it is a usable number
    is_usable = asked.isascii() and asked.isdigit() and int(asked[:9]) in COLUMNS_RANGE
    width = int(asked) if is_usable else None if sys.stdout.isatty() else PIPE_COLUMNS
    others = {name: text for name, text in os.environ.items() if name != "COLUMNS"}  # rich takes any number
    return VisibleConsole(highlight=False, width=width, _environ=others)


def print_data(data: Any, output: Output) -> None:
    """Print output for programs."""
    if output == "json":
        print(json.dumps(data, indent=2))
        return
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if visible(text) != text:  # YAML has escapes between double quotes alone
        text = yaml.safe_dump(data, sort_keys=False)
    print(text, end="")
