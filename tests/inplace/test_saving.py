"""`inplace.save_requested`: true for the epoch that is asked alone, and never an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import inplace


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a request would be, for a worker of epoch 3."""
    monkeypatch.setenv("INPLACE_SAVE_FILE", str(tmp_path / "save"))
    monkeypatch.setenv("INPLACE_EPOCH", "3")
    return tmp_path / "save"


@pytest.mark.parametrize(
    ("text", "is_asked"), [(None, False), ("3\n", True), ("2\n", False), ("", False), ("3", True), ("33\n", False)]
)
def test_the_epoch_decides(file: Path, text: str | None, *, is_asked: bool) -> None:
    """A request of another epoch, or half of one, is none."""
    if text is not None:
        file.write_text(text)
    assert inplace.save_requested() is is_asked


def test_what_lies_there_instead_is_no_request(file: Path) -> None:
    """A folder, a link and a pipe neither raise nor wait."""
    file.mkdir()
    assert not inplace.save_requested()
    file.rmdir()
    os.mkfifo(file)
    assert not inplace.save_requested()
    file.unlink()
    file.symlink_to("/proc/self/environ")
    assert not inplace.save_requested()


@pytest.mark.parametrize("variable", ["INPLACE_SAVE_FILE", "INPLACE_EPOCH"])
def test_a_worker_that_nobody_asks(file: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """Without its variables the script runs anywhere."""
    file.write_text("3\n")
    monkeypatch.setenv(variable, "")
    assert not inplace.save_requested()
