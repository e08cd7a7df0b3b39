"""Run protocol scripts: `tests/scripts`, in the words of `ScriptWorld`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.common.protocol.script_world import ScriptWorld
from tests.transcript import joined, parse

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"


def scripts() -> list[Path]:
    """Return every script, sorted by name."""
    return sorted(SCRIPTS.glob("*.txt"))


def run(text: str) -> str:
    """Run a script and return it with production code's output."""
    world = ScriptWorld()
    return joined(
        [block.written([line for command in block.commands for line in world.run(command)]) for block in parse(text)]
    )
