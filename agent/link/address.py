"""Where guard, agent and worker meet: the link's socket, progress and save file, in the folder that they share."""

from __future__ import annotations

import os

from inplace.common.bare.typed import Final

LINK_FILE: Final = "/var/run/inplace/link"  # where `inplace inject` has it
ADDRESS_BYTES_MAX: Final = 107  # sockaddr_un.sun_path, without its final zero; unix(7)
PROGRESS_DIR: Final = "INPLACE_PROGRESS_DIR"  # the worker's environment: where its ranks say how far they are


SAVE_FILE: Final = "INPLACE_SAVE_FILE"  # the worker's environment: where its ranks see that they are to save


def save_file(beside: str) -> str:
    """Return the path of the file that asks a worker to save, beside a shared file; "" without one."""
    return f"{beside.rpartition('/')[0]}/save" if beside else ""


def progress_dir(given: str, beside: str) -> str:
    """Return the folder that INPLACE_PROGRESS_DIR names, or else `progress` beside a shared file; "" without both."""
    return given or (f"{beside.rpartition('/')[0]}/progress" if beside else "")


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
