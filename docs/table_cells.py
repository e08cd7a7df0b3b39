"""
Prepare the cells of tables for narrow columns and for phones.

A name in code may break behind an underscore, so that a table with names of tests fits its column. Each cell of a table
with three columns or more carries the head of its column: on a phone site.css shows a row as a list of such cells.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final

_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_IN_CODE: Final = re.compile(r"_(?=[^<>]*</code>)")
_HEAD: Final = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<td(?=[ >])")
_TAG: Final = re.compile(r"<[^>]*>")
STACKED_FROM: Final = 3  # columns; two fit on a phone side by side


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with places to break, and with the heads of the columns in the cells."""
    return _TABLE.sub(lambda table: _labelled(_IN_CODE.sub("_<wbr>", table[0])), html)


def _labelled(table: str) -> str:
    heads = [escape(_TAG.sub("", head), quote=True) for head in _HEAD.findall(table)]
    if len(heads) < STACKED_FROM:
        return table

    def row(found: re.Match[str]) -> str:
        labels = iter(heads)
        return _CELL.sub(lambda _: f'<td data-label="{next(labels, "")}"', found[0])

    return _ROW.sub(row, table)
