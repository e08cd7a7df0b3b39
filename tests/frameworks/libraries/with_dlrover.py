"""DLRover's flash checkpoint: the state in /dev/shm each step, to storage in the background.

What is where in /dev/shm stands only in the memory of DLRover's saver process. By default that is a child of local rank
0, which ends with its worker. With ROLE_NAME=dlrover-trainer there is none: `dlrover_saver` is one beside the worker,
in a container that outlives restarts in place.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

import inplace
from tests.frameworks.libraries.loop import State, train

TRACKER = "latest_checkpointed_iteration.txt"  # has the newest step whose file is whole


class Keeper:
    """The checkpointer; /dev/shm has room for one step."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._folder = Path(os.environ["CHECKPOINT_DIR"])
        self._checkpointer = DdpCheckpointer(str(self._folder))
        self._told = 0

    def restore(self) -> int:
        """Load the step of the barrier, from memory if it is there; without one, what DLRover finds."""
        wanted = inplace.resume_step()
        found = self._checkpointer.load_checkpoint()
        if wanted and (not found or found["step"] != wanted):
            found = torch.load(self._folder / str(wanted) / "rank_0.pt")
        for name, tensor in self._state.items():
            if found:
                tensor.copy_(found[name])
        return int(found["step"]) if found else 0

    def save(self, step: int, *, shared: bool) -> None:
        """Copy the state to /dev/shm, and let the saver write it to storage."""
        kind = StorageType.DISK if shared else StorageType.MEMORY
        self._checkpointer.save_checkpoint(step, {"step": step, **self._state}, storage_type=kind)
        if self._checkpointer._engine._cached_step == step:
            inplace.saved(step, keep=1)
        self._tell()

    def wait(self) -> None:
        """Return when the storage has what was saved last."""
        self._checkpointer.wait_latest_checkpoint()
        self._tell()

    def _tell(self) -> None:
        tracker = self._folder / TRACKER
        if tracker.exists() and (step := int(tracker.read_text() or 0)) != self._told:
            inplace.saved(step, shared=True)
            self._told = step


if __name__ == "__main__":
    train(Keeper, parts=False)
