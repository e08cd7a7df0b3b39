"""The pages as a site: every link leads somewhere, and generated pages are what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError

from docs.site_hooks import from_docs, on_page_content
from tests.docs import (
    api_page,
    decisions_page,
    failure_cost_page,
    logs_page,
    metrics_page,
    protocol_page,
    settings_page,
    states_page,
)

ROOT: Final = Path(__file__).parents[2]
LINES_MAX: Final = 200


def test_the_site_builds(tmp_path: Path) -> None:
    """`make docs` gives no warning: no page has a broken link. Every page is in the navigation and can be searched."""
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    searched = {
        entry["location"] for entry in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    }
    front = (tmp_path / "index.html").read_text()
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    names = {"/".join(page.with_suffix(".html").parts).replace("README", "index") for page in pages}
    assert names - searched == set()
    assert {name for name in names if not name.startswith("adr/") and f'href="{name}"' not in front} == set()


def test_the_front_page_is_the_readme() -> None:
    """Its links and pictures lead to the same files from docs/."""
    text = '[a](docs/a.md#b) [c](SECURITY.md) [d](https://e) [f](#g) <img src="docs/h.svg">'
    assert from_docs(text) == '[a](a.md#b) [c](../SECURITY.md) [d](https://e) [f](#g) <img src="h.svg">'


def test_a_row_becomes_a_list_on_a_phone() -> None:
    """Each cell of a table with three columns carries its head; those of a table with two do not."""
    row = "<tr><td>1</td><td style='x'>2</td>{}</tr>"
    wide = (
        f"<table><thead><tr><th>a</th><th>b <code>c</code></th><th></th></tr></thead>{row.format('<td>3</td>')}</table>"
    )
    assert on_page_content(wide).count("<td data-label=") == 3
    assert """<td data-label="b c" style='x'>2</td>""" in on_page_content(wide)
    narrow = f"<table><tr><th>a</th><th>b</th></tr>{row.format('')}</table>"
    assert on_page_content(narrow) == narrow


def test_a_name_breaks_at_an_underscore_and_an_option_nowhere() -> None:
    """Underscores of code in tables, and options of any code; file names with hyphens stay as they are."""
    assert on_page_content("<code>a-b --save-within N -f</code>") == (
        '<code>a-b <span class="option">--save-within</span> N <span class="option">-f</span></code>'
    )
    assert on_page_content("<p><code>a_b</code></p>") == "<p><code>a_b</code></p>"
    row = "<table><tr><td>c_d <code>a_b</code></td></tr></table>"
    assert on_page_content(row) == row.replace("a_b", "a_<wbr>b")


@pytest.mark.parametrize("target", ["nowhere.md", "../nowhere.py"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    """A page that does not exist, and a file that the repository does not have, stop the build."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A page\n\n[a link]({target})\n")
    with pytest.raises((Abort, PluginError)):
        build(
            load_config(
                str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(tmp_path / "site"), nav=["index.md"]
            )
        )


@pytest.mark.parametrize(
    "page",
    sorted({ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/runbooks/*.md")}),
    ids=lambda page: page.name,
)
def test_a_page_is_short(page: Path) -> None:
    """A page answers one question in at most 200 lines, whole manifests apart; a longer one is two pages."""
    text = re.sub("```yaml\n.*?```", "", page.read_text(), flags=re.DOTALL)
    assert len(text.splitlines()) <= LINES_MAX


@pytest.mark.parametrize(
    "generator",
    [api_page, decisions_page, failure_cost_page, logs_page, metrics_page, protocol_page, settings_page, states_page],
)
def test_a_generated_page_is_what_the_code_says(generator: ModuleType) -> None:
    """`make rewrite` would change nothing."""
    assert generator.PAGE.read_text() == generator.page()
