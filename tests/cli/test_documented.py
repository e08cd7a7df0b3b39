"""docs/cli.md agrees with the program: exit codes, commands, and the example of `inplace cost`."""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path

import pytest

from inplace.cli.cost import Fleet, cost_data
from inplace.cli.group.state import GroupPhase
from inplace.cli.group.straggler import Why
from inplace.cli.refusal import CliExit
from tests.cli.command import run_here

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SEED = Fleet(nodes=10_000, price=16.8, failures=12, days=30)  # "Financial impact of restarts", the founding design


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
    """docs/cli.md lists exactly the commands of `--help`, apart from version."""
    commands = re.findall(r"^  (\w+)  ", run_here("--help").stdout.split("Commands:")[1], re.MULTILINE)
    assert len(commands) == 14
    listed = {name for cell in first_cells(PAGE) for name in re.findall(r"`inplace (\w+)", cell)}
    assert listed | {"version"} == set(commands)


def test_the_calculator_s_example() -> None:
    """The page's example of `inplace cost` is the command's output."""
    words = "cost --nodes 10000 --price 16.8 --failures-per-day 12"
    assert textwrap.indent(f"$ inplace {words}\n{run_here(*words.split()).stdout}", " " * 4) in PAGE


def test_a_minute_costs_what_the_founding_design_says() -> None:
    """10,000 nodes at 16.8 an hour, 12 failures a day, 30 days, one minute each: about a million."""
    assert SEED.cost(60) == pytest.approx(1_008_000)
    data = cost_data(SEED, 130, 10)
    assert data["saved"] == pytest.approx(data["recreate"]["cost"] - data["inPlace"]["cost"])
    assert Fleet(1, 1.0, 1_000_000.0, 30).idle_share(10) == 1.0


def test_every_reason_has_advice() -> None:
    """Every reason has advice: a command to run, or an event to wait for."""
    from inplace.cli.status.advice import ADVICE

    assert set(ADVICE) == set(Why)
    for text in ADVICE.values():
        text.format(pod="p", node="n", job="j", log="p -c c")
        assert ("machine" in text) == ("delete node" in text), "two workers of one slot must never run"
