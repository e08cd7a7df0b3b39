"""NVRx's local checkpoints: a part in memory each step; PyTorch's distributed checkpoint to storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager

import inplace
from tests.frameworks.libraries.loop import State, train


class OnCpu(BasicTensorAwareStateDict):  # type: ignore[misc]
    """NVRx's state of a rank, without its demand that all tensors are on a GPU."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state_dict, self._is_hollow = state, False

    def copy_tensors_to_cpu(self, non_blocking: bool = False) -> None:
        """Return: they are there."""

    def restore_tensor_device(self, non_blocking: bool = True) -> None:
        """Return: they are there."""


class Manager(LocalCheckpointManager):  # type: ignore[misc]
    """NVRx's manager, which tells of a part as soon as it is whole: BEFORE the older one goes."""

    def _save(self, state_dict: OnCpu, ckpt_id: tuple[int, int, str]) -> None:
        super()._save(state_dict, ckpt_id)
        inplace.saved(ckpt_id[0], keep=2)


class Keeper:
    """The manager of one rank."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shared = Path(os.environ["CHECKPOINT_DIR"])
        self._manager = Manager(inplace.keep_dir() or "/tmp")

    def restore(self) -> int:
        """Load the step of the barrier, from memory if it is there; else the newest on storage."""
        step = inplace.resume_step()
        if step is None:
            step = max((int(path.parent.name) for path in self._shared.glob("*/.metadata")), default=0)
        return self.load(step)

    def load(self, step: int) -> int:
        """Load a step, from memory if it is there; 0 or less is none."""
        for half in self._manager.local_ckpt_dir.glob("*.dirty*"):
            half.unlink()  # a rank was killed in the middle of it, and NVRx would not write over it
        if step > 0 and any(iteration == step for iteration, *_ in self._manager._my_ckpt_ids()):
            self._manager.latest_iteration = step
            found, _ = self._manager.load()
            for name, tensor in self._state.items():
                tensor.copy_(found.state_dict[name])
        elif step > 0:
            dcp.load(self._state, checkpoint_id=self._shared / str(step), no_dist=True)
        return max(step, 0)

    def save(self, step: int, *, shared: bool) -> None:
        """Write this rank's part to memory, with the others."""
        self._manager.save(OnCpu(dict(self._state)), step)
        if shared:
            dcp.save(self._state, checkpoint_id=self._shared / str(step))
            inplace.saved(step, shared=True)

    def wait(self) -> None:
        """Return: `save` has written all."""


if __name__ == "__main__":
    train(Keeper)
