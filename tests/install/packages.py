"""Build the packages that a user installs, and environments with only their declared dependencies; no network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from sysconfig import get_path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
STEP_S_MAX = 300.0
# Folders of a working tree beside the sources; setuptools must not find them.
_MADE_HERE = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info", "tests"
)
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def build_packages(folder: Path) -> tuple[Path, Path]:
    """Return the wheel of a clean source tree, and the wheel of the sdist of that tree."""
    tree, sdists = folder / "tree", folder / "sdists"
    shutil.copytree(REPOSITORY, tree, ignore=_MADE_HERE)
    sdists.mkdir()
    _done([sys.executable, "-c", _SDIST, str(sdists)], tree)
    (sdist,) = sdists.iterdir()
    return _wheel(tree, folder / "of-tree"), _wheel(sdist, folder / "of-sdist")


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new environment beside the dependencies that it declares; return its programs' folder."""
    _done([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    packages = Path(get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for found in _closure("inplace"):
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            link = packages / name
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(name))))
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "-q", "--disable-pip-version-check"]
    _done([*pip, "--no-index", "--no-deps", str(wheel)], folder.parent)
    return folder / "bin"


def _wheel(source: Path, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    _done([*pip, "--no-build-isolation", "-w", str(folder), str(source)], source.parent)
    (wheel,) = folder.iterdir()
    return wheel


def _closure(name: str) -> Iterator[Distribution]:
    """Yield the distributions that `name` needs to run, without itself, each once."""
    reached, unread = {name}, [name]
    while unread:
        for line in distribution(unread.pop()).requires or ():
            needed = Requirement(line)
            if needed.name not in reached and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                reached.add(needed.name)
                unread.append(needed.name)
                yield distribution(needed.name)


def _done(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=STEP_S_MAX, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
