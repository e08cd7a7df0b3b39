"""Planted bugs of the ladder, which its exploration must find; as `tests.model.planted`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.model.explore import Result
from tests.model.ladders import LADDERS, explore_ladders
from tests.model.plan_code import PlanCode


@dataclass(frozen=True, slots=True)
class LadderBug:
    """One planted bug.

    Args:
        name: what is wrong.
        code: with the mistake in it.
        ladder, faults, uncounted: where it shows, see `explore_ladders`.
        slow: takes too long for --quick.
    """

    name: str
    code: PlanCode
    ladder: str = LADDERS[0]
    faults: int = 2
    uncounted: bool = False
    slow: bool = False

    def hunt(self) -> Result:
        """Explore the code with the bug in it, where it shows."""
        return explore_ladders(self.code, self.ladder, faults=self.faults, uncounted=self.uncounted)


_IN_WINDOW: Final = "left[use.rung] and _age_s(use, now_s) < rung.window_s"

LADDER_BUGS: Final = (
    LadderBug("ladder: the window forgets at a leader change", PlanCode(forgets=True)),
    LadderBug(
        "ladder: a use is dropped when half its window is over",
        PlanCode("escalation", _IN_WINDOW, f"{_IN_WINDOW} / 2"),
    ),
    LadderBug(
        "ladder: a clock that is set back forgets",
        PlanCode("escalation", _IN_WINDOW, _IN_WINDOW.replace("_age_s", "0 <= _age_s")),
        LADDERS[2],
        faults=3,
    ),
    LadderBug(
        "ladder: replaces a healthy Pod after a hang",
        PlanCode("failed_pods", "cause.trigger is Trigger.WORKER_EXIT", "cause.trigger.is_failure"),
        LADDERS[1],
    ),
    LadderBug(
        "ladder: a death and the failure of its Job are counted twice",
        PlanCode("rungs", "if known is None or known.recreation:", "if True:"),
        LADDERS[2],
    ),
    LadderBug(
        "ladder: a restart is counted again when S grows",
        PlanCode("rungs", "return is_running and is_over and", "return is_over and"),
    ),
    LadderBug(
        "ladder: maxRestarts counts what RecreateJobs recreates twice",
        PlanCode("rungs", "    exempt_next_epoch(draft, (*others, scope), trigger)\n", ""),
        LADDERS[1],
    ),
    LadderBug(
        "ladder: S grows past the Pod that is to be replaced",
        PlanCode(
            "rungs",
            "return decision if is_skipped or not (use.pod_uid or use.rung == RECREATE_JOBS) else stays",
            "return decision",
        ),
        LADDERS[1],
    ),
)
