"""All TLS settings of the product come from one place, so that every path trusts the same chains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.source.shape import ROOT

# Python 3.13's default, which HTTPSConnection takes, refuses a CA without key identifiers; kubectl accepts it.
DEFAULTS: Final = re.compile(r"create_default_context|_create_default_https_context|HTTPSConnection")
MAKERS: Final = re.compile(r"\bSSLContext\(")
PLACE: Final = Path("common/kube/http/credentials.py")


def modules_with(pattern: re.Pattern[str]) -> list[Path]:
    """Return the modules of what is installed whose text has the pattern."""
    installed = ROOT / "inplace"
    folders = [ROOT / link.name for link in installed.iterdir() if link.is_symlink()]
    files = [*installed.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    return sorted(file.relative_to(ROOT) for file in files if pattern.search(file.read_text()))


def test_nobody_takes_the_default_of_this_python() -> None:
    """No module of the product, of the agent and the CLI as well, trusts what one version of Python trusts."""
    assert modules_with(DEFAULTS) == []


def test_tls_settings_are_made_in_one_place() -> None:
    """Agent, controller and CLI have their TLS settings from their credentials."""
    assert modules_with(MAKERS) == [PLACE]
