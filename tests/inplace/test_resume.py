"""A training script says what it saved in a few microseconds, and never learns what goes wrong with that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import inplace
from inplace import resume
from inplace.common.protocol import bounds
from inplace.common.protocol.resume import LOCAL_STEPS_MAX
from inplace.common.wire import saved as grammar
from inplace.common.wire.saved import SavedLine, parse_saved
from inplace.resume import SavedFile
from tests.inplace.test_rank_file import ROOT, folder

__all__ = ["folder"]  # a fixture


def said(within: Path, name: str = ".rank-3.saved") -> SavedLine | None:
    """Return what a rank's file says."""
    return parse_saved((within / name).read_bytes())


def test_both_sides_have_the_same_bounds() -> None:
    """The module stands alone, so its numbers are written twice."""
    assert (resume.LINE_BYTES, resume.KEEP_MAX) == (grammar.LINE_BYTES_MAX, LOCAL_STEPS_MAX)
    assert resume.EPOCH_MAX == bounds.INT32_MAX


def test_the_newest_steps_are_told(folder: Path) -> None:
    """As many local ones as the rank can load, and the newest shared one beside them."""
    file = SavedFile()
    for step in (100, 110, 110, 120):
        file.add(step, 2, shared=False)
    file.add(90, 2, shared=True)
    assert said(folder) == SavedLine(7, (120, 110), 90)
    file.add(130, 4, shared=False)
    assert said(folder) == SavedLine(7, (130, 120, 110), 90)


def test_a_step_that_goes_backwards_starts_anew(folder: Path) -> None:
    """What was saved before it belongs to another line of training."""
    file = SavedFile()
    for step in (100, 110, 105):
        file.add(step, 4, shared=False)
    assert said(folder) == SavedLine(7, (105,))


@pytest.mark.parametrize(
    ("before", "resume_step", "after"),
    [
        (b"v1 6 110.100 90\n", "110", SavedLine(7, (120, 110))),
        (b"v1 6 110.100 90\n", "100", SavedLine(7, (120, 100))),
        (b"v1 6 110.100 90\n", "105", SavedLine(7, (120,))),
        (b"v1 6 110.100 90\n", "", SavedLine(7, (120,))),
        (b"v1 7 110.100 90\n", "50", SavedLine(7, (120, 110), 90)),
        (b"rubbish", "110", SavedLine(7, (120,))),
        (b"v1 6 x.110.-3 99999999999999\n", "110", SavedLine(7, (120, 110))),
    ],
)
def test_a_new_process_begins_at_the_resume_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, resume_step: str, after: SavedLine
) -> None:
    """Of an earlier run only that step is still true; of this run, all that another process of the rank told."""
    (folder / ".rank-3.saved").write_bytes(before)
    monkeypatch.setenv("INPLACE_RESUME_STEP", resume_step)
    SavedFile().add(120, 2, shared=False)
    assert said(folder) == after


@pytest.mark.parametrize("step", [-1, 10**12, "x", None, float("nan"), SimpleNamespace(), float("inf")])
def test_a_bad_step_is_said_once(folder: Path, capsys: pytest.CaptureFixture[str], step: object) -> None:
    """Nothing is written, and training goes on."""
    file = SavedFile()
    for _ in range(3):
        file.add(step, 2, shared=False)  # type: ignore[arg-type]
    file.add(3, 5, shared=False)
    file.add(10**5000, 2, shared=False)  # which no text may hold
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(folder.iterdir())


def test_without_an_epoch_or_a_folder_nothing_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a script runs anywhere."""
    for variable in ("INPLACE_EPOCH", "INPLACE_PROGRESS_DIR"):
        with monkeypatch.context() as patched:
            patched.delenv(variable)
            SavedFile().add(3, 2, shared=False)
    assert not list(folder.iterdir())


def test_without_a_rank_the_file_is_the_pods(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process id would be another one in each run."""
    monkeypatch.delenv("RANK")
    SavedFile().add(3, 2, shared=False)
    assert said(folder, ".pod.saved") == SavedLine(7, (3,))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "dangling"])
def test_what_a_stranger_put_there_is_not_followed(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Nothing waits and nothing else is written."""
    path, precious = folder / ".rank-3.saved", folder / "precious"
    precious.write_text("v1 7 1 -\n")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(precious if kind == "link" else folder / "nowhere")
    SavedFile().add(3, 2, shared=False)
    assert "Training goes on" in capsys.readouterr().err
    assert precious.read_text() == "v1 7 1 -\n"


def test_a_file_that_the_disk_does_not_take_says_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line is not true any more, so it goes."""
    file = SavedFile()
    file.add(3, 2, shared=False)

    class Full:
        fd = file._file.fd

        def write(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    file._file = Full()  # type: ignore[assignment]
    file.add(4, 2, shared=False)
    assert (folder / ".rank-3.saved").read_bytes() == b""
    assert "No space" in capsys.readouterr().err


def test_the_resume_step_is_one_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby knows it after its release; what is no step is none."""
    for text, step in {"": None, "0": 0, "4200": 4200, "x": None, "-1": None, "9" * 13: None, "٣": None}.items():
        monkeypatch.setenv("INPLACE_RESUME_STEP", text)
        assert inplace.resume_step() == step
    monkeypatch.setenv("INPLACE_RESUME_STEP", "4200")
    monkeypatch.setenv("INPLACE_STANDBY", "wait:3:4")
    assert inplace.resume_step() is None
    monkeypatch.delenv("INPLACE_KEEP_DIR", raising=False)
    assert inplace.keep_dir() is None
    monkeypatch.setenv("INPLACE_KEEP_DIR", "/keep")
    assert inplace.keep_dir() == "/keep"


def test_a_standby_writes_nothing_before_its_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is that of the worker which still runs."""
    monkeypatch.setenv("INPLACE_STANDBY", "wait:3:4")
    file = SavedFile()
    file.add(3, 2, shared=False)
    assert not list(folder.iterdir())
    monkeypatch.setenv("INPLACE_STANDBY", "tell:3:4")
    file.add(4, 2, shared=False)
    assert said(folder) == SavedLine(7, (4,))


def test_a_forked_process_of_the_rank_goes_on_with_the_list(tmp_path: Path) -> None:
    """Libraries save in processes of their own, a new one each time."""
    code = """
import os, inplace
for step in (10, 20, 30):
    pid = os.fork()
    if not pid:
        inplace.saved(step, keep=3)
        os._exit(0)
    os.waitpid(pid, 0)
"""
    env = {"PYTHONPATH": str(ROOT), "INPLACE_PROGRESS_DIR": str(tmp_path), "INPLACE_EPOCH": "7", "LOCAL_RANK": "1"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
    assert said(tmp_path, ".local-1.saved") == SavedLine(7, (30, 20, 10))


def test_ten_thousand_calls_write_one_line(folder: Path) -> None:
    """The file does not grow."""
    file = SavedFile()
    for step in range(10_000):
        file.add(step, 4, shared=step % 2 == 0)
    assert (folder / ".rank-3.saved").stat().st_size == grammar.LINE_BYTES_MAX
    assert said(folder) == SavedLine(7, (9_999, 9_997, 9_995, 9_993), 9_998)
