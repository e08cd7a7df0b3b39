"""docs/security.md: each claim has an existing test. docs/permissions.md agrees with the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from inplace.controller.main import METRICS_PORT, PROBE_PORT
from inplace.controller.serving.pages import SEATS, SEATS_PER_SOURCE

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "security.md").read_text()
ATTACKERS: Final = (
    "Who may create JobSets",
    "Who may reach Pod ports",
    "Who trains",
    "Who holds an agent's token",
    "Who holds the controller's token",
)
_TEST: Final = re.compile(r"`(tests/[\w/]+\.(?:py|txt))::([^`]+)`")


def section(title: str) -> str:
    """Return the text below a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(("file", "name"), sorted(set(_TEST.findall(PAGE))))
def test_every_named_test_exists(file: str, name: str) -> None:
    """Every named test exists; a story is named by the words that its claim begins with."""
    if file.endswith(".txt"):
        assert f"\n## {name}" in f"\n{(ROOT / file).read_text()}"
        return
    tree = ast.parse((ROOT / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_each_claim_of_the_threat_model_has_a_test(attacker: str) -> None:
    """Every row begins with can, cannot or is, and ends with a test; rows with can and with cannot exist."""
    rows = [line for line in section(attacker).splitlines() if line.startswith("| ") and line != "| what | test |"]
    assert {row.split()[1] for row in rows} >= {"can", "cannot"}
    assert [row for row in rows if row.split()[1] not in ("can", "cannot", "is")] == []
    assert [row for row in rows if len(_TEST.findall(row)) != 1] == []


def test_it_says_how_to_report_and_what_is_supported() -> None:
    """SECURITY.md begins with how to report a vulnerability and the supported versions."""
    assert [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("## ")][:2] == [
        "## Report a vulnerability",
        "## Supported versions",
    ]


def test_both_pages_have_the_same_ports_and_bounds() -> None:
    """docs/permissions.md names the ports and the seats of the code; the claims lead to SECURITY.md."""
    page = (ROOT / "docs" / "permissions.md").read_text()
    assert f"| {PROBE_PORT} | `/healthz`, `/readyz`" in page
    assert f"| {METRICS_PORT} | `/metrics`" in page
    assert re.search(rf"at most {SEATS}\s+connections of it and {SEATS_PER_SOURCE} from one address", page)
    assert "(../SECURITY.md)" in PAGE
