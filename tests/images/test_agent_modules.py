"""The modules of the agent's image: all that the agent imports, and nothing of the controller's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from images.agent_modules import compiled, licences_of, sources_of
from images.build_once import BuildFailed
from images.lock import ROOTS
from tests.cli.command import REPOSITORY

LICENCE = "from images.agent_modules import licences_of; print(dict(licences_of(()))['LICENSE'].read_text())"


def test_nothing_of_the_controller_is_inside() -> None:
    """The agent, the shared modules that it imports, and its dependencies with licences; no tests."""
    names = {name for name, _ in sources_of(ROOTS["agent"])}
    assert {name.partition("/")[0] for name in names} >= {"inplace", "prometheus_client", "structlog", "yaml"}
    assert {"inplace/__init__.py", "inplace/common/kube/http/http1.py", "inplace/common/wire/names.py"} < names
    unwanted = ("informer", "workqueue", "ledger", "kube/client", "kube/codec", "test")
    ours = {name for name in names if name.startswith("inplace/")}
    assert {name.split("/")[1] for name in ours} == {"__init__.py", "agent", "common"}
    assert [name for name in ours if any(word in name for word in unwanted)] == []
    assert {"LICENSE"} < {name for name, _ in licences_of(ROOTS["agent"])}


def test_byte_code_is_never_compared_with_a_source() -> None:
    """Beside it there is none; the bytes depend on the source alone."""
    sources = {"a.py": b"x = {1, 'two', None}\n", "b.py": b"y = 1\n"}
    made = compiled(sources)
    assert made.keys() == {"a.pyc", "b.pyc"}
    assert made == compiled(sources)
    code = made["b.pyc"]
    assert int.from_bytes(code[4:8], "little") == 1  # by a hash that is not checked (PEP 552)
    with pytest.raises(BuildFailed, match="to compile the agent, saw: "):
        compiled({"c.py": b"("})


def test_what_an_installation_leaves_behind_does_no_harm(tmp_path: Path) -> None:
    """Metadata that `pip install .` leaves in the source tree list no licence; the tree's own is taken."""
    left = tmp_path / "inplace.egg-info"
    left.mkdir()
    (left / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: inplace\nVersion: 0.0.9\n")
    (left / "SOURCES.txt").write_text("LICENSE\npyproject.toml\ninplace/__init__.py\n")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LICENCE], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (REPOSITORY / "LICENSE").read_text().strip()
