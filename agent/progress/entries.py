"""
Find files that strangers made, at a bounded cost: no link is followed, and no folder read whole.

Names are found below a folder by parts with wildcards, as a shell's are: `*`, `?` and `[...]` match within one name,
and not a dot that begins it. Only a hung file system makes this wait.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from inplace.agent.progress.rank_files import NAMES_MAX, open_folder
from inplace.agent.settings.paths import has_wildcard

ENTRIES_MAX: Final = NAMES_MAX  # some 10 ms a look on a busy machine
FOLDERS_MAX: Final = 256  # opened for one look, where folders have wildcards
UNFINISHED: Final = (".new", ".tmp")  # a writer renames such a file once it is complete


@dataclass(frozen=True, slots=True)
class Mark:
    """One state of a file: it changed when any of these did. No clock takes part."""

    inode: int
    modified_ns: int
    size: int


@dataclass(slots=True)
class Entries:
    """The regular files that one look found.

    Args:
        marks: path below the folder -> its state; at most ENTRIES_MAX, and FOLDERS_MAX without wildcards.
        left_out: so many entries, at least, were not looked at.
    """

    marks: dict[str, Mark] = field(default_factory=dict)
    left_out: int = 0
    _listed: int = 0
    _opened: int = 0

    def find(self, folder: int, parts: Sequence[str], above: str = "") -> None:
        """Add the regular files below an open folder that match, part by part."""
        part, *rest = parts
        for name in self._names(folder, part):
            with suppress(OSError):  # gone meanwhile, or another user's
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not rest and stat.S_ISREG(found.st_mode):
                    self.marks[above + name] = Mark(found.st_ino, found.st_mtime_ns, found.st_size)
                elif rest and stat.S_ISDIR(found.st_mode):
                    self._descend(folder, name, rest, above)

    def _descend(self, folder: int, name: str, rest: Sequence[str], above: str) -> None:
        if self._opened == FOLDERS_MAX:
            self.left_out += 1
            return
        self._opened += 1
        with open_folder(name, folder) as below:
            self.find(below, rest, f"{above}{name}/")

    def _names(self, folder: int, part: str) -> list[str]:
        """Return the names in a folder that match; one without wildcards stands for itself."""
        if not has_wildcard(part):
            return [part]
        names_max = ENTRIES_MAX - self._listed
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, names_max + 1)]
        self.left_out += len(names) > names_max  # how many more there are, only reading them all would tell
        self._listed += min(len(names), names_max)
        return [name for name in names[:names_max] if _matches(name, part)]


def _matches(name: str, part: str) -> bool:
    is_hidden = name[0] == "." and part[0] != "."
    return not is_hidden and not name.endswith(UNFINISHED) and fnmatchcase(name, part)
