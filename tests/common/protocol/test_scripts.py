"""Every protocol script prints its expected output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.common.protocol.script_runner import run, scripts
from tests.transcript import parse


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    """Production agents and ledgers give exactly the transcript's output; see `make rewrite`."""
    text = path.read_text()

    assert run(text) == text


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script_makes_a_claim(path: Path) -> None:
    """A script opens with the sentence that it proves."""
    first = parse(path.read_text())[0].comment[0]

    assert first.endswith(".")


def test_a_wrong_output_is_noticed() -> None:
    """A transcript that differs in one character does not pass."""
    wrong = "# The first epoch is 1.\nstart 0\n----\npod 0: Announce 2\n"

    assert run(wrong) == "# The first epoch is 1.\nstart 0\n----\npod 0: Announce 1\n"


def test_a_block_without_separator_is_refused() -> None:
    """Commands without an expected output are an error."""
    with pytest.raises(ValueError, match="expected commands, '----' and output"):
        parse("# claim\nstart 0\n")
