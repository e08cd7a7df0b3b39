"""The README's figures stand in docs/numbers.md, and the README is short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
NUMBERS: Final = (ROOT / "docs" / "numbers.md").read_text()
ROWS: Final = 3
LINES_MAX: Final = 90
WORDS_MAX: Final = 700
COMMAND: Final = "python -m benchmarks.node --upstream --pods 2"
AT_5000: Final = "inplace demo --runtime model --pods 5000"
_FIGURE: Final = re.compile(r"\d[\d.,]* s\b")


def rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose head begins so."""
    table = text.split(f"\n{head}", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


HOW_FAST: Final = rows(README, "| 2 Pods on a real node, one worker dies |")
OF_ONE_RUN: Final = [cells for cells in rows(NUMBERS, "| Pods on the node |") if cells[0] == "2"]


def test_the_readme_is_short() -> None:
    """A stranger reads all of it."""
    assert len(README.splitlines()) <= LINES_MAX
    assert len(README.split()) <= WORDS_MAX


def test_the_readme_has_one_table_of_figures_of_one_run() -> None:
    """Three rows; the last is upstream's, and the page of numbers has one command and one day for all of them."""
    assert len(HOW_FAST) == ROWS
    assert HOW_FAST[-1][0].startswith("upstream")
    assert f"medians of one run: `{COMMAND}`" in README
    assert [cells[4] for cells in OF_ONE_RUN] == [f"`{COMMAND}`", *["the same"] * (len(OF_ONE_RUN) - 1)]
    assert len({cells[5] for cells in OF_ONE_RUN}) == 1


@pytest.mark.parametrize("row", HOW_FAST, ids=lambda row: row[0])
def test_a_figure_of_the_readme_stands_on_the_page_of_numbers(row: list[str]) -> None:
    """Seconds and ratio of each of the README's rows are those of that run."""
    _, seconds, ratio = row
    upstream = HOW_FAST[-1][1]
    if seconds == upstream:
        assert ratio == "1x"
        assert all(upstream in cells[3] for cells in OF_ONE_RUN if "SIGKILL" not in cells[1])
        return
    found = [cells for cells in OF_ONE_RUN if cells[2].startswith(f"{seconds} ") and f"({ratio})" in cells[3]]
    assert found, f"expected {seconds} and {ratio} of upstream's {upstream} in one row of the page"


def figure_of_5000_pods() -> str:
    """Return the README's seconds of a restart of 5,000 Pods."""
    sentence = next(part for part in README.replace("\n", " ").split(". ") if "5,000 Pods restarts" in part)
    (figure,) = _FIGURE.findall(sentence)
    return str(figure)


def test_the_figure_of_5000_pods_stands_on_the_page_of_numbers() -> None:
    """With its command, which prints it (tests/cli/demo/test_comparison.py)."""
    assert f"(`{AT_5000}`)" in README
    (cells,) = [cells for cells in rows(NUMBERS, "| what | inplace |") if cells[3:4] == [f"`{AT_5000}`"]]
    assert cells[1] == figure_of_5000_pods()
