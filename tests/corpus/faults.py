"""Read and write `faults.txt`: what each rank of a group left that really failed (`tests.corpus.generate`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "faults.txt"
HEAD: Final = """\
# Groups of real ranks that failed: name, what was to blame, and which ranks had the fault (tests/corpus/kinds.py).
# Then a line for each rank: number; exit code ("-": it ran on, and was killed after 8 s); seconds from the fault to its
# end; seconds until an exception had ended it, as inplace.last_words tells; last step told; the last line.
"""


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank ended.

    Args:
        code: its exit code; None: it ran on.
        ended_s: from the fault until its process ended.
        raised_s: until an exception ended it; None where nobody tells.
        step: the last one that it told.
    """

    rank: int
    code: int | None
    ended_s: float | None
    raised_s: float | None
    step: int | None
    line: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One group that failed.

    Args:
        name: framework/kind/who/where, and how.
        truth: the class that was to blame.
        culprits: the ranks that had the fault.
    """

    name: str
    truth: str
    culprits: frozenset[int]
    ends: tuple[RankEnd, ...]

    @property
    def kind(self) -> str:
        """Return its kind."""
        return self.name.split("/")[1]

    @property
    def end(self) -> str:
        """Return how the ranks with the fault end: "plain", "late", "finally" or "finally-late"."""
        last = self.name.rsplit("/", 1)[1]
        return last if last in ("late", "finally", "finally-late") else "plain"

    @property
    def is_held_out(self) -> bool:
        """Say whether no rule may be made for its words: a half, by the name."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 2 == 1


def text_of(fault: Fault) -> str:
    """Return the lines of one group."""
    rows = [f"\n{fault.name} {fault.truth} {','.join(map(str, sorted(fault.culprits)))}\n"]
    for end in fault.ends:
        cells = (end.rank, end.code, end.ended_s, end.raised_s, end.step)
        rows.append(" ".join(["-" if cell is None else str(cell) for cell in cells] + [end.line]).rstrip() + "\n")
    return "".join(rows)


def faults(file: Path = FILE) -> list[Fault]:
    """Return all groups of a file."""
    return [_fault(block.strip().splitlines()) for block in file.read_text().split("\n\n")[1:]]


def _fault(rows: list[str]) -> Fault:
    name, truth, culprits = rows[0].split()
    return Fault(name, truth, frozenset(map(int, culprits.split(","))), tuple(map(_end, rows[1:])))


def _end(row: str) -> RankEnd:
    rank, code, ended, raised, step, line = [*row.split(" ", 5), ""][:6]
    return RankEnd(
        int(rank),
        None if code == "-" else int(code),
        None if ended == "-" else float(ended),
        None if raised == "-" else float(raised),
        None if step == "-" else int(step),
        line,
    )
