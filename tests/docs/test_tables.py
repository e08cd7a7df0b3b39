"""Every table of the site fits its column at 1280 px, also if no word breaks: an estimate, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).parents[2]
COLUMN_PX: Final = 1280 - 300 - 2 * 52  # without the theme's navigation and the padding beside the text
CELL_PX: Final = 2 * 16 + 1  # padding and border
LETTER_PX: Final = 7.6  # of a word at 14.4 px; bold and capitals are wider, most letters are not
CODE_PX: Final = 6.6  # of a word at 10.8 px, monospace
CODE_PAD_PX: Final = 12.0


class Tables(HTMLParser):
    """The tables of a page: rows of cells, each the width of its longest word in pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[float]]] = []
        self._in_cell = self._in_code = False
        self._word_px = 0.0  # of the word that goes on in the next piece of text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a table, a row, a cell or a piece of code; a place to break ends a word."""
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(0.0)
            self._in_cell, self._word_px = True, 0.0
        elif tag == "code":
            self._in_code = True
            self._word_px += CODE_PAD_PX
        elif tag in ("br", "wbr"):
            self._word_px = 0.0

    def handle_endtag(self, tag: str) -> None:
        """End a cell or a piece of code."""
        if tag in ("td", "th"):
            self._in_cell = False
        elif tag == "code":
            self._in_code = False

    def handle_data(self, data: str) -> None:
        """Add text to the cell; spaces and hyphens end a word."""
        if not self._in_cell:
            return
        for letter in data:
            if letter.isspace():
                self._word_px = 0.0
                continue
            self._word_px += CODE_PX if self._in_code else LETTER_PX
            row = self.tables[-1][-1]
            row[-1] = max(row[-1], self._word_px)
            if letter == "-":
                self._word_px = 0.0


def too_wide(html: str) -> Iterator[str]:
    """Yield each table whose columns need more than there is, with its number on the page."""
    parser = Tables()
    parser.feed(html)
    for number, table in enumerate(parser.tables, 1):
        columns = zip(*(row for row in table if len(row) == len(table[0])), strict=True)
        needed_px = sum(max(column) + CELL_PX for column in columns)
        if needed_px > COLUMN_PX:
            yield f"table {number}: expected at most {COLUMN_PX} px, saw {needed_px:.0f} px"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_every_table_fits_its_column(site: Path) -> None:
    """On every page, and each page loads the rules that let cells wrap."""
    pages = sorted(page for page in site.rglob("*.html") if page.name != "404.html")
    assert len(pages) > 50
    found = {str(page.relative_to(site)): list(too_wide(page.read_text())) for page in pages}
    assert {page: tables for page, tables in found.items() if tables} == {}
    assert all('site.css" rel="stylesheet"' in page.read_text() for page in pages)
    assert "white-space: normal;" in (site / "site.css").read_text()


@pytest.mark.parametrize(
    ("cells", "fits"),
    [
        (["a word"] * 10, True),
        (["a word"] * 30, False),
        (["x" * 110], True),
        (["x" * 120], False),
        (["<code>" + "x" * 120 + "</code>"], True),
        (["some words " * 100, "-".join(["xxxxx"] * 40)], True),
    ],
)
def test_a_wide_table_is_seen(cells: list[str], fits: bool) -> None:
    """Long words and many columns count; texts that wrap do not."""
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    assert (list(too_wide(f"<table><tr>{row}</tr></table>")) == []) == fits
