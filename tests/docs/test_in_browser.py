"""The site as Chromium shows it: what is too wide and what does not load is found, and the real site has neither."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs.in_browser import MISSING, browser, complaints

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def program() -> str:
    """Return the path of Chromium; without one the tests are skipped, and fail in CI."""
    found = browser()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING)
    return found


PAGES: Final = {  # by name: the page, and the start of each complaint about it
    "few_words": ("| a | b |\n|---|---|\n| a word | some words |", []),
    "many_words": (f"| a | b |\n|---|---|\n| a word | {' '.join(['words'] * 200)} |", []),
    "many_columns": (f"|{' a |' * 60}\n|{'---|' * 60}\n|{' word |' * 60}", ["at 1280 px: table 1"]),
    "a_long_word": (f"| a | b |\n|---|---|\n| a word | {'x' * 150} |", ["at 1280 px: table 1"]),
    "a_wide_page": ("<p style='width: 1500px'>a word</p>", ["at 390 px: the page", "at 1280 px: the page"]),
    "no_picture": ('<img src="nothing.svg">', ["at 390 px: the picture", "at 1280 px: the picture"]),
    "foreign": (
        '<img src="http://127.0.0.2/a.svg">',
        [f"at {px} px: {what}" for px in (390, 1280) for what in ("the picture", "expected a file of the site")],
    ),
}


def test_what_does_not_fit_is_found(tmp_path: Path, program: str) -> None:
    """Wide tables, a wide page and missing pictures are named with the width; texts that wrap are not."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "site.css").write_text((ROOT / "docs" / "site.css").read_text())
    for name, (text, _) in PAGES.items():
        (pages / f"{name}.md").write_text(f"# A page\n\n{text}\n")
    nav = [f"{name}.md" for name in PAGES]
    build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(tmp_path / "site"), nav=nav))
    said = complaints(tmp_path / "site", program)
    for name, (_, starts) in PAGES.items():
        found = sorted(one.removeprefix(f"/{name}.html ") for one in said if one.startswith(f"/{name}.html "))
        assert len(found) == len(starts), found
        assert all(one.startswith(start) for one, start in zip(found, sorted(starts), strict=True)), found


@pytest.mark.slow
def test_everything_fits(tmp_path: Path, program: str) -> None:
    """No table of the site is wider than its column, no page is wider than a screen, and everything loads."""
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert complaints(tmp_path, program) == []
