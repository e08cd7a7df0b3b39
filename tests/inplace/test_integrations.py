"""What the trainers' integrations share: which checkpoint a rank loads, and what it tells of those that it wrote."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from inplace import resume
from inplace.integrations.checkpoints import SAVED, CheckpointMissing, Checkpoints, FolderRefuses, bytes_of
from inplace.resume import SavedFile
from tests.inplace.test_rank_file import ROOT, folder
from tests.inplace.test_resume import said

__all__ = ["folder"]  # a fixture


def find(within: Path) -> Mapping[int, Path]:
    """Return the checkpoints of a trainer that writes one file for each."""
    return {int(path.name.removeprefix("step-")): path for path in within.glob("step-*")}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the shared folder, and that in memory, of a rank that is the first of the first Pod."""
    shared, keep = tmp_path / "shared", tmp_path / "keep"
    for path in (shared, keep / "checkpoints"):
        path.mkdir(parents=True)
    monkeypatch.setenv("INPLACE_KEEP_DIR", str(keep))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("INPLACE_RESUME_STEP", raising=False)
    return shared, keep / "checkpoints"


def write(within: Path, *steps: int) -> None:
    """Write checkpoints."""
    for step in steps:
        (within / f"step-{step}").write_text("whole")


@pytest.mark.parametrize(
    ("agreed", "shared", "memory", "path", "left"),
    [
        ("", (10, 20), (25,), "shared/step-20", []),  # nobody can say: another Pod may have nothing in memory
        ("", (), (25,), None, []),
        ("25", (10, 20), (20, 25), "keep/checkpoints/step-25", ["step-20", "step-25"]),
        ("20", (10, 20), (25,), "shared/step-20", []),
        ("20", (10, 20, 30), (15, 20, 25), "keep/checkpoints/step-20", ["step-15", "step-20"]),
    ],
)
def test_all_load_the_step_of_the_barrier(
    places: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    agreed: str,
    shared: tuple[int, ...],
    memory: tuple[int, ...],
    path: str | None,
    left: list[str],
) -> None:
    """Each from the nearest place; what is newer is another line of training, and nobody finds it any more."""
    write(places[0], *shared)
    write(places[1], *memory)
    monkeypatch.setenv("INPLACE_RESUME_STEP", agreed)
    step, found = Checkpoints(places[0], find).resume()
    expected = None if path is None else places[0].parent / path
    assert (step, found) == (int(path.rpartition("-")[2]) if path else 0, expected)
    assert sorted(each.name for each in places[1].iterdir()) == left
    assert max(find(places[0]), default=0) <= max(step, *shared[:2], 0)
    assert len(list(places[0].iterdir())) == len(shared)  # a shared one is renamed, not removed


def test_a_step_that_is_not_here_ends_the_run(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that took another one would train with ranks of another step; nothing is set aside either."""
    write(places[0], 10, 30)
    write(places[1], 15)
    monkeypatch.setenv("INPLACE_RESUME_STEP", "20")
    with pytest.raises(CheckpointMissing, match=r"step 20 in .*, saw those of steps \[10, 15, 30\]; .* two such runs"):
        Checkpoints(places[0], find).resume()
    assert (len(find(places[0])), len(find(places[1]))) == (2, 1)


def test_a_checkpoint_is_told_once_it_is_seen(
    places: tuple[Path, Path], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there is not told; the line comes once, and training goes on."""
    monkeypatch.setattr(resume, "_FILE", SavedFile())
    own = Checkpoints(places[0], find)
    own.wrote(10)
    own.settle()
    own.wrote(20)
    own.settle()
    own.copied(20)
    assert not (folder / ".rank-3.saved").exists()
    assert capsys.readouterr().err.count("expected a complete checkpoint of step 10") == 1
    write(places[0], 30)
    own.wrote(30)
    own.settle()
    own.settle()
    told = said(folder)
    assert told is not None
    assert (told.local[0], told.shared) == (30, 30)


def test_two_copies_are_in_memory_at_most(places: tuple[Path, Path]) -> None:
    """What was half written goes, too, and what a later line of training would overwrite."""
    own = Checkpoints(places[0], find, memory_every=5)
    assert [step for step in range(1, 16) if own.is_due(step)] == [5, 10, 15]
    write(places[1], 5, 10, 15)
    (places[1] / "half").mkdir()
    own.make_room(15)
    assert [path.name for path in places[1].iterdir()] == ["step-10"]


@pytest.mark.parametrize("why", ["full", "refuses"])
def test_memory_that_takes_nothing_is_told_once(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """No copy is made, and training goes on."""
    need = 10**18 if why == "full" else 0
    if why == "refuses":
        places[1].rmdir()
        places[1].touch()
    own = Checkpoints(places[0], find, memory_every=5)
    assert [own.look(step, lambda: need, None) for step in (5, 6, 10)] == [(False, False)] * 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"inplace: no copies in {places[1]}: ")
    assert ("bytes free, saw" in line) == (why == "full")


def test_a_save_that_was_asked_for_ends_the_run(
    places: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks learn it where any can be asked, and a code other than 0 makes the group start again."""
    monkeypatch.setenv("INPLACE_SAVE_FILE", str(folder / "save"))
    own = Checkpoints(places[0], find)
    own.begin(0, None)
    monkeypatch.setattr(resume, "_FILE", SavedFile())
    assert own.look(1, lambda: 0, None) == (False, False)
    (folder / "save").write_text("7")  # the epoch of the fixture
    assert own.look(2, lambda: 0, None) == (True, False)
    write(places[0], 2)
    own.wrote(2)
    with pytest.raises(SystemExit) as ended:
        own.leave(2, None)
    assert ended.value.code == SAVED


def test_a_folder_that_takes_no_file_ends_the_run(places: tuple[Path, Path]) -> None:
    """Else each run would make its steps until the first save, and lose them."""
    (places[0] / "file").touch()
    with pytest.raises(FolderRefuses, match=r"takes checkpoints, saw .* Not a directory.*; training does not begin"):
        Checkpoints(places[0] / "file" / "run", find).begin(0, None)


def test_a_pod_without_memory_and_an_address(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `keep` in any Pod no step is copied, and an address is refused before training."""
    monkeypatch.delenv("INPLACE_KEEP_DIR", raising=False)
    own = Checkpoints(places[0], find, memory_every=5)
    own.begin(0, None)
    assert not own.is_due(5)
    with pytest.raises(ValueError, match="mounted in every Pod, saw s3://bucket/run"):
        Checkpoints("s3://bucket/run", find)


def test_bytes_of_a_state_are_those_of_its_tensors() -> None:
    """Whatever nest it is."""
    tensor = memoryview(b"12345678")
    assert bytes_of({"a": [tensor, 3], "b": {"c": (tensor,), "d": "text"}}) == 16


def test_scripts_import_no_integration_and_no_trainer() -> None:
    """`import inplace` and the functions that it has load none of them."""
    code = (
        "import inplace, sys; inplace.saved, inplace.progress; print([n for n in sys.modules if 'integrations' in n])"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"
