"""
Lightning: steps, saves before a planned stop, and the step from which all go on.

    from inplace.integrations.lightning import InPlaceCallback, resume_from

    trainer = Trainer(callbacks=[ModelCheckpoint(folder, every_n_train_steps=100), InPlaceCallback(folder)])
    trainer.fit(model, ckpt_path=resume_from(folder))

`folder` is one that all Pods read. The names of its checkpoints have `step=N` in them, which is ModelCheckpoint's
default. With `memory_every` and `keep` in inplace.dev/restart each Pod also has a newer copy in memory. This is for
strategies in which each rank has the whole state: one device, and DDP.
"""

from __future__ import annotations

import os
import re
import signal
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

import inplace
from inplace.integrations.checkpoints import ASIDE, Checkpoints, bytes_of, is_first_of_pod

_NAME = re.compile(r"(?:.*[^a-zA-Z])?step=(\d+)(?:\D.*)?\.ckpt")


class InPlaceCallback(Callback):  # type: ignore[misc]
    """Tell inplace what this rank does.

    Args:
        folder: the shared one.
        memory_every: copy the state to this Pod's memory each so many steps; 0 is never.
        busy_up_to_s: the longest validation or save, in seconds; a longer one counts as a hang.
    """

    def __init__(self, folder: str, memory_every: int = 0, busy_up_to_s: float = 1800) -> None:
        self._saves = Checkpoints(folder, find, memory_every)
        self._memory_every, self._busy_up_to_s = memory_every, busy_up_to_s
        self._busy: Any = None
        self._step = 0  # the last one that was looked at: a batch may be a part of a step
        self._copies = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Remember what SIGTERM does, BEFORE Lightning handles it."""
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that all ranks begin at one step."""
        if self._memory_every and not isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
            seen = type(trainer.strategy).__name__
            raise ValueError(
                f"memory_every: expected DDP or one device, saw {seen}: a Pod would hold a part of the state"
            )
        if "INPLACE_EPOCH" in os.environ:
            # Lightning's handler waits in a broadcast for its peers: a Pod that ends would hang for its grace period.
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._step, self._device = trainer.global_step, pl_module.device
        self._saves.begin(self._step, self._device)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Report the step BEFORE the wait for the others: a rank that hangs is then the one that is behind."""
        self._end_phase()
        inplace.progress(trainer.global_step)
        if self._saves.is_due(trainer.global_step + 1):
            self._saves.make_room(trainer.global_step + 1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Copy the state, and save and end where somebody asks for it; ModelCheckpoint's turn comes after this."""
        step = trainer.global_step
        if step == self._step:
            return
        self._step = step
        self._saves.settle()  # the gradient of all ranks lies between the last save and this
        asked, fits = self._saves.look(
            step,
            lambda: bytes_of([pl_module.state_dict(), *(each.state_dict() for each in trainer.optimizers)]),
            self._device,
        )
        if asked:
            path = self._saves.shared / f"epoch={trainer.current_epoch}-step={step}.ckpt"
            trainer.save_checkpoint(path)
            if step != trainer.max_steps:
                self._saves.leave(step, self._device)
        elif fits:
            self._copy(trainer, step)

    def _copy(self, trainer: Any, step: int) -> None:
        """Write this Pod's copy; Lightning itself writes on one rank of all, so it has no public call for it."""
        self._copies = True
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001
        self._copies = False
        if is_first_of_pod():
            assert self._saves.memory is not None
            path = self._saves.memory / f"step={step}.ckpt"
            try:
                torch.save(state, path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)
            except (OSError, RuntimeError) as error:  # RuntimeError: PyTorch's own word for a full disk
                path.with_suffix(".new").unlink(missing_ok=True)
                self._saves.warn(f"no copy in {path}: {error}")
        self._saves.copied(step)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Remember a whole checkpoint that is about to be written, on all ranks; one of weights alone is none."""
        if not self._copies:
            self._saves.wrote(trainer.global_step)
            self._begin_phase("checkpoint")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Expect no step."""
        self._begin_phase("validation")

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Tell of the last checkpoint; what the script does now has no steps, and the process's end ends the phase."""
        self._end_phase()
        self._saves.finish(self._device)  # the module itself has left its device
        self._begin_phase("after-training")

    def _begin_phase(self, name: str) -> None:
        if self._busy is None:
            self._busy = inplace.busy(name, up_to_s=self._busy_up_to_s)

    def _end_phase(self) -> None:
        if self._busy is not None:
            self._busy.end()
        self._busy = None


def resume_from(folder: str) -> str | None:
    """Return the checkpoint from which `Trainer.fit` goes on; None at a first start.

    Raises:
        CheckpointMissing: this rank has no checkpoint of the step that the barrier says.
    """
    _, path = Checkpoints(folder, find).resume()
    return None if path is None else str(path)


def find(folder: Path) -> Mapping[int, Path]:
    """Return the complete checkpoints, of two of one step the later one.

    Lightning moves a file from /tmp into its place, which is a copy between two file systems: half of it may be there.
    A checkpoint's last bytes are its table of contents.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*.ckpt"), key=lambda path: (len(path.name), path.name)):
        name = _NAME.fullmatch(path.name)
        if name and not path.name.startswith(ASIDE) and zipfile.is_zipfile(path):
            found[int(name[1])] = path
    return found
