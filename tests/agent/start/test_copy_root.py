"""The copy of /inplace into a volume, where a node has no image volumes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inplace.agent.start.copy_root import copy_root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a root with one program, one library, a link to itself, and files of the image alone."""
    root = tmp_path / "image"
    for name in ("bin/guard", "lib/python3.11/os.pyc", "train/inplace/__init__.py", "sbom.cdx.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "bin/guard").chmod(0o755)
    (root / "inplace").symlink_to(".")
    (root / "build-id").write_text("1\n")
    return root


def files(folder: Path) -> list[str]:
    """Return the names of all files."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_programs_and_libraries_are_copied_once(source: Path, tmp_path: Path) -> None:
    """The copy has programs and libraries with their modes; a second copy of the same build touches nothing."""
    target = tmp_path / "volume"
    target.mkdir()
    assert copy_root(target, source)
    assert files(target) == ["bin/guard", "build-id", "lib/python3.11/os.pyc", "train/inplace/__init__.py"]
    assert os.access(target / "bin/guard", os.X_OK)
    before = (target / "bin/guard").stat().st_ino
    assert not copy_root(target, source)
    assert (target / "bin/guard").stat().st_ino == before


def test_another_build_replaces_the_copy(source: Path, tmp_path: Path) -> None:
    """Each file is replaced, not overwritten: a program that still runs keeps the file that it was started from."""
    target = tmp_path / "volume"
    target.mkdir()
    copy_root(target, source)
    running = (target / "bin/guard").open()
    (source / "bin/guard").write_text("newer")
    (source / "build-id").write_text("2\n")
    assert copy_root(target, source)
    assert (target / "bin/guard").read_text() == "newer"
    with running:
        assert running.read() == "bin/guard"


def test_a_copy_that_was_cut_short_is_made_again(source: Path, tmp_path: Path) -> None:
    """Only a whole copy says which build it is, and one that fails says so no more."""
    target = tmp_path / "volume"
    target.mkdir()
    copy_root(target, source)
    (target / "bin/guard").unlink()
    (source / "build-id").write_text("2\n")
    (source / "lib/python3.11/os.pyc").unlink()
    (source / "lib/python3.11").rmdir()
    (source / "lib").rmdir()
    with pytest.raises(OSError, match="lib"):
        copy_root(target, source)
    assert not (target / "build-id").exists()


def test_a_full_volume_is_named_and_gets_no_mark(source: Path, tmp_path: Path) -> None:
    """An emptyDir in memory, or a node's disk, that is full: the init container says so, and tries again whole."""
    if shutil.which("unshare") is None:
        pytest.skip("expected unshare (util-linux), which mounts such a folder, saw none")
    (source / "lib/large").write_bytes(b"x" * 100_000)
    target = tmp_path / "volume"
    target.mkdir()
    program = (
        "import sys; from pathlib import Path; from inplace.agent.start.copy_root import copy_root\n"
        "try:\n    copy_root(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except OSError as error:\n    print(error, (Path(sys.argv[1]) / 'build-id').exists())"
    )
    inside = f'mount -t tmpfs -o size=64k tmpfs {target} && exec "$@"'
    mounted = ("unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh")
    command = [*mounted, sys.executable, "-c", program, str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "No space left on device" in done.stdout
    assert done.stdout.split()[-1] == "False"


def test_a_path_without_a_volume_is_refused(source: Path, tmp_path: Path) -> None:
    """A misspelt path gets no copy that nobody would mount."""
    with pytest.raises(FileNotFoundError, match="volume"):
        copy_root(tmp_path / "volume", source)
    assert not (tmp_path / "volume").exists()
