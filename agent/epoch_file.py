"""
Remember the last announced epoch where a container restart does not reach: a file on an emptyDir.

Why, beside PREVIOUS_EPOCH: kubelet evaluates that variable from its own view of the Pod, which may lag. If the lag
meets a stale watch cache, a restarted worker could rejoin the running epoch (tests/model: "kubelet passes an old
annotation"). A local file does not lag. Not fsynced: it has to survive the container, not the node.

Beside it, in EPOCH_FILE.ran, stands the last epoch in which the worker ran: no annotation says that, and without it a
restarted worker could join its own epoch again when the JobSet's status is lost (docs/adr/0053).
"""

from __future__ import annotations

from inplace.agent.shared_file import read_shared, write_shared
from inplace.common.epoch.int32 import INT32_MAX
from inplace.common.typed import Final, Protocol

_TEXT_BYTES_MAX: Final = 64


class EpochMemory(Protocol):
    """Where an agent keeps the epoch it is about to announce."""

    def remember(self, epoch: int) -> str | None:
        """Keep `epoch`; return what went wrong, None when it is kept."""

    def remember_run(self, epoch: int) -> str | None:
        """Keep `epoch` as the one in which the worker runs; return what went wrong, None when it is kept."""


class NoMemory:
    """Keeps nothing: PREVIOUS_EPOCH has to do."""

    def remember(self, epoch: int) -> str | None:  # noqa: ARG002 - the interface's
        """Do nothing."""
        return None

    remember_run = remember


class EpochFile:
    """Two small files, each of which holds one decimal epoch."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._path_of_run = f"{path}.ran"

    def remember(self, epoch: int) -> str | None:
        """Keep the epoch that is about to be announced."""
        return write_file(self._path, str(epoch))

    def remember_run(self, epoch: int) -> str | None:
        """Keep the epoch in which the worker is about to run."""
        return write_file(self._path_of_run, str(epoch))

    def recall(self) -> tuple[int | None, str | None]:
        """Return (announced epoch, what is wrong with the file); (None, None) when there is no file yet."""
        return _read(self._path)

    def recall_run(self) -> tuple[int | None, str | None]:
        """Return (epoch in which the worker ran, what is wrong with the file); (None, None) when it never ran."""
        return _read(self._path_of_run)


def write_file(path: str, text: str) -> str | None:
    """Replace a file's content in one step, so that a crash leaves the old or the new text; return what went wrong."""
    try:
        write_shared(path, text.encode("ascii"))
    except OSError as error:
        return f"EPOCH_FILE: cannot write {path}: {error.strerror}"
    return None


def _read(path: str) -> tuple[int | None, str | None]:
    try:
        text = read_shared(path, _TEXT_BYTES_MAX).decode("ascii", "replace")
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"EPOCH_FILE: cannot read {path}: {error.strerror}"
    if text.isascii() and text.isdigit() and 1 <= int(text) <= INT32_MAX:
        return int(text), None
    return None, f"EPOCH_FILE: {path}: expected an integer from 1 to {INT32_MAX}, saw {text[:40]!r}"
