"""
Texts that are their own tests (after etcd's raft and datadriven): protocol scripts and stories.

A text is blocks. A block is an optional comment that states a claim, one command line or several, a line `----`, the
exact answer, and an empty line. The commands are the methods `do_...` of a vocabulary; each has an example.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

SEPARATOR: Final = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a text.

    Args:
        comment: the lines before the commands, `#` included.
        commands: at least one; a closing comment has none.
        output: the lines after the separator.
    """

    comment: tuple[str, ...]
    commands: tuple[str, ...]
    output: tuple[str, ...]

    def written(self, output: list[str]) -> str:
        """Return the block with this answer."""
        separator = [SEPARATOR] if self.commands else []
        return "\n".join([*self.comment, *self.commands, *separator, *output])


def parse(text: str) -> list[Block]:
    """Split a text into blocks.

    Raises:
        ValueError: a block has no separator, so that its output would go unchecked.
    """
    return [_block(paragraph) for paragraph in text.strip().split("\n\n")]


def joined(blocks: list[str]) -> str:
    """Return a text of its blocks."""
    return "\n\n".join(blocks) + "\n"


class Vocabulary:
    """The commands of a kind of text: a method `do_<command>` each."""

    def command(self, line: str) -> Callable[[], Any]:
        """Return what a command line calls: `name word option=value other="of several words"`."""
        name, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        method = getattr(self, "do_" + name.replace("-", "_"))
        return lambda: method(*(word for word in words if "=" not in word), **options)


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
