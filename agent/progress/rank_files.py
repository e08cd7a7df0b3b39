"""
The folder of the ranks' progress files, made ready BEFORE each worker starts, be there a limit or not.

So a limit that somebody sets later finds the steps of the worker that runs. Strangers write there, too: no link is
followed, no pipe waited for, nothing read whole. An agent without a limit loads no other part of the watchdog
(docs/adr/0060).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from inplace.agent.settings.address import PROGRESS_MODE
from inplace.agent.settings.command import ELASTIC_FILE

NAMES_MAX = 1_024  # that one look reads; a folder with more is somebody's mistake, and the rest is left out
ERROR_SUFFIX = ".error"  # of what inplace/last_words.py leaves
NUMBERS_SUFFIX = ".numbers"  # of what inplace/rank_numbers.py counts
_KINDS = ("rank", "local", "jax", "pid")  # inplace/rank_file.py
_DIGITS_MAX = 10
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_rank_file(name: str) -> bool:
    """Say whether `inplace` names a rank's files like this, those of first steps, errors and numbers included."""
    return is_rank_name(name.removeprefix(".").removesuffix(ERROR_SUFFIX).removesuffix(NUMBERS_SUFFIX))


def is_rank_name(name: str) -> bool:
    """Say whether this is a rank's name, which is that of its progress file."""
    kind, _, number = name.partition("-")
    return kind in _KINDS and number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX


def make_folder(path: str) -> str:
    """Make the folder, for ranks of any user; return what is wrong, "" when it is there.

    Args:
        path: absolute, without a slash at its end: a link with one would be followed.
    """
    try:
        is_new = _make(path)
        with open_folder(path) as folder:
            if is_new:
                os.fchmod(folder, PROGRESS_MODE)
    except OSError as error:
        return folder_problem(path, error)
    return ""


def forget_steps(path: str) -> None:
    """Remove the files of `inplace.progress`; whatever else is there stays, and so does another user's file."""
    with suppress(OSError), open_folder(path) as folder:  # there is none, or it is gone meanwhile
        for name in first_names(folder):
            if is_rank_file(name) or name == ELASTIC_FILE:
                with suppress(OSError):  # another user's
                    os.unlink(name, dir_fd=folder)


def has_steps(path: str) -> bool:
    """Say whether a rank's file, or any other that is not hidden, lies in the folder."""
    try:
        with open_folder(path) as folder:
            return any(not name.startswith(".") and name != ELASTIC_FILE for name in first_names(folder))
    except OSError:
        return False  # there is none, or it is gone meanwhile


@contextmanager
def open_folder(path: str, above: int | None = None) -> Iterator[int]:
    """Give a descriptor of a folder that is no link.

    Raises:
        OSError: there is none, or it is a link or no folder.
    """
    folder = os.open(path, _FOLDER_FLAGS, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)


def read_start(folder: int, path: str, size: int) -> bytes:
    """Return the first `size` bytes of a regular file below an open folder; b"" for one that may not be read.

    Raises:
        OSError: it is gone, or no regular file any more.
    """
    *above, name = path.split("/", 1)
    if above:
        with open_folder(above[0], folder) as below:
            return read_start(below, name, size)
    try:
        file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except (PermissionError, BlockingIOError):  # another user's; somebody holds a lease on it
        return b""
    try:
        return os.read(file, size) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


def modified_s(folder: int, path: str) -> float:
    """Return when a file below an open folder changed last, by the file system's clock.

    Raises:
        OSError: it is gone.
    """
    return os.stat(path, dir_fd=folder, follow_symlinks=False).st_mtime_ns / 1e9


def first_names(folder: int) -> list[str]:
    """Return the first NAMES_MAX names in an open folder.

    Raises:
        OSError: the folder is gone.
    """
    with os.scandir(folder) as entries:
        return [entry.name for entry, _ in zip(entries, range(NAMES_MAX), strict=False)]


def folder_problem(path: str, error: OSError) -> str:
    """Say why the folder cannot be used."""
    return f"progress: expected a folder that is no link, saw {error.strerror} at {path}; the steps are not watched"


def _make(path: str) -> bool:
    try:
        os.mkdir(path)  # noqa: PTH102 - pathlib loads later than this
    except FileExistsError:
        return False
    return True
