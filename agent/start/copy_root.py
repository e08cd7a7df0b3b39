"""
Copy agent, guard and their Python into a volume, for nodes without image volumes.

It is the program /inplace/bin/copy. An init container of the agent's image runs it, and the worker's container mounts
the volume at /inplace, read-only. Init containers run again at every restart in place, so a whole copy of the same
build stays as it is.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from inplace.agent.settings.exit_code import ExitCode
from inplace.common.bare.typed import Final

ROOT: Final = Path("/inplace")
PARTS: Final = ("bin", "lib", "train")
BUILD_ID: Final = "build-id"  # images/agent_root.py makes it
USAGE: Final = "usage: copy FOLDER    copy what is at /inplace into FOLDER, an empty volume\n"


def copy_root(target: Path, source: Path = ROOT) -> bool:
    """Copy what the worker's container needs, unless the same build is there; say whether something was copied.

    Raises:
        OSError: there is no such folder, or a file cannot be read or written.
    """
    target.stat()  # a volume is mounted there; a copy beside it would be lost
    build_id, mark = (source / BUILD_ID).read_bytes(), target / BUILD_ID
    if mark.exists() and mark.read_bytes() == build_id:
        return False
    mark.unlink(missing_ok=True)
    for part in PARTS:
        shutil.copytree(source / part, target / part, copy_function=_replace, dirs_exist_ok=True)
    mark.write_bytes(build_id)  # AFTER all others: only a whole copy has it
    return True


def _replace(source: str, target: str) -> None:
    """Copy one file; a program that still runs from the target keeps its own."""
    fresh = f"{target}.new"
    shutil.copy(source, fresh)
    os.replace(fresh, target)  # noqa: PTH105 - shutil gives names


def main() -> int:
    """Follow the command line; return the exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write(USAGE)
        return ExitCode.CONFIG
    try:
        copy_root(Path(sys.argv[1]))
    except (OSError, shutil.Error) as error:
        sys.stderr.write(f"copy: expected to copy {ROOT} to {sys.argv[1]}, saw: {error}\n")
        return ExitCode.CONFIG
    return 0
