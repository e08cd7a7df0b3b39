"""
Where guard, agent and worker meet: the link's socket, and beside it a folder that the worker's side writes.

The agent alone writes where the socket lies, in the Pods that the controller makes: a worker that could would give
guards another agent (docs/adr/0062). In the other folder are the ranks' progress, the file that asks them to save, and
a guard's notes.
"""

from __future__ import annotations

import os

from inplace.common.bare.typed import Final

LINK_FILE: Final = "/var/run/inplace/link"  # where `inplace inject` has it
ADDRESS_BYTES_MAX: Final = 107  # sockaddr_un.sun_path, without its final zero; unix(7)
PROGRESS_MODE: Final = 0o1777  # as /tmp: the worker may be any user
SAVED_SUFFIX: Final = ".saved"  # of the file in which a rank says what it saved (inplace/resume.py)
_NAMES_MAX: Final = 1_024  # as agent/progress/rank_files.py has it
SAVE_FILE: Final = "INPLACE_SAVE_FILE"  # the worker's environment: where its ranks see that they are to save


def save_file(folder: str) -> str:
    """Return the path of the file that asks a worker to save, in the folder of its ranks' progress; "" without one."""
    return f"{folder}/.save" if folder else ""


def has_saved(folder: str) -> bool:
    """Say whether a rank said in the folder of progress what it saved."""
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry, _ in zip(entries, range(_NAMES_MAX)))  # noqa: B905 - some are left out
            return any(name.endswith(SAVED_SUFFIX) for name in names)
    except OSError:
        return False


def progress_dir(given: str, beside: str) -> str:
    """Return the folder that INPLACE_PROGRESS_DIR names, or else `progress` beside a shared file; "" without both."""
    return given or (f"{beside.rpartition('/')[0]}/progress" if beside else "")


def tail_folder(link_file: str, epoch_file: str) -> str:
    """Return the folder, in memory, in which the worker's parent keeps the tail of a run; "" for none."""
    return progress_dir("", link_file) if link_file else epoch_file.rpartition("/")[0]


def make_progress_dir(folder: str) -> None:
    """Make the folder, for ranks of any user, unless it is there; only somebody's own manifest has no volume there."""
    umask = os.umask(0)
    try:
        os.mkdir(folder, PROGRESS_MODE)  # noqa: PTH102 - pathlib costs 3 ms
    except OSError:
        pass  # it is there; or what is to be written there says what is wrong
    finally:
        os.umask(umask)


class reachable:  # noqa: N801 - a context manager, used as a function
    """Yield an address for a socket's path; one that is too long is reached through its open folder."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= ADDRESS_BYTES_MAX:
            return self._path
        folder, _, name = self._path.rpartition("/")
        self._folder = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{name}"

    def __exit__(self, *_: object) -> None:
        if self._folder >= 0:
            os.close(self._folder)
