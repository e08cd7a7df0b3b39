"""A training script says its steps in a few microseconds, and never learns what goes wrong with that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inplace
from inplace import rank_file
from inplace.common.protocol import bounds
from inplace.common.wire import progress as grammar
from inplace.common.wire.progress import ProgressLine, parse_progress
from inplace.rank_file import BusyPhase, RankFile, file_name

ROOT = Path(__file__).parents[2]
SCRIPT_S_MAX = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a progress folder that this process was told of, as rank 3 in epoch 7."""
    for variable in ("LOCAL_RANK", "JAX_PROCESS_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("INPLACE_PROGRESS_DIR", str(tmp_path))
    monkeypatch.setenv("INPLACE_EPOCH", "7")
    monkeypatch.setenv("RANK", "3")
    return tmp_path


def line_of(folder: Path, name: str = "rank-3") -> ProgressLine:
    """Return what a rank's file says."""
    return parse_progress((folder / name).read_bytes())


def run(code: str, *fds: int, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with these descriptors and variables, and no other."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), **env},
        pass_fds=fds,
        capture_output=True,
        text=True,
        timeout=SCRIPT_S_MAX,
        check=False,
    )


def test_both_sides_have_the_same_bounds() -> None:
    """The module stands alone, so its numbers are written twice."""
    assert rank_file.LINE_BYTES == grammar.LINE_BYTES_MAX
    assert rank_file.STEP_MAX == bounds.STEP_MAX
    assert rank_file.BUSY_S_MAX == bounds.BUSY_S_MAX
    assert rank_file.BUSY_NAME_CHARACTERS_MAX == grammar.BUSY_NAME_CHARACTERS_MAX


def test_a_step_is_what_the_agent_reads(folder: Path) -> None:
    """Epoch, step and process; before the first step a busy phase says that there is none."""
    file = RankFile()
    phase = BusyPhase(file, "compile", 900)
    assert line_of(folder) == ProgressLine(7, None, False, os.getpid(), "compile", 900)
    phase.end()
    assert line_of(folder) == ProgressLine(7, None, False, os.getpid())
    file.step(1200)
    assert line_of(folder) == ProgressLine(7, 1200, True, os.getpid())
    file.end()
    assert line_of(folder) == ProgressLine(7, 1200, True, os.getpid(), ended=True)


def test_the_first_step_stays(folder: Path) -> None:
    """In a file of its own, written once, that later steps leave alone; not written without a folder."""
    file = RankFile()
    file.step(40)
    first = (folder / ".rank-3").stat()
    assert line_of(folder, ".rank-3") == ProgressLine(7, 40, True, os.getpid())
    file.step(41)
    BusyPhase(file, "checkpoint", 600)
    assert (folder / ".rank-3").stat().st_mtime_ns == first.st_mtime_ns
    assert line_of(folder, ".rank-3").step == 40
    assert line_of(folder).step == 41


def test_a_first_step_that_cannot_be_kept_stops_nobody(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody's folder stands in its place: the steps are written all the same, and nothing is said."""
    (folder / ".rank-3").mkdir()
    RankFile().step(40)
    assert line_of(folder).step == 40
    assert capfd.readouterr().err == ""


def test_busy_phases_nest(folder: Path) -> None:
    """The inner one counts, the outer one goes on after it; an end too many does nothing, whatever is raised inside."""
    file = RankFile()
    file.step(5)
    with BusyPhase(file, "evaluation", 60):
        inner = BusyPhase(file, "checkpoint", 600)
        file.step(6)
        assert (line_of(folder).busy, line_of(folder).step) == ("checkpoint", 6)
        inner.end()
        inner.end()
        assert (line_of(folder).busy, line_of(folder).busy_s_max) == ("evaluation", 60)
    assert line_of(folder).busy == ""
    with pytest.raises(KeyError), BusyPhase(file, "evaluation", 60):
        raise KeyError
    assert line_of(folder).busy == ""


@given(
    step=st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.none(), st.binary(max_size=3)),
    name=st.text(max_size=40),
    up_to_s=st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=3)),
)
def test_every_line_is_one(tmp_path_factory: pytest.TempPathFactory, step: Any, name: str, up_to_s: Any) -> None:
    """Whatever is passed, one line of 64 bytes comes out, the agent reads it as written, and nothing is raised."""
    folder = tmp_path_factory.mktemp("progress")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INPLACE_PROGRESS_DIR", str(folder))
        patch.setenv("RANK", "0")
        patch.setattr(sys, "stderr", None)
        file = RankFile()
        file.step(step)
        BusyPhase(file, name, up_to_s)
    content = (folder / "rank-0").read_bytes()
    assert len(content) == grammar.LINE_BYTES_MAX
    line = parse_progress(content)
    assert line.begun
    assert line.pid == os.getpid()
    assert line.busy
    assert 1 <= line.busy_s_max <= bounds.BUSY_S_MAX
    assert line.step == (step if type(step) is int and 0 <= step <= bounds.STEP_MAX else line.step)


