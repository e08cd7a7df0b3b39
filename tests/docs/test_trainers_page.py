"""docs/with-trainers.md shows the lines that the tests run."""

from __future__ import annotations

import re

import pytest

from tests.source.shape import ROOT

PAGE = (ROOT / "docs" / "with-trainers.md").read_text()
RANK = (ROOT / "testbed" / "frameworks" / "trainer_ranks.py").read_text()
OURS = re.compile(r"InPlaceCallback\([^)]*\)|resume_from\(\w+\)|Saves\([^)]*\)|saves\.\w+\([^)]*\)|from inplace\..*")


@pytest.mark.parametrize("trainer", ["Hugging Face Trainer", "Lightning", "Accelerate"])
def test_the_lines_of_a_trainer_are_those_of_a_rank(trainer: str) -> None:
    """Each call of ours on the page is made in the rank of testbed, with its own numbers."""
    section = PAGE.partition(f"## {trainer}\n")[2].partition("\n## ")[0]
    block = "\n".join(line.strip() for line in section.splitlines() if line.startswith("    "))
    calls = OURS.findall(block.replace("=100", "=SHARED_EVERY").replace("=10", "=MEMORY_EVERY"))
    assert len(calls) >= 3
    assert [call for call in calls if call not in RANK] == []
