"""Ask before a manifest's commands run on this machine: the demo's containers are plain processes of its user."""

from __future__ import annotations

import sys
from pathlib import Path

from inplace.cli.demo.adaptation import DemoError
from inplace.cli.demo.group import note
from inplace.cli.demo.manifest import EXAMPLE
from inplace.cli.manifests.documents import STANDARD_INPUT


def ask(file: Path | None, *, yes: bool) -> None:
    """Say what will run here, and ask; a file of ours and `yes` need no answer.

    Raises:
        DemoError: the answer was no, or there is nobody to ask.
    """
    if file is None:
        return
    note(f"the commands of {file} run on this machine, as your processes, in no container")
    if yes or _is_ours(file):
        return
    instead = "; --runtime model runs none of them"
    if str(file) == STANDARD_INPUT or not sys.stdin.isatty():
        raise DemoError(f"expected --yes, for there is no terminal to ask on{instead}")
    print("inplace demo: run them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DemoError(f"expected yes, saw another answer; nothing was started{instead}")


def _is_ours(file: Path) -> bool:
    """Say whether a file lies in the folder of the examples that come with inplace."""
    return str(file) != STANDARD_INPUT and file.resolve().parent == EXAMPLE.parent.resolve()
