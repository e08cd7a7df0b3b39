"""
Check the source's shape beyond import-linter and ruff: no import circle, no module and no package is too long.

    python -m tests.source.shape

Every import counts, also one inside a function or under TYPE_CHECKING: a reader of one module of a circle has to read
all of them. The lines of each package have a budget in pyproject.toml: a feature makes room first. Raising one needs an
ADR that says what users get for it; who takes lines away lowers it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[2]
LINES_MAX: Final = 400  # a reader takes in one module in one sitting; tests, which are read one by one, may be longer
SLACK: Final = 300  # lines below a budget that nobody needs to write down


def main() -> int:
    """Print what is wrong with this repository's packages; return 1 when something is."""
    folders = sorted(file.parent.name for file in ROOT.glob("*/__init__.py"))
    linked = {link.name for link in (ROOT / "inplace").iterdir() if link.is_symlink()}
    files = [file for folder in (*folders, "docs") if folder != "tests" for file in (ROOT / folder).rglob("*.py")]
    budgets: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["inplace"]["lines"]
    problems = [*import_circle([folder for folder in folders if folder not in linked]), *too_long(files)]
    problems += over_budget(ROOT, budgets, folders)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def import_circle(packages: Sequence[str]) -> list[str]:
    """Name one circle between modules of these packages and the lines that make it; return [] for none."""
    first, *others = packages
    graph = grimp.build_graph(first, *others, cache_dir=None)
    circle = _circle({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    if not circle:
        return []
    found = [f"expected no import circle, saw {' -> '.join(circle)}; move what both ends need below them:"]
    for importer, imported in pairwise(circle):
        detail, *_ = graph.get_import_details(importer=importer, imported=imported)
        found.append(f"  {importer}, line {detail['line_number']}: {detail['line_contents']}")
    return found


def too_long(files: Iterable[Path]) -> list[str]:
    """Name each file of more lines than a module may have."""
    lines = {file: len(file.read_text().splitlines()) for file in sorted(files)}
    return [
        f"{file}: expected at most {LINES_MAX} lines, saw {count}; make a module of one of its ideas"
        for file, count in lines.items()
        if count > LINES_MAX
    ]


def over_budget(root: Path, budgets: Mapping[str, int], folders: Iterable[str]) -> list[str]:
    """Name each package that has more lines than its budget, has 300 fewer, or has no budget."""
    problems = []
    for folder in sorted({*budgets, *folders}):
        files = [file for file in (root / folder).rglob("*.py") if not _is_linked(file, root)]
        lines, most = sum(len(file.read_text().splitlines()) for file in files), budgets.get(folder)
        if most is None:
            problems.append(
                f"{folder}: expected a budget in pyproject.toml, [tool.inplace.lines]; it has {lines} lines"
            )
        elif lines > most:
            problems.append(f"{folder}: expected at most {most} lines, saw {lines}; make room, or raise it by an ADR")
        elif lines < most - SLACK:
            problems.append(f"{folder}: expected a budget that fits, saw {most} for {lines} lines; lower it")
    return problems


def _is_linked(file: Path, root: Path) -> bool:
    """Say whether a link leads to a file, as `inplace/agent` does: it counts where it stands."""
    return any(part.is_symlink() for part in file.parents if part.is_relative_to(root))


def _circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the modules of one circle, each before the one that it imports, the first one again at the end."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        backwards: list[str] = error.args[1]
        return backwards[::-1]
    return []


if __name__ == "__main__":
    sys.exit(main())
