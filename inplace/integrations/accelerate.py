"""
Accelerate: steps, saves, and the step from which all go on, for a training loop of your own.

    from inplace.integrations.accelerate import Saves

    saves = Saves(accelerator, folder, every=100, memory_every=10)  # AFTER accelerator.prepare
    first = saves.load()
    for step, batch in enumerate(accelerator.skip_first_batches(loader, first), first):
        saves.begin(step)
        ...
        saves.end(step + 1)

`folder` is one that all Pods read. `save_state` writes there each `every` steps, and before a planned stop. With
`memory_every` and `keep` in inplace.dev/restart each Pod also has a newer copy in memory. This is for plain data
parallel training; with FSDP or DeepSpeed leave `memory_every` out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType

import inplace
from inplace.integrations.checkpoints import Checkpoints, bytes_of

_PARTS = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
_NEW = ".new"  # behind the name of a checkpoint that is not complete


class Saves:
    """Save, and go on from what was saved.

    Args:
        accelerator: which has prepared model, optimizer and what else belongs to the state.
        folder: the shared one.
        every: steps between two checkpoints there.
        memory_every: steps between two copies in this Pod's memory; 0 is never.
        kept: how many of the newest checkpoints stay in the folder.
        busy_up_to_s: the longest save, in seconds; a longer one counts as a hang.

    Raises:
        ValueError: the accelerator is set up in a way that this does not work with.
    """

    def __init__(
        self,
        accelerator: Any,
        folder: str | os.PathLike[str],
        every: int,
        memory_every: int = 0,
        kept: int = 2,
        busy_up_to_s: float = 1800,
    ) -> None:
        if memory_every and accelerator.distributed_type in _PARTS:
            seen = accelerator.distributed_type
            raise ValueError(
                f"memory_every: expected plain data parallel, saw {seen}: a Pod would hold a part of the state"
            )
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise ValueError("automatic_checkpoint_naming: expected False, saw True: the names must have the step")
        self._accelerator, self._every, self._kept, self._busy_up_to_s = accelerator, every, kept, busy_up_to_s
        self._checkpoints = Checkpoints(folder, find, memory_every)

    def load(self) -> int:
        """Load the state from which all go on; return how many steps it has made, 0 at a first start.

        Raises:
            CheckpointMissing: this rank has no checkpoint of the step that the barrier says.
            RanksDiffer: the ranks would begin at different steps.
        """
        step, path = self._checkpoints.resume()
        self._checkpoints.begin(step, self._accelerator.device)
        if path is not None:
            with inplace.busy("load", up_to_s=self._busy_up_to_s):
                self._accelerator.load_state(str(path))
        return step

    def begin(self, step: int) -> None:
        """Report a step, counted from 0; call it BEFORE the wait for the others: who hangs is then who is behind."""
        inplace.progress(step)
        if self._checkpoints.is_due(step + 1):
            self._checkpoints.make_room(step + 1)

    def end(self, step: int) -> None:
        """Save where `step` steps are a reason to, or somebody asks for it; the process then ends with code SAVED."""
        accelerator, checkpoints = self._accelerator, self._checkpoints
        checkpoints.settle()  # the gradients of all ranks lie between the last save and this
        asked, fits = checkpoints.look(step, self._bytes, accelerator.device)
        if asked or step % self._every == 0:
            self._write(checkpoints.shared / f"step-{step}", accelerator.is_main_process)
            checkpoints.wrote(step)
            if accelerator.is_main_process:
                for old in sorted(find(checkpoints.shared).items())[: -self._kept]:
                    shutil.rmtree(old[1], ignore_errors=True)
        elif fits and checkpoints.memory:
            own = accelerator.project_configuration
            own.save_on_each_node, before = True, own.save_on_each_node
            self._write(checkpoints.memory / f"step-{step}", accelerator.is_local_main_process)
            own.save_on_each_node = before
            checkpoints.copied(step)
        if asked:
            checkpoints.leave(step, accelerator.device)

    def finish(self) -> None:
        """Tell of the last checkpoint, AFTER the last step."""
        self._checkpoints.finish(self._accelerator.device)

    def _write(self, path: Path, renames: bool) -> None:
        """Write a checkpoint; it has its name only when all ranks have written their part."""
        new = path.with_name(path.name + _NEW)
        with inplace.busy("checkpoint", up_to_s=self._busy_up_to_s):
            self._accelerator.save_state(str(new))
            self._accelerator.wait_for_everyone()
            if renames:
                shutil.rmtree(path, ignore_errors=True)
                new.rename(path)

    def _bytes(self) -> int:
        accelerator = self._accelerator
        return bytes_of([each.state_dict() for each in (*accelerator._models, *accelerator._optimizers)])  # noqa: SLF001


def find(folder: Path) -> Mapping[int, Path]:
    """Return the complete checkpoints."""
    names = {path.name.removeprefix("step-"): path for path in folder.glob("step-*") if path.is_dir()}
    return {int(name): path for name, path in names.items() if name.isdigit()}
