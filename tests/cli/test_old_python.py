"""The one-file agent under a Python that is too old for it: one line, and no traceback."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile

import pytest

from inplace.agent.start.exit_code import ExitCode
from inplace.cli.agent_pyz import build

FIRST = "import sys; sys.version_info = (3, 9, 18); sys.version = '3.9.18 (main)'\n"


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source that Python reads first."""
    with zipfile.ZipFile(build(tmp_path_factory.mktemp("pyz") / "inplace-agent.pyz")) as archive:
        return archive.read("__main__.py").decode()


def test_an_old_python_gets_one_line(entry: str) -> None:
    """Under Python 3.9 the file says what it needs, what it saw and what to do, with the code of a bad manifest."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST + entry], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == ExitCode.CONFIG
    assert done.stderr.count("\n") == 1
    assert "expected Python 3.10 or newer in this container, saw 3.9.18" in done.stderr
    assert "--agent-in-image" in done.stderr


def test_the_entry_has_no_newer_syntax(entry: str) -> None:
    """Nothing in the part that an old Python compiles is younger than Python 3.5."""
    tree = ast.parse(entry, feature_version=(3, 7))
    newer = (ast.JoinedStr, ast.NamedExpr, ast.AnnAssign, ast.Match, ast.AsyncFunctionDef)
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