def test_phases_that_never_end_cost_no_more_each(folder: Path) -> None:
    """A script that forgets every end keeps a bounded number of them."""
    file = RankFile()
    for _ in range(100):
        BusyPhase(file, "forgotten", 60)
    assert len(file._phases) == rank_file.PHASES_MAX
    assert line_of(folder).busy == "forgotten"


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"RANK": "12", "LOCAL_RANK": "4", "JAX_PROCESS_ID": "1"}, "rank-12"),
        ({"RANK": "", "LOCAL_RANK": "04"}, "local-4"),
        ({"RANK": "../../etc", "JAX_PROCESS_ID": "1"}, "jax-1"),
        ({"RANK": "1" * 11}, "pid-77"),
        ({"RANK": "-1"}, "pid-77"),
        ({"RANK": "٣"}, "pid-77"),
        ({}, "pid-77"),
    ],
)
def test_a_file_has_the_rank_s_name(env: dict[str, str], name: str) -> None:
    """The first variable that holds a number; nothing that a variable holds leads out of the folder."""
    assert file_name(env, 77) == name


def close_all(file: RankFile, folder: Path) -> None:
    """Close the descriptor, as a program does that closes all."""
    os.close(file._file.fd)


def take_the_number(file: RankFile, folder: Path) -> None:
    """Close the descriptor and open another file under its number."""
    precious = os.open(folder / "precious", os.O_RDWR | os.O_CREAT)
    os.dup2(precious, file._file.fd)
    os.write(precious, b"precious")


def clear(file: RankFile, folder: Path) -> None:
    """Remove the file, as an agent does between two epochs."""
    (folder / "rank-3").unlink()


@pytest.mark.parametrize("happens", [close_all, take_the_number, clear])
def test_a_lost_descriptor_is_opened_anew(folder: Path, happens: Callable[[RankFile, Path], None]) -> None:
    """The next step is written to the rank's own file, and to no other."""
    file = RankFile()
    file.step(1)
    happens(file, folder)
    file.step(2)
    assert line_of(folder).step == 2
    if happens is take_the_number:
        assert (folder / "precious").read_bytes() == b"precious"


def test_a_forked_child_writes_as_itself(folder: Path) -> None:
    """It opens a file of its own name and leaves its parent's busy phase to the parent."""
    code = """
import os, inplace
inplace.progress(1)
phase = inplace.busy("checkpoint", up_to_s=60)
os.environ["RANK"] = "4"
if os.fork() == 0:
    inplace.progress(9)
    os._exit(0)
os.wait()
if os.fork() == 0:
    raise SystemExit  # a child that writes nothing also says nothing at its exit
os.wait()
print(open(os.environ["INPLACE_PROGRESS_DIR"] + "/rank-3").read())
"""
    done = run(code, INPLACE_PROGRESS_DIR=str(folder), RANK="3")
    assert done.stderr == ""
    parent, child = parse_progress(done.stdout[:64].encode()), line_of(folder, "rank-4")
    assert (parent.step, parent.busy, parent.ended) == (1, "checkpoint", False)
    assert (child.step, child.busy) == (9, "")
    assert child.pid != parent.pid
    assert line_of(folder).ended, "the parent's own exit"


