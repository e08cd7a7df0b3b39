"""
What the integrations share: from which checkpoint a rank goes on, what it tells inplace, and questions to all ranks.

A trainer has one folder that all Pods read, and may have copies in this Pod's memory (`inplace.keep_dir`), which are
newer. The barrier says the step, so all ranks load the same one, each from the nearest place. Where nobody can say it,
memory does not count: another Pod's may hold something else. A rank that lacks the step ends. After two such runs the
barrier takes an older step (docs/adr/0108): no rank ever chooses another step by itself.

What is newer than the step belongs to another line of training and is set aside BEFORE it is written anew: half of an
old checkpoint and half of a new one would look whole. The module imports no trainer.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import inplace

SAVED = 75  # the exit code after a save that was asked for: any code but 0 restarts the group
ASIDE = "left-"  # before the name of a shared checkpoint of another line of training
SPARE_BYTES = 1_000_000  # of a copy in memory, beside its tensors


class CheckpointMissing(Exception):
    """Raised where a rank has no checkpoint of the step from which all go on."""


class FolderRefuses(Exception):
    """Raised before the first step where the shared folder takes no file."""


class RanksDiffer(Exception):
    """Raised where the ranks of one run would begin at different steps."""


class Checkpoints:
    """The checkpoints of one training.

    Args:
        shared: the folder that all Pods read.
        find: returns the path of each complete checkpoint in a folder, by step.
        memory_every: a copy in memory each so many steps; 0 is never, as is a Pod without `keep` for the whole group.

    Raises:
        ValueError: `shared` is an address and no folder.
    """

    def __init__(
        self, shared: str | os.PathLike[str], find: Callable[[Path], Mapping[int, Path]], memory_every: int = 0
    ) -> None:
        if "://" in str(shared):
            raise ValueError(f"expected a folder of a file system that is mounted in every Pod, saw {shared}")
        keep = inplace.keep_dir()
        self.shared = Path(shared)
        self.memory = Path(keep, "checkpoints") if keep else None
        self._find = find
        self._every = memory_every if keep else 0
        self._is_asked = False  # somebody may ask a rank of this group to save
        self._unsettled: int | None = None  # a step that is written to `shared`, by this rank at least
        self._has_warned = False

    def resume(self) -> tuple[int, Path | None]:
        """Return the step from which all ranks go on, and this rank's checkpoint of it; (0, None) at a first start.

        Raises:
            CheckpointMissing: the barrier says a step that is not here.
        """
        agreed = inplace.resume_step()
        shared = self._find(self.shared)
        here = self._find(self.memory) if self.memory and agreed else {}
        step = max(shared, default=0) if agreed is None else agreed
        path = here.get(step) or shared.get(step)
        if step and path is None:
            raise CheckpointMissing(
                f"expected the checkpoint of step {step} in {self.memory or 'memory'} or {self.shared}, saw those of "
                f"steps {sorted({*here, *shared}) or '(none)'}; this run ends, and the group goes on from an older "
                "step after two such runs"
            )
        self._set_aside(step, agreed, shared)
        return step, path

    def begin(self, step: int, device: Any) -> None:
        """Make sure that all ranks go on from one step, and can save; each calls it, once.

        Raises:
            FolderRefuses: the first checkpoint would raise, after its steps, in each run again.
            RanksDiffer: they go on from different steps.
        """
        if is_first_of_pod() and is_first_pod():
            try:
                _try(self.shared)
            except OSError as error:
                raise FolderRefuses(
                    f"expected a folder that takes checkpoints, saw {error}; training does not begin"
                ) from error
        own = [step, -step, "INPLACE_SAVE_FILE" in os.environ, self.memory is None]
        highest, negated, asks, lacks_memory = largest(own, device)
        if highest != -negated:
            raise RanksDiffer(
                f"expected all ranks to go on from one step, saw steps {-negated} to {highest} (is {self.shared} one "
                "folder for all Pods?); this run ends, and the group tries again"
            )
        self._is_asked = bool(asks)
        if lacks_memory:  # of any rank: the questions of a step are the same for all
            self._every = 0

    def is_due(self, step: int) -> bool:
        """Say whether this step is copied to memory."""
        return bool(self._every) and step % self._every == 0

    def look(self, step: int, need_bytes: Callable[[], int], device: Any) -> tuple[bool, bool]:
        """Return whether any rank was asked to save, and whether this step is due and fits into each Pod's memory.

        All ranks call it after the same step and get the same answer. Where nobody can ask, and no copy is due, it
        costs nothing.
        """
        is_due = self.is_due(step)
        if not (is_due or self._is_asked):
            return False, False
        fits = is_due and self._has_room(need_bytes())
        asked, is_left_out = largest([inplace.save_requested(), not fits], device)
        return bool(asked), not is_left_out

    def make_room(self, step: int) -> None:
        """Remove copies from memory, so that the newest and this step's are there afterwards.

        Call it BEFORE a collective of the step: other ranks of this Pod write into the same folder after it.
        """
        if self.memory is None or not is_first_of_pod():
            return
        older = {number: path for number, path in self._find(self.memory).items() if number < step}
        kept = older[max(older)] if older else None
        for path in self.memory.glob("*"):
            if path != kept:
                _remove(path)

    def copied(self, step: int) -> None:
        """Tell that this rank's part of a copy in memory is written."""
        if self.memory and (not is_first_of_pod() or step in self._find(self.memory)):
            inplace.saved(step)

    def wrote(self, step: int) -> None:
        """Remember that this rank's part of a shared checkpoint is written; `settle` tells it."""
        self._unsettled = step

    def settle(self) -> None:
        """Tell of the checkpoint that was written last, if it is really there; call it after the next collective."""
        step, self._unsettled = self._unsettled, None
        if step is None:
            return
        if step in self._find(self.shared):
            inplace.saved(step)
            inplace.saved(step, shared=True)
        else:
            self.warn(f"expected a complete checkpoint of step {step} in {self.shared}, saw none; it does not count")

    def finish(self, device: Any) -> None:
        """Wait until all ranks have written, and tell of it."""
        largest([0], device)
        self.settle()

    def leave(self, step: int, device: Any) -> NoReturn:
        """End this process, after a save that was asked for is complete on all ranks."""
        self.finish(device)  # the first rank that ends is the end of all
        print(f"inplace: saved step {step}, as it was asked; this run ends with code {SAVED}", flush=True)
        sys.exit(SAVED)

    def warn(self, problem: str) -> None:
        """Say what is wrong, once a process; training goes on."""
        if not self._has_warned:
            print(f"inplace: {problem}. Training goes on.", file=sys.stderr, flush=True)
        self._has_warned = True

    def _has_room(self, need_bytes: int) -> bool:
        assert self.memory is not None
        try:
            _try(self.memory)
            free = shutil.disk_usage(self.memory).free
        except OSError as error:
            self.warn(f"no copies in {self.memory}: {error}")
            return False
        if free < need_bytes + SPARE_BYTES:
            self.warn(f"no copies in {self.memory}: expected {need_bytes + SPARE_BYTES:,} bytes free, saw {free:,}")
        return free >= need_bytes + SPARE_BYTES

    def _set_aside(self, step: int, agreed: int | None, shared: Mapping[int, Path]) -> None:
        """Take what is newer than `step` out of the way; it cannot be called a checkpoint of this training any more."""
        if self.memory and is_first_of_pod():
            for number, path in self._find(self.memory).items():
                if number > step or agreed is None:
                    _remove(path)
        if not (is_first_of_pod() and is_first_pod()):
            return
        for number, path in shared.items():
            if number > step:
                old = path.with_name(f"{ASIDE}{path.name}")
                try:
                    _remove(old)
                    path.rename(old)
                except OSError as error:
                    self.warn(f"{path} is newer than step {step} and stays: {error}")


