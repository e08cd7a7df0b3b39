"""Each function and module exists that docs/code-paths.md walks through, and that docs/a-day-in-this-code.md names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "code-paths.md").read_text()
DAY: Final = (ROOT / "docs" / "a-day-in-this-code.md").read_text()
WALKS: Final = ("One Pod event", "One agent start", "A death told by the guard", "One fault")
STOPS_MAX: Final = 8
_NAMED: Final = re.compile(r"`([\w/]+\.py)`|`(\w+)`")


def stops(title: str) -> list[str]:
    """Return the numbered lines of a section."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d\. (.*)$", section, re.MULTILINE)


def names(file: str) -> set[str]:
    """Return the functions, classes and constants of a module."""
    defined = r"^\s*(?:async )?(?:class|def) (\w+)|^(\w+)(?:: Final.*)? = "
    return {name for found in re.findall(defined, (ROOT / file).read_text(), re.MULTILINE) for name in found}


def unknown(text: str) -> list[str]:
    """Return the names that are not of the module that stands before them."""
    file, wrong = "", []
    for module, name in _NAMED.findall(text):
        file = module or file
        if file and name and name not in names(file):
            wrong.append(f"{file} {name}")
    return wrong


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_and_leads_through_functions_that_exist(title: str) -> None:
    """A walk is short, and each stop names a module and existing functions of it."""
    walk = stops(title)
    assert 0 < len(walk) <= STOPS_MAX
    wrong = unknown("\n".join(walk))
    assert [one for one in wrong if not one.endswith((" plan", " World"))] == []  # of modules that other stops name


def test_a_day_leads_through_names_that_exist() -> None:
    """In an item, a cell or a paragraph each name behind a module is of that module."""
    parts = re.split(r"\n(?=\d\. |\* |\| |\n)| \| ", DAY)
    assert [wrong for part in parts for wrong in unknown(part)] == []


FOLDERS: Final = {"": "controller/plan", "s": "common/jobset", "t": "controller/tracking"}
ROWS: Final = re.findall(r"^\| (?!what |---)(.+?) \| (.+) \|$", PAGE.partition("\n## One pass")[2], re.MULTILINE)


@pytest.mark.parametrize(("feature", "modules"), ROWS, ids=[feature[:30] for feature, _ in ROWS])
def test_a_feature_names_modules_that_exist(feature: str, modules: str) -> None:
    """Each name in a row is a module of `controller/plan`, or of the folder that its letter stands for."""
    named = 0
    for part in modules.split("; "):
        letter, mark, rest = part.partition(": ")
        folder = FOLDERS[letter if mark else ""]
        for name in re.findall(r"`(\w+)/?`", rest if mark else part):
            named += 1
            assert any((ROOT / folder).glob(f"{name}*")), f"{feature}: {folder} has no {name}"
    assert named
