"""
Make README.md the front page of the site, so that both say the same.

README.md lies in the root of the repository, and mkdocs reads docs/ only. The page's links and pictures are written
from the root; on the site they are written from docs/.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

_TARGET: Final = re.compile(r'(\]\(|src=")(?!\w+:|#)(docs/)?')


def on_files(files: Files, *, config: MkDocsConfig, **_: Any) -> Files:
    """Add the page index.md, unless the folder has one."""
    readme = Path(config.docs_dir).parent / "README.md"
    if readme.is_file() and files.get_file_from_path("index.md") is None:
        files.append(File.generated(config, "index.md", content=from_docs(readme.read_text())))
    return files


def from_docs(text: str) -> str:
    """Return a page of the root whose links and pictures are written as from docs/."""
    return _TARGET.sub(lambda target: target[1] + ("" if target[2] else "../"), text)
