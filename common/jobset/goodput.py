"""
What restarts cost a group in training time: `goodput` in the status, brought up to date when a restart ends.

A *run* is what a group does in one epoch. When it ended, its Pods say how far it was (common/wire/last_progress.py): of
the Pod that was furthest behind, the first and the last step, and the pace. The run after it says where it began again,
but only when it ends itself. So all numbers reach to the first step of the newest run that was told; what that run lost
is known one restart later.

From the first step of one run to the first step of the next, time is one of three:

    useful   steps that were not made again, times the run's pace; a pause between two steps is part of the pace
    lost     steps that were made again, times that pace
    restart  all the rest: the silence before the restart, the restart, loading, and the way to the first step

The effective training time ratio is useful / (useful + lost + restart). This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.protocol.last_progress import LastProgress

FIELD: Final = "goodput"


@record
class Run:
    """One run that was told.

    Args:
        first, last: its steps.
        pace_s: seconds of one step on average; 0 if it made only one.
        first_s: when its first step was made, Unix time by the controller's clock.
    """

    first: int
    last: int
    pace_s: float
    first_s: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """Sums over the restarts whose costs are known.

    Args:
        restarts: how many these are.
        useful_s, lost_s, restart_s: see above; useful_s may fall when a group goes back behind its last beginning.
        lost_steps: steps that were made again.
        run: the newest run that was told; None if the last one was not.
    """

    restarts: int = 0
    useful_s: float = 0.0
    lost_s: float = 0.0
    restart_s: float = 0.0
    lost_steps: int = 0
    run: Run | None = None

    @property
    def ratio(self) -> float | None:
        """Return the effective training time ratio, 0 to 1; None while no restart's cost is known."""
        wall_s = self.useful_s + self.lost_s + self.restart_s
        return min(max(self.useful_s / wall_s, 0.0), 1.0) if self.restarts and wall_s > 0.0 else None

    def fields(self) -> dict[str, Any]:
        """Return the status's field."""
        fields: dict[str, Any] = {
            "restarts": self.restarts,
            "usefulMilliseconds": _ms(self.useful_s),
            "lostMilliseconds": _ms(self.lost_s),
            "restartMilliseconds": _ms(self.restart_s),
            "lostSteps": self.lost_steps,
        }
        if self.run is not None:
            moment = datetime.fromtimestamp(self.run.first_s, UTC).isoformat(timespec="microseconds")
            fields["run"] = {
                "firstStep": self.run.first,
                "lastStep": self.run.last,
                "stepMicroseconds": round(self.run.pace_s * 1e6),
                "firstStepTime": moment.removesuffix("+00:00") + "Z",
            }
        return fields


def goodput_of(fields: Mapping[str, Any]) -> Goodput | None:
    """Read it from the fields of a status or of a scope; None if it is not there."""
    found = fields.get(FIELD)
    if not isinstance(found, Mapping):
        return None
    run = found.get("run")
    return Goodput(
        _number(found, "restarts"),
        _number(found, "usefulMilliseconds") / 1000,
        _number(found, "lostMilliseconds") / 1000,
        _number(found, "restartMilliseconds") / 1000,
        _number(found, "lostSteps"),
        _run_of(run) if isinstance(run, Mapping) else None,
    )


def goodput_text(goodput: Goodput) -> str:
    """Say in one line, for a person, what restarts cost; "" while nothing is known."""
    if goodput.ratio is None:
        return ""
    restarts = f"{goodput.restarts:,} restart{'s' if goodput.restarts > 1 else ''}"
    lost = (
        f"{goodput.lost_steps:,} steps ({goodput.lost_s:,.1f} s) made again, {goodput.restart_s:,.1f} s without a step"
    )
    return f"effective training time {100 * goodput.ratio:.1f} % over {restarts}: {lost}"


def after_run(old: Goodput | None, progress: LastProgress | None, ended_s: float | None) -> Goodput | None:
    """Take in the run that ended; None while nothing was ever told.

    Args:
        old: before it.
        progress: of the Pod that was furthest behind; None if no Pod told.
        ended_s: when the restart that ended the run began, Unix time.
    """
    if progress is None or progress.step is None or ended_s is None:
        return None if old is None else replace(old, run=None)
    made, pace_s = progress.made or 0, progress.pace_s or 0.0
    first_s = ended_s - progress.quiet_s - made * pace_s
    run = Run(progress.step - made, progress.step, pace_s, first_s)
    old = old or Goodput()
    if old.run is None or run.first_s <= old.run.first_s:  # somebody set the clock back: begin anew
        return replace(old, run=run)
    pace_s = old.run.pace_s or run.pace_s
    told = old.run.last - old.run.first + 1
    kept = min(run.first - old.run.first, told)
    return Goodput(
        old.restarts + 1,
        old.useful_s + kept * pace_s,
        old.lost_s + (told - kept) * pace_s,
        old.restart_s + max(0.0, run.first_s - old.run.first_s - told * pace_s),
        old.lost_steps + told - kept,
        run,
    )


def _run_of(fields: Mapping[str, Any]) -> Run | None:
    first_s = unix_time(fields.get("firstStepTime"))
    if first_s is None:
        return None
    first, last, pace_us = (_number(fields, name) for name in ("firstStep", "lastStep", "stepMicroseconds"))
    return Run(first, max(first, last), max(pace_us, 0) / 1e6, first_s)


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
