"""
What this Pod could load, of what its ranks said with `inplace.saved`: computed once for each epoch that it announces.

A rank's line counts for the run that wrote it. Of earlier runs count the steps that the Pod kept, up to the one from
which the last run went on (`common.protocol.resume.local_after`). A step is the Pod's if all its ranks have it; a rank
that told nothing has none.

A rank that goes on from a step also names its own copy of it in its line (`inplace.resume`). After a local step that is
right. After a shared one the copy may be a part of another whole, so the agent leaves it out.

The agent writes its answer and the epoch to EPOCH_FILE.saved BEFORE it announces them. So an agent that starts anew
announces the same. Without the file the steps of earlier runs are told no more.

The same file counts the runs that went on from one step and failed before any rank made or saved another. After
VAIN_RUNS of them in a row the step is unfit, for the life of this Pod: the group goes on from an older one.

Loaded only where a rank told of a step. Strangers write in the folder, too: see rank_files.py.
"""

from __future__ import annotations

import os
from contextlib import suppress

from inplace.agent.progress.rank_files import NAMES_MAX, first_names, is_rank_name, open_folder, read_start
from inplace.agent.settings.address import SAVED_SUFFIX
from inplace.agent.settings.epoch_file import EpochFile
from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX, decimal
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, NOTHING, Resume, Saved, local_after
from inplace.common.wire.parts import VERSION
from inplace.common.wire.progress import LINE_BYTES_MAX as PROGRESS_BYTES_MAX
from inplace.common.wire.progress import parse_progress
from inplace.common.wire.saved import (
    LINE_BYTES_MAX,
    SavedLine,
    parse_saved,
    read_local,
    read_step,
    step_word,
    steps_word,
)

VAIN_RUNS: Final = 2  # one may be chance
POD: Final = "pod"  # the rank of processes that no variable numbers


@record
class PodSteps:
    """The content of EPOCH_FILE.saved.

    Args:
        epoch: with which `saved` was announced; 0 for none.
        vain: the step from which the last runs went on, and failed; None for none.
        runs: so many.
    """

    epoch: int = 0
    saved: Saved = NOTHING
    vain: int | None = None
    runs: int = 0


@record
class RankSteps:
    """What the folder says: each rank's line, None for one that told nothing, and which ranks made a step."""

    lines: dict[str, SavedLine | None]
    stepped: bool
    whole: bool = True  # all names were seen


def saved_steps(folder: str, memory: EpochFile, epoch: int, resume: Resume | None) -> Saved:
    """Return what this Pod tells with the announcement of `epoch`; `resume` is from where epoch - 1 did."""
    kept = recall(memory)
    if kept.epoch == epoch:
        return kept.saved
    last, ranks = epoch - 1, _look(folder, epoch - 1)
    older = local_after(kept.saved.local, resume) if kept.epoch == last else ()
    lists = [_local(line, last, older) for line in ranks.lines.values()]
    local = frozenset.intersection(*lists) if lists and ranks.whole else frozenset[int]()
    foreign = resume.step if resume is not None and not resume.local else None
    fit = sorted(local - {kept.saved.unfit, foreign}, reverse=True)[:LOCAL_STEPS_MAX]
    saved = Saved(tuple(fit), _shared(ranks, last, kept.saved.shared), kept.saved.unfit)
    _keep(memory, replace(kept, epoch=epoch, saved=saved))
    if not older:
        _forget(folder, ranks, last)
    return saved


def note_run(folder: str, memory: EpochFile, epoch: int, step: int, *, failed: bool) -> bool:
    """Take note that a run which went on from `step` ended; say whether that step is unfit from now on.

    A run that did not fail by itself says nothing about the step, unless a rank got further.
    """
    kept, ranks = recall(memory), _look(folder, epoch)
    if ranks.stepped or any(line is not None and line.epoch == epoch for line in ranks.lines.values()):
        if kept.runs:
            _keep(memory, replace(kept, vain=None, runs=0))
        return False
    if not failed:
        return False
    runs = kept.runs + 1 if kept.vain == step else 1
    is_unfit = runs >= VAIN_RUNS
    saved = replace(kept.saved, unfit=step) if is_unfit else kept.saved
    _keep(memory, replace(kept, saved=saved, vain=None if is_unfit else step, runs=0 if is_unfit else runs))
    return is_unfit


def recall(memory: EpochFile) -> PodSteps:
    """Return what was kept; nothing where the file cannot be read."""
    words = (memory.recall_saved() or "").split(" ")
    if len(words) != 7 or words[0] != VERSION:
        return PodSteps()
    epoch, runs, local = decimal(words[1], INT32_MAX), decimal(words[6], VAIN_RUNS), read_local(words[2])
    shared, unfit, vain = map(read_step, words[3:6])
    if epoch is None or runs is None or local is None or not (shared and unfit and vain):
        return PodSteps()
    return PodSteps(epoch, Saved(local, shared[0], unfit[0]), vain[0], runs)


def _keep(memory: EpochFile, steps: PodSteps) -> None:
    """Keep it; on a full disk what is told once is not told again, which is safe."""
    saved = steps.saved
    words = map(step_word, (saved.shared, saved.unfit, steps.vain))
    memory.remember_saved(" ".join((VERSION, str(steps.epoch), steps_word(saved.local), *words, str(steps.runs))))


def _look(folder: str, epoch: int) -> RankSteps:
    """Read the files of the ranks: their lines, and which ranks the run of `epoch` had."""
    lines: dict[str, SavedLine | None] = {}
    stepped, names = False, list[str]()
    with suppress(OSError), open_folder(folder) as opened:
        names = first_names(opened)
        for name in names:
            rank = name.removeprefix(".").removesuffix(SAVED_SUFFIX)
            if name == f".{rank}{SAVED_SUFFIX}" and (is_rank_name(rank) or rank == POD):
                lines[rank] = parse_saved(_start(opened, name, LINE_BYTES_MAX))
            elif is_rank_name(name):
                progress = parse_progress(_start(opened, name, PROGRESS_BYTES_MAX))
                if progress.epoch == epoch:
                    lines.setdefault(POD if name.startswith("pid-") else name)
                    stepped = stepped or progress.begun
    return RankSteps(lines, stepped, len(names) < NAMES_MAX)


def _start(folder: int, name: str, size: int) -> bytes:
    """Return the start of a file; nothing of one that is gone, or is no file."""
    try:
        return read_start(folder, name, size + 1)
    except OSError:
        return b""


def _local(line: SavedLine | None, last: int, older: tuple[int, ...]) -> frozenset[int]:
    """Return which steps a rank can load."""
    if line is None or line.epoch > last:
        return frozenset()
    return frozenset(line.local if line.epoch == last else older)


def _shared(ranks: RankSteps, last: int, kept: int | None) -> int | None:
    """Return the newest shared step: of the last run, if it told one, as it may have gone back."""
    lines = [line for line in ranks.lines.values() if line is not None and line.shared is not None]
    of_last = [line.shared for line in lines if line.epoch == last]
    known = of_last or [line.shared for line in lines] + [kept]
    return max((step for step in known if step is not None), default=None)


def _forget(folder: str, ranks: RankSteps, last: int) -> None:
    """Remove the lines of earlier runs, which say nothing any more: this Pod may play another rank now."""
    with suppress(OSError), open_folder(folder) as opened:
        for rank, line in ranks.lines.items():
            if line is not None and line.epoch < last:
                with suppress(OSError):
                    os.unlink(f".{rank}{SAVED_SUFFIX}", dir_fd=opened)
