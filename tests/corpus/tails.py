"""Read the corpus: what failed runs wrote last, and what was to blame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inplace.common.jobset.causes import Failure
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.wire.last_line import last_line_of

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Tail:
    """One failed run: what was to blame, and all that is told of it."""

    truth: FailureClass
    exit_code: int
    reason: str
    text: str

    @property
    def failure(self) -> Failure:
        """Return it as the status would have it."""
        return Failure("p", "n", "worker", self.exit_code, self.reason, last_line=last_line_of(self.text))


def tails(name: str) -> list[Tail]:
    """Return all of a file, in its order."""
    blocks = (FOLDER / name).read_text().split("\n\n")[1:]
    found = []
    for block in blocks:
        head, _, text = block.strip().partition("\n")
        truth, code, reason = head.split()
        found.append(Tail(FailureClass(truth), int(code), "" if reason == "-" else reason, "" if text == "-" else text))
    return found
