"""Every decision that a file cites exists, and code cites only what holds today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.docs.decisions_page import HISTORY, PAGE, decisions
from tests.docs.test_paths import FOLDERS, ROOT

PRODUCT: Final = ("agent", "cli", "common", "controller", "deploy", "inplace", "simulator")
SUFFIXES: Final = frozenset((".go", ".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"))
PLANTED: Final = ("test_citations.py", "test_paths.py")  # their cases cite what does not exist
FILES: Final = sorted(
    path
    for path in (*ROOT.glob("*"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*")))
    if path.suffix in SUFFIXES and path.is_file() and HISTORY not in path.parents and path.name not in PLANTED
)
_PATH: Final = re.compile(r"\badr/(history/)?(\d{4})(-[\w-]+\.md)?")
_NUMBER: Final = re.compile(r"\bADR (\d+)\b(?!\]\([\w./]*history/)")
_LINK: Final = re.compile(r"\[ADR (\d+)\]\([\w./]*?(\d{4})-")


def wrong(text: str, *, is_code: bool) -> Iterator[str]:
    """Yield each citation that leads nowhere; in code also each that leads to the history."""
    for found in _PATH.finditer(text):
        past, number, rest = found.groups()
        folder = HISTORY if past else PAGE.parent
        if (past and is_code) or not any(folder.glob(f"{number}{rest or '-*'}")):
            yield found[0]
    live = {int(file.name[:4]) for file in decisions(PAGE.parent)}
    yield from (found[0] for found in _NUMBER.finditer(text) if int(found[1]) not in live)
    yield from (found[0] for found in _LINK.finditer(text) if int(found[1]) != int(found[2]))


def test_each_citation_leads_to_its_decision() -> None:
    """Each number, path and link that a file of the repository cites is a decision's; code cites no past one."""
    assert len(FILES) > 1000
    found = {
        str(file.relative_to(ROOT)): list(
            wrong(file.read_text(), is_code=file.suffix == ".py" and file.relative_to(ROOT).parts[0] in PRODUCT)
        )
        for file in FILES
    }
    assert {file: citations for file, citations in found.items() if citations} == {}


@pytest.mark.parametrize(
    ("text", "pages", "code"),
    [
        ("see docs/adr/9999.", ["adr/9999"], ["adr/9999"]),
        ("docs/adr/0007-another-name.md", ["adr/0007-another-name.md"], ["adr/0007-another-name.md"]),
        ("(ADR 46)", ["ADR 46"], ["ADR 46"]),
        ("[ADR 7](adr/0006-what-blocks-a-sync.md)", ["[ADR 7](adr/0006-"], ["[ADR 7](adr/0006-"]),
        ("docs/adr/history/0046", [], ["adr/history/0046"]),
        ("[ADR 46](adr/history/0046-watches-in-gulps.md)", [], ["adr/history/0046-watches-in-gulps.md"]),
        ("docs/adr/0007, [ADR 6](../adr/0006-what-blocks-a-sync.md), ADR 6", [], []),
    ],
)
def test_a_wrong_citation_is_seen(text: str, pages: list[str], code: list[str]) -> None:
    """Absent decisions, wrong names and numbers are found everywhere, and past decisions in code."""
    assert list(wrong(text, is_code=False)) == pages
    assert list(wrong(text, is_code=True)) == code


def test_a_past_decision_names_the_present_one() -> None:
    """Each page of the history says below its title which decision holds now; no number is used twice."""
    for file in decisions(HISTORY):
        now = re.match(r"# .*\n\nNow in \[ADR (\d+)\]\(\.\./(\d{4})-[\w-]+\.md\)\.\n", file.read_text())
        assert now, file.name
        assert int(now[1]) == int(now[2]), file.name
    numbers = [file.name[:4] for folder in (PAGE.parent, HISTORY) for file in decisions(folder)]
    assert len(numbers) == len(set(numbers))
