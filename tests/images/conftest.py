"""The root of the agent's image, made once for the tests of a process."""

from pathlib import Path

import pytest

from images import agent_root


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of the agent's image, made of the Python that runs the tests."""
    folder = tmp_path_factory.mktemp("agent") / "root"
    folder.mkdir()
    agent_root.make(folder)
    return folder
