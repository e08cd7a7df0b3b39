"""
Hugging Face Trainer: steps, saves before a planned stop, and the step from which all go on.

    from inplace.integrations.transformers import InPlaceCallback, resume_from

    trainer = Trainer(model, args, train_dataset=dataset, callbacks=[InPlaceCallback(memory_every=10)])
    trainer.train(resume_from_checkpoint=resume_from(args))

`args.output_dir` is a folder that all Pods read; Trainer writes there as its arguments say. With `memory_every` and
`keep` in inplace.dev/restart each Pod also has a newer copy in memory. Trainer writes this copy, too, so it has what a
checkpoint has. This is for plain data parallel training; with FSDP or DeepSpeed leave `memory_every` out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

import inplace
from inplace.integrations.checkpoints import Checkpoints, bytes_of

_END = b"\n}\n"


class InPlaceCallback(TrainerCallback):  # type: ignore[misc]
    """Tell inplace what this rank does.

    Args:
        memory_every: copy the state to this Pod's memory each so many steps; 0 is never.
        busy_up_to_s: the longest evaluation or save, in seconds; a longer one counts as a hang.
    """

    def __init__(self, memory_every: int = 0, busy_up_to_s: float = 1800) -> None:
        self._memory_every, self._busy_up_to_s = memory_every, busy_up_to_s
        self._busy: Any = None
        self._own: dict[str, Any] = {}  # Trainer's arguments while it writes to memory instead
        self._is_asked = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check that all ranks begin at one step."""
        if self._memory_every and (args.fsdp or args.deepspeed):
            raise ValueError("memory_every: expected no FSDP and no DeepSpeed: a Pod would hold a part of the state")
        if args.save_only_model:
            raise ValueError("save_only_model: expected False, saw True: no run could go on from such a checkpoint")
        self._saves = Checkpoints(args.output_dir, find, self._memory_every)
        self._saves.begin(state.global_step, args.device)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the step BEFORE the wait for the others: a rank that hangs is then the one that is behind."""
        self._end_phase(args)
        inplace.progress(state.global_step)
        if self._saves.is_due(state.global_step + 1):
            self._saves.make_room(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Look for a request, and let Trainer write; a gradient of all ranks lies between the last save and this."""
        self._saves.settle()
        model, optimizer = more["model"], more["optimizer"]
        self._is_asked, fits = self._saves.look(
            state.global_step, lambda: bytes_of([model.state_dict(), optimizer.state_dict()]), args.device
        )
        if self._is_asked:
            control.should_save = True
        elif fits and not (control.should_save or (control.should_evaluate and _wants_the_best(args))):
            # These are what decides where Trainer writes, and who does; `on_save` or the next step puts them back.
            memory = {"output_dir": str(self._saves.memory), "save_on_each_node": True, "push_to_hub": False}
            self._own = {name: getattr(args, name) for name in (*memory, "save_total_limit")}
            for name, value in (memory | {"save_total_limit": None}).items():
                setattr(args, name, value)
            control.should_save = True
        self._begin_phase(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Expect no step while Trainer evaluates or saves."""
        self._begin_phase(control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell of the checkpoint, and end after a save that was asked for."""
        if self._own:
            self._end_phase(args)
            self._saves.copied(state.global_step)
            return
        self._saves.wrote(state.global_step)
        if self._is_asked and state.global_step < state.max_steps:
            self._saves.leave(state.global_step, args.device)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell of the last checkpoint; what the script does now has no steps, and the process's end ends the phase."""
        self._end_phase(args)
        self._saves.finish(args.device)
        self._busy = inplace.busy("after-training", up_to_s=self._busy_up_to_s)

    def _begin_phase(self, control: Any) -> None:
        if self._busy is None and (control.should_save or control.should_evaluate):
            self._busy = inplace.busy("save-evaluate", up_to_s=self._busy_up_to_s)

    def _end_phase(self, args: Any) -> None:
        for name, value in self._own.items():
            setattr(args, name, value)
        self._own = {}
        if self._busy is not None:
            self._busy.end()
        self._busy = None


def resume_from(args: Any) -> str | None:
    """Return the checkpoint from which `Trainer.train` goes on; None at a first start.

    Args:
        args: the TrainingArguments.

    Raises:
        CheckpointMissing: this rank has no checkpoint of the step that the barrier says.
    """
    _, path = Checkpoints(args.output_dir, find).resume()
    return None if path is None else str(path)


def find(folder: Path) -> Mapping[int, Path]:
    """Return the complete checkpoints: Trainer writes trainer_state.json last."""
    found = {}
    for path in folder.glob("checkpoint-*"):
        number = path.name.removeprefix("checkpoint-")
        if number.isdigit() and _is_whole(path / "trainer_state.json"):
            found[int(number)] = path
    return found


def _is_whole(state: Path) -> bool:
    """Say whether a file of indented JSON has its last line; it may be long, so nothing else is read."""
    try:
        with state.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:  # there is none yet, it is shorter, or another rank sets it aside
        return False


def _wants_the_best(args: Any) -> bool:
    """Say whether Trainer remembers where the best checkpoint is, which must not be memory."""
    return bool(args.load_best_model_at_end) or args.save_strategy == "best"