def largest(numbers: Sequence[int], device: Any) -> list[int]:
    """Return the largest of each number over all ranks: one small all_reduce, which waits for the slowest.

    Args:
        numbers: as many on each rank.
        device: where the process group's tensors are.
    """
    own = [int(number) for number in numbers]
    torch: Any = sys.modules.get("torch")  # a trainer has imported it, or there is one rank
    if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return own
    tensor = torch.tensor(own, dtype=torch.int64, device=device)
    torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
    return [int(number) for number in tensor.tolist()]


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a nest of dicts, lists and tensors."""
    if isinstance(state, Mapping):
        return sum(bytes_of(each) for each in state.values())
    if isinstance(state, list | tuple):
        return sum(bytes_of(each) for each in state)
    return int(state.nbytes) if hasattr(state, "nbytes") else 0


def is_first_of_pod() -> bool:
    """Say whether this process writes for its Pod."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def is_first_pod() -> bool:
    """Say whether this Pod has rank 0; a trainer that starts its own ranks knows the Pod's number alone."""
    return os.environ.get("RANK") == "0" if "RANK" in os.environ else os.environ.get("NODE_RANK", "0") == "0"


def _try(folder: Path) -> None:
    """Write a file into a folder, and remove it."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f".{os.getpid()}"
    own.touch()
    own.unlink()


def _remove(path: Path) -> None:
    """Remove a file or a folder; what is gone already is no error."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
