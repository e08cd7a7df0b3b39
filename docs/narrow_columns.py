"""
Prepare pages for narrow columns and for phones.

An option in code is marked, so that it stays on one line: a browser breaks it behind its hyphens. A name in a table may
break behind an underscore, so that a table with names of tests fits its column. Each cell of a table with three columns
or more carries the head of its column: on a phone site.css shows a row as a list of such cells.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final

_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_CODE: Final = re.compile(r"<code>[^<]*</code>")
_OPTION: Final = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_HEAD: Final = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<td(?=[ >])")
_TAG: Final = re.compile(r"<[^>]*>")
STACKED_FROM: Final = 3  # columns; two fit on a phone side by side


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with whole options, places to break, and the heads of the columns in the cells."""
    whole = _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    return _TABLE.sub(lambda table: _labelled(_breakable(table[0])), whole)


def _breakable(table: str) -> str:
    parts = re.split(r"(<code>.*?</code>)", table)
    return "".join(part.replace("_", "_<wbr>") if part.startswith("<code>") else part for part in parts)


def _labelled(table: str) -> str:
    heads = [escape(_TAG.sub("", head), quote=True) for head in _HEAD.findall(table)]
    if len(heads) < STACKED_FROM:
        return table

    def row(found: re.Match[str]) -> str:
        labels = iter(heads)
        return _CELL.sub(lambda _: f'<td data-label="{next(labels, "")}"', found[0])

    return _ROW.sub(row, table)
