"""
Look at the files in which the worker's ranks say how far they are.

The training container writes them, and may put anything in their place: links, pipes, 100,000 files, files that never
end. One look stats at most ENTRIES_MAX entries and reads 64 bytes of at most RANKS_MAX files; rank_files.py keeps it
from waiting, but for a hung file system: the caller looks from a thread of its own.

Progress belongs to an epoch. `begin` is called BEFORE the worker starts: it removes the files of `inplace.progress` and
keeps a mark of every other one. A file counts when it changed since, and names the epoch that began, or none. Its
modification time is compared with its own last one, never with a clock.

Beside its file a rank of `inplace.progress` leaves `.NAME` at its first step, once: with that step, and its time. Its
numbers are in `.NAME.numbers`.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from inplace.agent.progress.entries import ENTRIES_MAX, Entries, Mark
from inplace.agent.progress.rank_files import (
    NUMBERS_SUFFIX,
    folder_problem,
    forget_steps,
    is_rank_file,
    make_folder,
    modified_s,
    open_folder,
    read_start,
)
from inplace.agent.settings.paths import split_pattern
from inplace.common.protocol.rank import RankLook, RankNumbers
from inplace.common.protocol.stall import RANKS_MAX, Look
from inplace.common.wire.progress import LINE_BYTES_MAX, UNKNOWN, ProgressLine, parse_progress
from inplace.common.wire.rank_numbers import parse_rank_numbers

NAME_CHARACTERS_MAX: Final = 64  # of a rank, in log lines and metrics
PATTERN_RANK: Final = "progress-file"  # the one rank that all files of a pattern are together
_MARKS_MAX: Final = 4 * ENTRIES_MAX  # of files from before; a folder that is never seen whole shows others each time
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._/-]")
_DIGITS: Final = re.compile(r"([0-9]{1,10})")
Content = tuple[Mark, bytes]
First = tuple[int, float]  # a rank's first step, and when it was made by its file's time
Rank = tuple[str, ProgressLine, bool, float, First | None, RankNumbers | None]
"""Path below the folder, what it says, whether it changed since the last look, when by its own time, its first step,
its numbers."""


class _EpochFiles:
    """Which files below a folder are this epoch's progress; `parts` are names, with wildcards."""

    def __init__(self, folder: str, parts: Sequence[str]) -> None:
        self._folder = folder
        self._parts = parts
        self._epoch: int | None = None
        self._before: dict[str, Mark | None] = {}  # files from before this epoch; None once they changed
        self._saw_all = False  # so that a file that is not in _before is new
        self._counted: dict[str, Content] = {}  # as the last look showed them
        self._firsts: dict[str, First] = {}

    def begin(self, epoch: int | None, *, runs: bool = False) -> str:
        """Take note of what is there, BEFORE the worker starts; return what is wrong, "" when nothing is.

        Args:
            epoch: of the worker; None where in-place restart is off.
            runs: this epoch's worker runs: what `_is_own` says of a file is its progress as it is.
        """
        unready, found, problem = self._make_ready(runs=runs), Entries(), ""
        try:
            with open_folder(self._folder) as folder:
                found.find(folder, self._parts)
        except FileNotFoundError:
            pass  # all that comes is new
        except OSError as error:
            problem = folder_problem(self._folder, error)
        before: dict[str, Mark | None] = {
            path: mark for path, mark in found.marks.items() if not (runs and self._is_own(path))
        }
        self._epoch, self._before, self._counted, self._firsts = epoch, before, {}, {}
        self._saw_all = not problem and not found.left_out
        return problem or unready

    def look(self) -> Look:
        """Return every rank whose progress is this epoch's; blocks as long as the file system does."""
        found = Entries()
        try:
            with open_folder(self._folder) as folder:
                found.find(folder, self._parts)
                paths = sorted(self._changed(found.marks), key=self._order)
                contents = dict(_read(folder, paths[:RANKS_MAX], found.marks))
                last, self._counted = self._counted, {}
                ranks = self._ranks(list(self._counting(folder, contents, last)))
        except OSError as error:
            return Look(self._epoch, problem=folder_problem(self._folder, error))
        return Look(self._epoch, ranks, found.left_out + max(0, len(paths) - RANKS_MAX))

    def _make_ready(self, *, runs: bool) -> str:  # noqa: ARG002
        """Make the folder ready for the next worker, unless it runs; return what is wrong, "" when nothing is."""
        return ""

    def _is_own(self, path: str) -> bool:
        """Say whether a file can only be from a worker of this epoch."""
        raise NotImplementedError

    def _ranks(self, found: Sequence[Rank]) -> tuple[RankLook, ...]:
        """Return the ranks that the files are which count."""
        raise NotImplementedError

    def _counting(self, folder: int, contents: Mapping[str, Content], last: Mapping[str, Content]) -> Iterator[Rank]:
        """Yield the files that are of this epoch."""
        for path, (mark, text) in contents.items():
            line = parse_progress(text) if mark.size <= LINE_BYTES_MAX else UNKNOWN
            if line.epoch in (None, self._epoch):
                self._counted[path] = mark, text
                changed_s = mark.modified_ns / 1e9
                if path not in self._firsts and line.step is not None:
                    self._firsts[path] = self._first(folder, path) or (line.step, changed_s)
                changed = last.get(path) != (mark, text)
                numbers = self._numbers(folder, path) if changed else None
                yield path, line, changed, changed_s, self._firsts.get(path), numbers

    def _first(self, folder: int, path: str) -> First | None:
        """Return what a rank of `inplace.progress` left at its first step."""
        if not is_rank_file(path):
            return None
        with suppress(OSError):
            line = parse_progress(read_start(folder, f".{path}", LINE_BYTES_MAX))
            if line.step is not None and line.epoch in (None, self._epoch):
                return line.step, modified_s(folder, f".{path}")
        return None

    def _numbers(self, folder: int, path: str) -> RankNumbers | None:
        """Return what a rank of `inplace.progress` counted; None where there is nothing of this epoch."""
        if not is_rank_file(path):
            return None
        with suppress(OSError):
            return parse_rank_numbers(read_start(folder, f".{path}{NUMBERS_SUFFIX}", LINE_BYTES_MAX), self._epoch)
        return None

    def _changed(self, marks: Mapping[str, Mark]) -> Iterator[str]:
        """Yield the files that are not as they were when the epoch began."""
        for path, mark in marks.items():
            if path not in self._before and not self._saw_all and len(self._before) < _MARKS_MAX:
                self._before[path] = mark  # it may have been there
            before = self._before.get(path, None if self._saw_all else mark)
            if before != mark:
                if before is not None:
                    self._before[path] = None
                yield path

    def _order(self, path: str) -> tuple[bool, bool, list[str | int]]:
        """Sort files: those that were ranks already, then those of `inplace.progress`; rank-9 before rank-10."""
        parts: list[str | int] = [*_DIGITS.split(path)]
        parts[1::2] = [int(digits) for digits in parts[1::2]]
        return path not in self._counted, not is_rank_file(path), parts


