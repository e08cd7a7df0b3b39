"""Let names break at an underscore in the tables of the site, so that a table with names of tests fits its column."""

from __future__ import annotations

import re
from typing import Any, Final

_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_IN_CODE: Final = re.compile(r"_(?=[^<>]*</code>)")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with a place to break behind each underscore of a name in a table."""
    return _TABLE.sub(lambda table: _IN_CODE.sub("_<wbr>", table[0]), html)
