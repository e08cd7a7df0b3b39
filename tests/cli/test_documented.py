"""docs/cli.md agrees with the program: exit codes and commands."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from inplace.cli.group.straggler import Why
from inplace.cli.refusal import CliExit
from inplace.common.jobset.headline import GroupPhase
from tests.cli.command import run_here

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_every_exit_code_is_in_the_table() -> None:
    """docs/cli.md lists exactly the program's exit codes."""
    table = PAGE.split("## Exit codes")[1]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [int(code) for code in CliExit]


def first_cells(table: str) -> list[str]:
    """Return the first cell of each row below the head of the first table of a text."""
    rows = itertools.takewhile(bool, table[table.index("\n|---|") :].split("\n")[2:])
    return [row.split(" | ")[0].removeprefix("| ").removesuffix(" |") for row in rows]


def test_every_phase_is_in_the_table() -> None:
    """docs/cli.md lists exactly the printed phases."""
    cells = first_cells(PAGE.partition("\n## status\n")[2])
    assert [phase for cell in cells for phase in cell.split(", ")] == [phase.value for phase in GroupPhase]


def test_every_command_is_in_the_table() -> None:
    """docs/cli.md lists exactly the commands of `--help`."""
    commands = re.findall(r"^  (\w+)  ", run_here("--help").stdout.split("Commands:")[1], re.MULTILINE)
    assert len(commands) == 11
    listed = {name for cell in first_cells(PAGE) for name in re.findall(r"`inplace (\w+)", cell)}
    assert listed == set(commands)


def test_every_reason_has_advice() -> None:
    """Every reason has advice: a command to run, or an event to wait for."""
    from inplace.cli.status.advice import ADVICE

    assert set(ADVICE) == set(Why)
    for text in ADVICE.values():
        text.format(pod="p", node="n", job="j", log="p -c c")
        assert ("machine" in text) == ("delete node" in text), "two workers of one slot must never run"
