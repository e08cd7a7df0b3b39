"""Read what the workers of a framework's example print, and judge it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_STEP = re.compile(r"^step=(\d+) loss=(\S+) epoch=(\d+) rank=(\d+)$")
_RESUME = re.compile(r"^rank=(\d+) world=(\d+) epoch=(\d+) goes on from step (\d+)$")
_MIXED = "MIXED"
CHECKPOINT_EVERY = 10  # as the examples have it
TAIL_LINES = 12


class WorkerLines:
    """The lines of all workers, as far as they were read.

    Args:
        folder: of all Pods.
        container: the workers'.
        rounding: how far two losses of one step may differ and count as the same.
    """

    def __init__(self, folder: Path, container: str, rounding: float = 0.0) -> None:
        self._folder = folder
        self._container = container
        self._rounding = rounding
        self._read: dict[Path, int] = {}  # bytes
        self.losses: dict[int, str] = {}  # step -> the loss as the first worker printed it
        self.differing: list[str] = []  # steps whose loss another worker or epoch printed otherwise
        self.mixed: list[str] = []
        self.resumed: dict[int, set[int]] = defaultdict(set)  # epoch -> the steps from which its ranks went on
        self.reached: dict[int, int] = defaultdict(int)  # epoch -> the last step that any rank printed
        self.world = 0
        self.worlds: dict[int, int] = {}  # epoch -> how many ranks it has
        self.released = 0  # standbys that became workers

    @classmethod
    def of_text(cls, text: str, rounding: float = 0.0) -> Self:
        """Return the lines of one worker's whole output."""
        lines = cls(Path("/nonexistent"), "", rounding)
        lines.take(text)
        return lines

    @property
    def last_step(self) -> int:
        """Return the last step that was printed; 0 for none."""
        return max(self.reached.values(), default=0)

    def read(self) -> None:
        """Take the whole lines that came since the last reading."""
        for path in self._folder.glob(f"*/logs/{self._container}/*.log"):
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    chunk = file.read()
            except FileNotFoundError:  # its Pod is gone
                continue
            whole = chunk.rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole) + bool(whole)
            self.take(whole.decode("utf-8", "replace"))

    def tails(self) -> str:
        """Return the last lines of each log that is still there."""
        logs = sorted(self._folder.glob(f"*/logs/{self._container}/*.log"))
        return "\n".join(f"== {log}\n" + "\n".join(log.read_text().splitlines()[-TAIL_LINES:]) for log in logs)

    def take(self, text: str) -> None:
        """Take lines."""
        for line in text.splitlines():
            if match := _STEP.match(line):
                step, loss, epoch = int(match[1]), match[2], int(match[3])
                self.reached[epoch] = max(self.reached[epoch], step)
                if not self.are_same(self.losses.setdefault(step, loss), loss):
                    self.differing.append(f"expected loss {self.losses[step]}, saw: {line}")
            elif match := _RESUME.match(line):
                self.world = self.worlds[int(match[3])] = int(match[2])
                self.resumed[int(match[3])].add(int(match[4]))
            elif "standby_released" in line:
                self.released += 1
            elif _MIXED in line:
                self.mixed.append(line)

    def are_same(self, expected: str, loss: str) -> bool:
        """Say whether two printed losses are the same."""
        return abs(float(expected) - float(loss)) <= self._rounding


@dataclass(frozen=True)
class Findings:
    """What the lines of a run show.

    Args:
        mixed: lines in which a worker saw another epoch or step than its own.
        wrong_losses: steps whose loss is not that of the run without failures, or differs between workers or epochs.
        wrong_resumes: epochs whose ranks went on from different steps, or further back than the last checkpoint.
        epochs, steps: how many epochs trained, and the last step.
    """

    mixed: list[str]
    wrong_losses: list[str]
    wrong_resumes: list[str]
    epochs: int
    steps: int

    @classmethod
    def of(cls, lines: WorkerLines, expected: Mapping[int, str]) -> Self:
        """Judge the lines by each step's loss in a run without failures."""
        wrong = [
            f"step {step}: expected loss {expected.get(step)}, saw {loss}"
            for step, loss in sorted(lines.losses.items())
            if not lines.are_same(expected.get(step, "nan"), loss)
        ]
        return cls(
            lines.mixed, lines.differing + wrong, list(_wrong_resumes(lines)), len(lines.reached), lines.last_step
        )

    @property
    def are_clean(self) -> bool:
        """Say whether nothing is wrong, and something was trained."""
        return not (self.mixed or self.wrong_losses or self.wrong_resumes) and self.steps > 0

    def as_json(self) -> dict[str, Any]:
        """Return the counts, and the first of each kind of finding."""
        found = asdict(self)
        lists = {name: value for name, value in found.items() if isinstance(value, list)}
        examples = {name: value[:3] for name, value in lists.items() if value}
        return (
            found | {name: len(value) for name, value in lists.items()} | ({"examples": examples} if examples else {})
        )


def _wrong_resumes(lines: WorkerLines) -> list[str]:
    """Return what is wrong with the steps from which the epochs went on."""
    wrong, reached = [], 0
    for epoch in sorted(lines.resumed):
        steps = lines.resumed[epoch]
        if len(steps) > 1:
            wrong.append(f"epoch {epoch}: expected all ranks to go on from one step, saw {sorted(steps)}")
        if not reached - CHECKPOINT_EVERY <= min(steps) <= reached:
            wrong.append(
                f"epoch {epoch}: expected to go on at most {CHECKPOINT_EVERY} steps before {reached}, saw {steps}"
            )
        reached = max(reached, lines.reached.get(epoch, 0))
    return wrong
