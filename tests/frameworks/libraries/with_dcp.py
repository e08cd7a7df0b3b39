"""PyTorch's distributed checkpoint: a part in memory each step, and all parts to shared storage in the background."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import inplace
from tests.frameworks.libraries.loop import State, train

KEPT = 2


class Keeper:
    """Checkpoints of one rank; each is a folder with the step as its name, complete when it has `.metadata`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shared = Path(os.environ["CHECKPOINT_DIR"])
        self._local = Path(inplace.keep_dir() or "/tmp") / f"rank-{dist.get_rank()}"
        self._group = dist.new_group(backend="gloo")  # of the thread that saves: its collectives are not the loop's
        self._saving: tuple[int, Future[Any]] | None = None

    def restore(self) -> int:
        """Load the step of the barrier, else the newest that is complete for all.

        No rank waits for another: one may have a step of the storage in its memory, too, where another has not.
        """
        step = inplace.resume_step()
        if step is None:
            step = max((int(path.parent.name) for path in self._shared.glob("*/.metadata")), default=0)
        if step and (self._local / str(step) / ".metadata").exists():
            dcp.load(self._state, checkpoint_id=self._local / str(step), no_dist=True)
        elif step:
            dcp.load(self._state, checkpoint_id=self._shared / str(step), no_dist=True)
        return step

    def save(self, step: int, *, shared: bool) -> None:
        """Write this rank's part to memory, and begin to write all parts to storage."""
        dcp.save(self._state, checkpoint_id=self._local / str(step), no_dist=True)
        inplace.saved(step, keep=KEPT)
        for path in self._local.iterdir():
            if not step - KEPT < int(path.name) <= step:
                shutil.rmtree(path)
        if self._saving and self._saving[1].done():
            self.wait()
        if shared and self._saving is None:
            target = self._shared / str(step)
            self._saving = step, dcp.async_save(self._state, checkpoint_id=target, process_group=self._group)

    def wait(self) -> None:
        """Tell of the step that is on storage: `result` returns when all ranks have written their parts."""
        if self._saving:
            step, saving = self._saving
            saving.result()
            inplace.saved(step, shared=True)
            self._saving = None


if __name__ == "__main__":
    train(Keeper)
