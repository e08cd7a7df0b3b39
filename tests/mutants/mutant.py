"""A mutant, and its planting: in a copy of the packages, which another process imports."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "agent", "controller", "simulator", "deploy", "examples")  # a campaign imports or reads these


class Area(Enum):
    """The part of the system that has the bug."""

    PROTOCOL = "protocol"
    AGENT = "agent"
    WATCHDOG = "watchdog"
    INFORMER = "informer"
    QUEUE = "queue"
    LEADER = "leader election"
    BACKOFF = "backoff"
    CONTROLLER = "controller"
    BUDGET = "budget"
    KUBELET = "kubelet"


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement.

    Args:
        path: of the file, from the root.
        old: text that occurs exactly once in it.
        new: its replacement.
    """

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Make the replacement below `root`.

        Raises:
            StaleMutantError: `old` does not occur exactly once.
        """
        file = root / self.path
        text = file.read_text()
        if text.count(self.old) != 1:
            raise StaleMutantError(
                f"{self.path}: expected {self.old!r} exactly once, saw it {text.count(self.old)} times; "
                "the code changed: plant the same mistake in what it is now"
            )
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()  # old byte code must never hide the mistake
        file.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug.

    Args:
        name: the mistake, in words.
        model: the other project's bug that it is modelled on; "" for a bug of our own invention.
        faults: the faults without which it has no effect; AFTER the first seeds, some are drawn from them alone.
    """

    name: str
    area: Area
    edits: tuple[Edit, ...]
    model: str = ""
    faults: tuple[str, ...] = ()

    def plant(self, root: Path) -> None:
        """Copy the packages to `root`, with the bug in them."""
        for package in PACKAGES:
            shutil.copytree(ROOT / package, root / package)  # with what is byte-compiled already: it saves seconds
        shutil.copytree(ROOT / "inplace", root / "inplace", symlinks=True)
        for edit in self.edits:
            edit.apply(root)


class StaleMutantError(Exception):
    """A mutant does not fit the code any more."""
