"""
Let the pages link to files of the repository outside docs/.

mkdocs knows only files in docs/. A link that leaves docs/ becomes plain text here; a link to a missing file is an
error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace links to files outside docs/ by their text.

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