class ProgressFolder(_EpochFiles):
    """The folder INPLACE_PROGRESS_DIR: one file a rank.

    Args:
        path: the folder; it may not be a link.
        is_alive: says whether a process exists, where the worker's process ids are ours; by default, all do.
    """

    def __init__(self, path: str, is_alive: Callable[[int], bool] = lambda _: True) -> None:
        super().__init__(path.rstrip("/") or "/", ("*",))  # a link with a slash behind it would be followed
        self._is_alive = is_alive

    def _make_ready(self, *, runs: bool) -> str:
        problem = make_folder(self._folder)
        if not runs:  # else that was done before it started
            forget_steps(self._folder)
        return problem

    def _is_own(self, path: str) -> bool:
        return is_rank_file(path)

    def _ranks(self, found: Sequence[Rank]) -> tuple[RankLook, ...]:
        return tuple(_rank_look(found_one, self._is_alive) for found_one in found)


class ProgressFiles(_EpochFiles):
    """Files of any program, named by a pattern: together they are one rank, which is silent when all of them are.

    Each file alone means nothing: logs are rotated, and often one rank alone writes one.

    Args:
        pattern: an absolute path with wildcards that `settings.paths.problem_of_pattern` finds nothing wrong with.
    """

    def __init__(self, pattern: str) -> None:
        super().__init__(*split_pattern(pattern))

    def _is_own(self, path: str) -> bool:  # noqa: ARG002 - all files are one rank
        return True

    def _ranks(self, found: Sequence[Rank]) -> tuple[RankLook, ...]:
        if not found:
            return ()
        steps = [line.step for _, line, *_ in found if line.step is not None]
        changed = any(changed for _, _, changed, *_ in found)
        return (RankLook(PATTERN_RANK, changed, min(steps, default=None)),)


def rank_name(path: str) -> str:
    """Return a file's name as a rank's: safe in a log line and a label, and another one for each file."""
    name = _UNSAFE.sub("_", path)
    if name == path and len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"{name[: NAME_CHARACTERS_MAX - 9]}.{zlib.crc32(os.fsencode(path)):08x}"


def _read(folder: int, paths: Sequence[str], marks: Mapping[str, Mark]) -> Iterator[tuple[str, Content]]:
    """Yield the start of each file that is still there."""
    for path in paths:
        with suppress(OSError):
            yield path, (marks[path], read_start(folder, path, LINE_BYTES_MAX))


def _rank_look(rank: Rank, is_alive: Callable[[int], bool]) -> RankLook:
    path, line, changed, changed_s, first, numbers = rank
    first_step, first_s = first or (None, None)
    return RankLook(
        rank_name(path),
        changed,
        line.step,
        line.begun,
        line.pid,
        line.busy,
        line.busy_s_max,
        line.ended or (line.pid is not None and not is_alive(line.pid)),
        changed_s,
        first_step,
        first_s,
        numbers,
    )
