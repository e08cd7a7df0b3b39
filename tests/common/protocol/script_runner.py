"""
Read and run protocol scripts: transcripts that are their own tests (after etcd's raft and datadriven).

A script is blocks. A block is an optional comment that states a claim, one command line or several, a line
`----`, the exact output, and an empty line. The commands are the methods `do_...` of `ScriptWorld`; each has
an example.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.common.protocol.script_world import ScriptWorld

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"
SEPARATOR: Final = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a script.

    Args:
        comment: the lines before the commands, `#` included.
        commands: at least one; a closing comment has none.
        output: the lines after the separator.
    """

    comment: tuple[str, ...]
    commands: tuple[str, ...]
    output: tuple[str, ...]


def scripts() -> list[Path]:
    """Return every script, sorted by name."""
    return sorted(SCRIPTS.glob("*.txt"))


def parse(text: str) -> list[Block]:
    """Split a script into blocks.

    Raises:
        ValueError: a block has no separator, so that its output would go unchecked.
    """
    return [_block(paragraph) for paragraph in text.strip().split("\n\n")]


def run(text: str) -> str:
    """Run a script and return it with production code's output."""
    world = ScriptWorld()
    blocks = []
    for block in parse(text):
        output = [line for command in block.commands for line in world.run(command)]
        separator = [SEPARATOR] if block.commands else []
        blocks.append("\n".join([*block.comment, *block.commands, *separator, *output]))
    return "\n\n".join(blocks) + "\n"


def _block(paragraph: str) -> Block:
    lines = paragraph.split("\n")
    comment = tuple(line for line in lines if line.startswith("#"))
    rest = lines[len(comment) :]
    if not rest:
        return Block(comment, (), ())
    if SEPARATOR not in rest:
        raise ValueError(f"expected commands, {SEPARATOR!r} and output, saw {paragraph!r}")
    at = rest.index(SEPARATOR)
    return Block(comment, tuple(rest[:at]), tuple(rest[at + 1 :]))
