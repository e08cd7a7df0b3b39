"""
Remember the last announced epoch where a container restart does not reach: a file on an emptyDir.

Why, beside PREVIOUS_EPOCH: kubelet evaluates that variable from its own view of the Pod, which may lag. If the lag
meets a stale watch cache, a restarted worker could rejoin the running epoch (tests/model: "kubelet passes an old
annotation"). A local file does not lag. Not fsynced: it has to survive the container, not the node.
"""

from __future__ import annotations

import os

from common.epoch.int32 import INT32_MAX
from common.typed import Protocol


class EpochMemory(Protocol):
    """Where an agent keeps the epoch it is about to announce."""

    def remember(self, epoch: int) -> str | None:
        """Keep `epoch`; return what went wrong, None when it is kept."""


class NoMemory:
    """Keeps nothing: PREVIOUS_EPOCH has to do."""

    def remember(self, epoch: int) -> str | None:  # noqa: ARG002 - the interface's
        """Do nothing."""
        return None


class EpochFile:
    """One small file that holds one decimal epoch."""

    def __init__(self, path: str) -> None:
        self._path = path

    def remember(self, epoch: int) -> str | None:
        """Replace the file's content in one step, so that a crash leaves the old or the new epoch."""
        temporary = f"{self._path}.new"
        try:
            with open(temporary, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 3 ms on the start path
                file.write(str(epoch))
            os.replace(temporary, self._path)  # noqa: PTH105
        except OSError as error:
            return f"EPOCH_FILE: cannot write {self._path}: {error.strerror}"
        return None

    def recall(self) -> tuple[int | None, str | None]:
        """Return (epoch, what is wrong with the file); (None, None) when there is no file yet."""
        try:
            with open(self._path, encoding="ascii") as file:  # noqa: PTH123
                text = file.read(64)
        except FileNotFoundError:
            return None, None
        except (OSError, ValueError) as error:
            return None, f"EPOCH_FILE: cannot read {self._path}: {error}"
        if text.isascii() and text.isdigit() and 1 <= int(text) <= INT32_MAX:
            return int(text), None
        return None, f"EPOCH_FILE: {self._path}: expected an integer from 1 to {INT32_MAX}, saw {text[:40]!r}"
