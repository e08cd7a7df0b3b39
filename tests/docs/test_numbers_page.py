"""The README's figures and the recorded measurements stand in docs/numbers.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
NUMBERS: Final = (ROOT / "docs" / "numbers.md").read_text()
ROWS_MAX: Final = 5
_FIGURE: Final = re.compile(r"\d[\d.,]* (?:ms|s|us|MB)\b")


def rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose head begins so."""
    table = text.split(f"\n{head}", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


HOW_FAST: Final = rows(README, "| what | inplace | compared with | command |")


def test_the_readme_has_one_short_table_of_figures() -> None:
    """The README's table has at most five rows, each with a compared figure."""
    assert 0 < len(HOW_FAST) <= ROWS_MAX
    assert all(compared for _, _, compared, _ in HOW_FAST)


@pytest.mark.parametrize("row", HOW_FAST, ids=lambda row: row[0])
def test_a_figure_of_the_readme_stands_on_the_page_of_numbers(row: list[str]) -> None:
    """Each figure of the README, ours and the compared one, is on the page of numbers with its command."""
    _, ours, compared, command = row
    figures = _FIGURE.findall(ours) + _FIGURE.findall(compared)
    assert len(figures) > 1
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}", NUMBERS)] == []
    assert command.strip("`") in NUMBERS


@pytest.mark.parametrize(
    ("file", "name", "unit", "scale"),
    [
        ("node", "sidecar_s", "{:.1f}", 1),
        ("node", "supervisor_s", "{:.2f}", 1),
        ("supervisor", "supervisor_s", "{:.0f}", 1e3),
        ("controller", "controller.event_cpu_s", "{:.0f}", 1e6),
    ],
)
def test_a_recorded_measurement_stands_on_the_page_of_numbers(file: str, name: str, unit: str, scale: float) -> None:
    """A recorded measurement is on the page with its median, and its range in brackets."""
    recorded: dict[str, Any] = json.loads((ROOT / "simulator" / "recorded" / f"{file}.json").read_text())
    least, middle, most = (unit.format(figure * scale) for figure in recorded["measured"][name])
    assert re.search(rf"{re.escape(middle)} \w+ \({re.escape(least)} to {re.escape(most)}\)", NUMBERS)
