"""The watchdog's machine with a clock of its own: what it finds at each look."""

from __future__ import annotations

from typing import Any

from inplace.common.protocol.rank import RankLook, StallSettings
from inplace.common.protocol.stall import (
    Action,
    Look,
    Looked,
    RunStallCommand,
    StallCommandEnded,
    StallState,
    WorkerStarted,
    step,
)

TEN = StallSettings(10.0)  # a look each half second
BOTH = StallSettings(10.0, 60.0)


def rank(name: str = "rank-0", number: int | None = 1, *, changed: bool = True, **others: Any) -> RankLook:
    """Return a rank at a look."""
    return RankLook(name, changed, number, **others)


class Watchdog:
    """A machine with a clock that goes on by one period with each look.

    Args:
        runs_command: there is a command of --on-stall; else it has ended as soon as it is to run.
        runs: the worker ran before it was watched.
    """

    def __init__(
        self, settings: StallSettings = TEN, epoch: int | None = 5, *, runs_command: bool = False, runs: bool = False
    ) -> None:
        self.runs_command = runs_command
        self.now_s = 100.0
        self.epoch = epoch
        self.state, _ = step(StallState(settings), WorkerStarted(epoch, self.now_s, runs))

    def look(self, *ranks: RankLook, left_out: int = 0, problem: str = "", after_s: float = 0.0) -> tuple[Action, ...]:
        """Look once, a period later if not said otherwise."""
        self.now_s += after_s or self.state.settings.period_s
        look = Look(self.epoch, ranks, left_out, problem)
        self.state, actions = step(self.state, Looked(self.now_s, look))
        if not self.runs_command and any(isinstance(action, RunStallCommand) for action in actions):
            self.state, found = step(self.state, StallCommandEnded())
            return *actions[:-1], *found
        return actions

    def until(self, *ranks: RankLook, looks_max: int = 100_000) -> tuple[float, tuple[Action, ...]]:
        """Look at the same until something is to be done; return the seconds that took, and what."""
        began_s = self.now_s
        for _ in range(looks_max):
            if actions := self.look(*ranks):
                return self.now_s - began_s, actions
        return self.now_s - began_s, ()

    def work(self, steps: int, step_s: float = 1.0) -> list[Action]:
        """Let one rank make steps that take so long, a look each period."""
        found: list[Action] = []
        period_s = self.state.settings.period_s
        for number in range(1, steps + 1):
            found += self.look(rank(number=number))
            for _ in range(round(step_s / period_s) - 1):
                found += self.look(rank(number=number, changed=False))
        return found
