"""
Make the site of the pages in docs/: mkdocs calls these hooks.

`on_files` makes README.md the front page, so that both say the same. `on_page_markdown` lets the pages link to files of
the repository outside docs/, of which mkdocs knows nothing. `on_page_content` prepares pages for narrow columns and for
phones.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_TARGET: Final = re.compile(r'(\]\(|src=")(?!\w+:|#)(docs/)?')
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")
_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_CODE: Final = re.compile(r"<code>[^<]*</code>")
_OPTION: Final = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_HEAD: Final = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<td(?=[ >])")
_TAG: Final = re.compile(r"<[^>]*>")
STACKED_FROM: Final = 3  # columns; two fit on a phone side by side


def on_files(files: Files, *, config: MkDocsConfig, **_: Any) -> Files:
    """Add the page index.md, unless the folder has one."""
    readme = Path(config.docs_dir).parent / "README.md"
    if readme.is_file() and files.get_file_from_path("index.md") is None:
        files.append(File.generated(config, "index.md", content=from_docs(readme.read_text())))
    return files


def from_docs(text: str) -> str:
    """Return a page of the repository's root with links and pictures written as from docs/."""
    return _TARGET.sub(lambda target: target[1] + ("" if target[2] else "../"), text)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace links to files outside docs/ by their text; a link to a missing file is an error.

    Raises:
        PluginError: the repository has no such file.
    """
    pages = Path(config.docs_dir).resolve()
    here = (pages / page.file.src_uri).parent

    def written(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        if target.is_relative_to(pages):
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: expected a file of the repository, saw a link to {link[2]}")
        return link[1]

    return _LINK.sub(written, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with whole options, places to break, and the heads of the columns in the cells.

    An option in code is marked, so that it stays on one line: a browser breaks it behind its hyphens. A name in a table
    may break behind an underscore, so that a table with names of tests fits its column. Each cell of a table with three
    columns or more carries the head of its column: on a phone site.css shows a row as a list of such cells.
    """
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
