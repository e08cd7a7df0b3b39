"""docs/with-checkpoint-libraries.md: its lines of code are those of the scripts that tests/frameworks runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.common.wire import names as wire
from tests.frameworks.libraries.harness import OF

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "with-checkpoint-libraries.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
CODE = {title: re.findall(r"^ {8,}\S.*$", text, re.MULTILINE) for title, text in SECTIONS.items()}
WITH_CODE = [title for title, lines in CODE.items() if lines and "restartPolicy" not in SECTIONS[title]]


@pytest.mark.parametrize("title", WITH_CODE)
def test_each_line_of_code_is_one_of_a_script(title: str) -> None:
    """Of a script that the same section links, with the same words."""
    scripts = [ROOT / path for path in re.findall(r"\(\.\./(tests/\S+\.py)\)", SECTIONS[title])]
    lines = {line.strip() for script in scripts for line in script.read_text().splitlines()}
    missing = [line.strip() for line in CODE[title] if line.strip() not in lines]
    assert not missing, f"expected lines of {[script.name for script in scripts]}, saw {missing}"


def test_every_script_of_a_library_is_linked() -> None:
    """And every library that is run has a row in the table."""
    for name, library in [(name, one) for name, one in OF.items() if one.module]:  # else it is an example
        assert f"(../tests/frameworks/libraries/{library.module}.py)" in PAGE, name
        assert re.search(rf"^\| {name} \|( [0-9.]+ \|){{6}}$", PAGE, re.MULTILINE), name


def test_the_saver_beside_the_worker_is_the_tested_one() -> None:
    """A sidecar, with the lines of the module that the tests run there."""
    ((saver,),) = _blocks("DLRover flash checkpoint", "initContainers")
    assert saver["restartPolicy"] == "Always"
    module = (ROOT / "tests" / "frameworks" / "libraries" / "dlrover_saver.py").read_text()
    lines = {line.strip() for line in module.splitlines()}
    assert {line.strip() for line in saver["command"][2].splitlines()} <= lines


def test_the_annotation_of_replica_groups_is_one_of_ours() -> None:
    """With the value that the tests set."""
    (metadata,) = _blocks("torchft", "metadata")
    assert metadata == {"annotations": {wire.RESTART_SCOPE: "ReplicatedJob"}}


def _blocks(title: str, key: str) -> list[Any]:
    blocks = re.findall(r"(?:^ {4}.*\n)+", SECTIONS[title], re.MULTILINE)
    return [found[key] for found in map(yaml.safe_load, blocks) if key in found]
