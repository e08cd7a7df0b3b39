"""docs/code-paths.md walks through the code: each walk is short, and each function and module of it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "code-paths.md").read_text()
WALKS: Final = ("One Pod event", "One agent start", "One fault")
STOPS_MAX: Final = 8
_NAMED: Final = re.compile(r"`([\w/]+\.py)`|`(\w+)`")


def stops(title: str) -> list[str]:
    """Return the numbered lines of a section."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d\. (.*)$", section, re.MULTILINE)


def functions(file: str) -> set[str]:
    """Return the functions and classes of a module."""
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_and_leads_through_functions_that_exist(title: str) -> None:
    """A walk is short, and each stop names a module and existing functions of it."""
    walk = stops(title)
    assert 0 < len(walk) <= STOPS_MAX
    file = ""
    for stop in walk:
        for module, name in _NAMED.findall(stop):
            if module:
                file = module
            elif name not in ("plan", "World"):  # a stop names another module than the stop before
                assert name in functions(file), f"{file} has no {name}: {stop}"


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
