"""The workflows of the repository's host call our own programs, and no action that could change under them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from release.changelog import REPOSITORY

WORKFLOWS: Final = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
PINNED: Final = re.compile(r"actions/checkout@[0-9a-f]{40}")
RUNS: Final = re.compile(r"(?:\bmake(?P<targets>(?: [a-z-]+)+)|(?P<program>\.ci/run))")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_is_thin(file: Path) -> None:
    """It uses the checkout alone, by its digest; may write only to publish; and calls what there is."""
    found = yaml.safe_load(file.read_text())
    assert found["permissions"] == {"contents": "write" if file.name == "release.yml" else "read"}
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for job in found["jobs"].values():
        for step in job["steps"]:
            assert PINNED.fullmatch(step.get("uses", f"actions/checkout@{'0' * 40}"))
            for call in RUNS.finditer(step.get("run", "")):
                assert set((call["targets"] or "").split()) <= targets
                assert (REPOSITORY / (call["program"] or "Makefile")).exists()


def test_ci_is_one_program() -> None:
    """What runs for a change is .ci/run, and nothing beside it."""
    (job,) = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    (run,) = (step["run"] for step in job["steps"] if "run" in step)
    assert run.endswith(".ci/run")
