"""Tests of the check of the source's shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.shape import LINES_MAX, SLACK, import_circle, main, over_budget, too_long

WAYS_TO_IMPORT = {
    "at the top": "from {package}.b import word",
    "inside a function": "def later():\n    from {package} import b",
    "under TYPE_CHECKING": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {package}.b",
}


def planted(folder: Path, package: str, modules: dict[str, str]) -> None:
    """Write a package of these modules."""
    (folder / package).mkdir()
    for name, text in ({"__init__": ""} | modules).items():
        (folder / package / f"{name}.py").write_text(text.format(package=package))


def test_nothing_is_wrong_here() -> None:
    """The repository passes its own check."""
    assert main() == 0


@pytest.mark.parametrize("number", range(len(WAYS_TO_IMPORT)), ids=[*WAYS_TO_IMPORT])
def test_a_circle_of_three_modules_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A circle of three modules is found with any form of import, and all its imports are named."""
    package = f"planted_circle_{number}"
    one_way = [*WAYS_TO_IMPORT.values()][number]
    circle = {"a": one_way, "b": "from {package} import c", "c": "import {package}.a", "d": "from {package} import a"}
    planted(tmp_path, package, circle)
    monkeypatch.syspath_prepend(tmp_path)
    said = import_circle([package])
    for importer in "abc":
        assert any(line.startswith(f"  {package}.{importer}, line ") for line in said), said
    assert not any(f"{package}.d" in line for line in said), "d only imports the circle"


def test_imports_one_way_are_no_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways from one module to another are no circle."""
    modules = {"a": "from {package} import b, c", "b": "from {package} import c", "c": ""}
    planted(tmp_path, "planted_ways", modules)
    monkeypatch.syspath_prepend(tmp_path)
    assert import_circle(["planted_ways"]) == []


def test_a_module_may_have_so_many_lines(tmp_path: Path) -> None:
    """A module at the bound passes; one line more, and it is named with its length."""
    longest, longer = tmp_path / "longest.py", tmp_path / "longer.py"
    longest.write_text("#\n" * LINES_MAX)
    longer.write_text("#\n" * (LINES_MAX + 1))
    (problem,) = too_long((longest, longer))
    assert str(longer) in problem
    assert str(LINES_MAX + 1) in problem


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (99, "expected at most 99 lines, saw 100; make room, or raise it by an ADR"),
        (100, ""),
        (100 + SLACK, ""),
        (101 + SLACK, "lower it"),
        (None, "expected a budget in pyproject.toml"),
    ],
)
def test_a_package_has_a_budget_of_lines(tmp_path: Path, budget: int | None, words: str) -> None:
    """At the budget it passes, beyond it or far below it does not; linked files count where they stand."""
    planted(tmp_path, "package", {"a": "#\n" * 60, "b": "#\n" * 40})
    planted(tmp_path, "other", {"a": "#\n" * 70})
    (tmp_path / "package" / "linked").symlink_to(tmp_path / "other")
    budgets = {"other": 70} | ({} if budget is None else {"package": budget})
    problems = over_budget(tmp_path, budgets, ["package", "other"])
    assert [words in problem for problem in problems] == ([True] if words else [])
