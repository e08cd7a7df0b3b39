"""Every path and module that a page names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
HIDDEN_OR_MADE: Final = ("build", "dist")  # besides names that begin with a dot
FOLDERS: Final = sorted(
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in HIDDEN_OR_MADE
)
PAGES: Final = sorted(  # without past decisions, which name the paths of their time
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *(page for name in FOLDERS for page in (ROOT / name).glob("*.md"))}
    - {*ROOT.glob("docs/adr/history/*.md")}
)
_PATH: Final = re.compile(rf"(?<![\w/.:*{{<@$-])(?:{'|'.join(FOLDERS)})/[\w.*/-]*[\w*]")
_MODULE: Final = re.compile(rf"-m ((?:{'|'.join(FOLDERS)})(?:\.\w+)*)")
_DECISION: Final = re.compile(r"docs/adr/(?:history/)?\d{4}")


def missing(text: str, here: Path) -> Iterator[str]:
    """Yield each path (from the root, or from the page's folder) and each module to run that does not exist."""
    for path in _PATH.findall(text):
        pattern = f"{path}-*" if _DECISION.fullmatch(path) else path
        if not any(ROOT.glob(pattern)) and not any(here.glob(pattern)):
            yield path
    for module in _MODULE.findall(text):
        file = ROOT / module.replace(".", "/")
        if not file.with_suffix(".py").is_file() and not (file / "__main__.py").is_file():
            yield module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    """Each path and module in a page's text, links and commands exists; a pattern (`*`) has at least one file."""
    assert list(missing(page.read_text(), page.parent)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`grafana/restart-latency.json` shows both", ["grafana/restart-latency.json"]),
        ("see docs/adr/9999.", ["docs/adr/9999"]),
        ("tests/scripts/nothing*.txt", ["tests/scripts/nothing*.txt"]),
        ("    python -m benchmarks.nothing --json", ["benchmarks.nothing"]),
        ("`Makefile`, grafana/build.py, docs/adr/0051, images/demo.svg, tests/scripts/*.txt, -m tests.model", []),
    ],
)
def test_what_does_not_exist_is_seen(text: str, found: list[str]) -> None:
    """Missing files, decisions, patterns and modules are found, and existing ones are not reported."""
    assert list(missing(text, ROOT / "docs")) == found
