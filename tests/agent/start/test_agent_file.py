"""The file that the agent leaves for a worker whose image lacks it."""

from __future__ import annotations

from pathlib import Path

from inplace.agent.start.agent_file import leave_agent_file


def test_the_agent_leaves_itself_for_the_worker(tmp_path: Path) -> None:
    """Once: the file that is there already stays, and another is replaced; what went wrong is told."""
    source, target = tmp_path / "agent.pyz", tmp_path / "left"
    source.write_bytes(b"new")
    target.write_bytes(b"older")
    assert leave_agent_file(str(target), str(source)) is None
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o755)
    before = target.stat().st_ino
    assert leave_agent_file(str(target), str(source)) is None
    assert target.stat().st_ino == before
    assert "AGENT_FILE: cannot copy" in str(leave_agent_file(str(tmp_path / "no/folder"), str(source)))
