"""The pages of compatibility: every row has tests, every test exists, and every difference has a reason."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.stories.story import SERVED

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DIFFERENT: Final = (DOCS / "differences.md").read_text()
PAGE: Final = "\n".join(((DOCS / "compatibility.md").read_text(), (DOCS / "behaviour.md").read_text(), DIFFERENT))
LINK: Final = re.compile(r"\[`(test_[^`]+)`\]\(\.\./(tests/cluster/[\w/]+\.py)\)")

STORIES: Final = re.compile(r"\]\(\.\./tests/stories/(\w+)\.txt\)")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of each row of each table, without the heads."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and cells[-1] != "Tests":
            yield cells


def node_ids(cell: str) -> list[str]:
    """Return the node ids that a cell links to."""
    played = ["tests/cluster/features/test_stories.py::test_story"] if STORIES.search(cell) else []
    return [f"{path}::{name}" for name, path in LINK.findall(cell)] + played


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """Return the node ids of the tests on a real cluster, and each without its parameters."""
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/cluster")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    ids = {line for line in done.stdout.splitlines() if "::" in line}
    assert ids, done.stdout + done.stderr
    return ids | {name.partition("[")[0] for name in ids}


def test_every_row_has_a_test() -> None:
    """Every row of the pages links to a test."""
    found = list(rows(PAGE))
    assert len(found) > 100
    assert [cells for cells in found if not node_ids(cells[-1])] == []


@pytest.mark.slow
def test_every_test_exists(collected: set[str]) -> None:
    """Every linked test exists."""
    named = {name for cells in rows(PAGE) for name in node_ids(cells[-1])}
    assert named - collected == set()


def test_the_stories_are_played_on_a_real_server() -> None:
    """Each family that a page links to."""
    assert set(STORIES.findall(PAGE)) <= set(SERVED)


def test_every_feature_test_is_named() -> None:
    """Each file of the feature tests has a row, so that the pages grow with them."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/cluster/features").glob("test_*.py")}
    files.discard("tests/cluster/features/test_stories.py")  # its families are named
    assert files - set(re.findall(r"\(\.\./(tests/[\w/]+\.py)\)", PAGE)) == set()


def test_every_difference_has_a_reason() -> None:
    """Every difference names an ADR; test_citations.py looks whether it exists."""
    assert [why for _, _, why, _ in rows(DIFFERENT) if not re.search(r"\[ADR \d+\]\(adr/", why)] == []
