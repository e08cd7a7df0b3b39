"""The glossary is in order, and names places that the code has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("agent", "cli", "common", "controller", "simulator")
ROWS: Final = re.findall(
    r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+) \|$", (ROOT / "docs" / "GLOSSARY.md").read_text(), re.MULTILINE
)


def test_each_word_stands_once_in_alphabetical_order() -> None:
    """Each word has one row, in alphabetical order."""
    words = [word.lower() for word, _, _ in ROWS]
    assert words == sorted(set(words))


def test_each_meaning_is_one_sentence() -> None:
    """Each meaning is one sentence, which ends with its only full stop."""
    assert [word for word, meaning, _ in ROWS if not re.fullmatch(r"(?:[^.]|\.(?! ))*\.", meaning)] == []


def test_each_place_is_in_the_code() -> None:
    """A path exists; any other name is a class or a function."""
    sources = [file.read_text() for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    defined = {
        name for text in sources for name in re.findall(r"^\s*(?:async )?(?:class|def) (\w+)", text, re.MULTILINE)
    }
    named = [name for _, _, place in ROWS for name in re.findall(r"`([^`]+)`", place)]
    assert len(named) >= len(ROWS)
    assert [name for name in named if name not in defined and not ("/" in name and (ROOT / name).exists())] == []