def test_without_a_folder_nothing_is_done(tmp_path: Path) -> None:
    """A script runs anywhere: no output, no file, and no module but the two."""
    code = """
import json, sys
before = set(sys.modules)
import inplace
names = [set(sys.modules) - before]
inplace.progress(3)
with inplace.busy("checkpoint", up_to_s=3):
    pass
names.append(set(sys.modules) - before)
print(json.dumps([sorted(found) for found in names]))
"""
    done = run(code)
    assert done.stderr == ""
    imported, used = json.loads(done.stdout)
    assert imported == ["inplace"]
    assert set(used) <= {
        "__future__",
        "atexit",
        "inplace",
        "inplace.last_words",
        "inplace.rank_file",
        "inplace.line_file",
        "inplace.rank_numbers",
    }


def test_an_exit_after_the_folder_is_silent(tmp_path: Path) -> None:
    """A folder that was removed before the process exits is no reason for a line on stderr."""
    code = """
import os, shutil, inplace
inplace.progress(1)
shutil.rmtree(os.environ["INPLACE_PROGRESS_DIR"])
"""
    (tmp_path / "progress").mkdir()
    done = run(code, INPLACE_PROGRESS_DIR=str(tmp_path / "progress"))
    assert (done.returncode, done.stderr) == (0, "")


FAILURES = {
    "missing": ("{0}/missing", "No such file"),
    "no folder": ("{0}/file", "Not a directory"),
    "a link in the file's place": ("{0}/linked", "symbolic link"),
    "a pipe in the file's place": ("{0}/piped", "No such device"),
    "a name of 5,000 characters": ("{0}/" + "x" * 5_000, "too long"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_what_cannot_be_written_is_said_once(tmp_path: Path, kind: str) -> None:
    """One line on stderr with the reason, whatever is in the folder's place; the script goes on to its end."""
    (tmp_path / "file").touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "rank-0").symlink_to(tmp_path / "target")
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "rank-0")
    path, reason = FAILURES[kind]
    code = """
import inplace
for step in range(3):
    inplace.progress(step)
with inplace.busy("checkpoint", up_to_s=3):
    print("trained")
"""
    done = run(code, INPLACE_PROGRESS_DIR=path.format(tmp_path), RANK="0")
    assert done.stdout == "trained\n"
    (line,) = done.stderr.splitlines()
    assert reason in line
    assert line.endswith("Training goes on.")
    assert not (tmp_path / "target").exists()


def test_a_full_disk_still_takes_the_time(folder: Path) -> None:
    """Where no byte can be written (here by a limit of 0 bytes a file), each step is a new modification time."""
    code = """
import os, resource, inplace
path = os.environ["INPLACE_PROGRESS_DIR"] + "/rank-3"
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
inplace.progress(1)
os.utime(path, (1, 1))
inplace.progress(2)
print(os.stat(path).st_size, os.stat(path).st_mtime > 1)
"""
    done = run(code, INPLACE_PROGRESS_DIR=str(folder), RANK="3")
    assert done.stdout == "0 True\n"
    assert len(done.stderr.splitlines()) == 1


def test_any_user_s_agent_may_read_it(folder: Path) -> None:
    """Whatever the umask; and what a longer file held before is cut."""
    (folder / "rank-3").write_text("x" * 100)
    old = os.umask(0o077)
    try:
        RankFile().step(1)
    finally:
        os.umask(old)
    assert (folder / "rank-3").stat().st_mode & 0o777 == 0o644
    assert line_of(folder).step == 1


def test_the_package_knows_no_other_name() -> None:
    """A misspelled name is an AttributeError, as in any module."""
    assert inplace.progress is rank_file.progress
    assert inplace.busy is rank_file.busy
    with pytest.raises(AttributeError, match="progres"):
        inplace.progres  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("name", ["busy", "ready", "save_requested"])
def test_what_a_script_puts_in_a_name_s_place_stays(name: str) -> None:
    """A wrapper around `progress`, say, whichever other name is used first afterwards."""
    code = f"import inplace; inplace.progress = print; inplace.{name}; inplace.progress('mine')"
    assert run(code).stdout == "mine\n"
