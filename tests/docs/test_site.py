"""The pages as a site: every link leads somewhere, and every decision is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError

from tests.docs.decisions_page import PAGE, page

ROOT: Final = Path(__file__).parents[2]


def test_the_site_builds(tmp_path: Path) -> None:
    """`make docs` gives no warning: no page has a broken link."""
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert (tmp_path / "install.html").is_file()


@pytest.mark.parametrize("target", ["nowhere.md", "../nowhere.py"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    """A page that does not exist, and a file that the repository does not have, stop the build."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A page\n\n[a link]({target})\n")
    with pytest.raises((Abort, PluginError)):
        build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(tmp_path / "site"), nav=None))


def test_every_decision_is_listed() -> None:
    """docs/adr/README.md is what `make rewrite` makes of the pages beside it."""
    assert PAGE.read_text() == page()
