"""
Failures against which restarts do not help: one error, from one place, several times in a row without progress.

The error is the verdict's class and its last line, whatever the numbers and names in it. The place is the slot whose
worker is to blame, or the step at which the epochs ended, or the launch, for a program that never began to train.
Another error, another place, a restart for another reason and progress in between each begin the count anew. Not
counted are class `unknown`, of which nobody can say that it is the same failure, class `outside`, which is not the
job's, and echoes, which say nothing of what failed. It all follows from status.restartHistory and status.crashLoop.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from inplace.common.bare.record import record
from inplace.common.jobset.causes import trigger_of
from inplace.common.jobset.crash_loop import OWN_FAULTS, CrashLoop
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.restart_history import PastRestart
from inplace.common.jobset.verdict import Verdict, is_echo

_VALUES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
UNCOUNTED: Final = (FailureClass.UNKNOWN, FailureClass.OUTSIDE)


@record
class InVain:
    """The failure that comes back.

    Args:
        times: in a row.
        verdict: on the last of them.
        place: where all of them were, in words.
    """

    times: int
    verdict: Verdict
    place: str

    def __str__(self) -> str:
        """Say it with its proof and what helps."""
        found, proof, advice = self.verdict.found, self.verdict.proof, self.verdict.advice
        said = f" ({proof})" if proof else ""
        helps = f"; {advice}" if advice else ""
        times = f"{self.times} failures in a row of class {found.value} {self.place} without a step of progress"
        return f"restarts did not help: {times}{said}{helps}"


def in_vain(history: Sequence[PastRestart], loop: CrashLoop, scope: str, times: int) -> InVain | None:
    """Return the failure of a scope that came back so often, >= 2; None if there is none.

    The history has the restart that is under way, and the crash loop the failure that led to it.
    """
    last = [past for past in history if past.scope == scope][-times:]
    if loop.failures < times or len(last) < times or last[-1].epoch - last[0].epoch != times - 1:
        return None
    verdicts = [past.verdict for past in last]
    found = verdicts[-1].found
    if found in UNCOUNTED or any(one.culprit is not None and is_echo(one.culprit) for one in verdicts):
        return None
    is_one = len({(one.found, _error_of(one)) for one in verdicts}) == 1
    is_own = all(trigger_of({"trigger": past.trigger}) in OWN_FAULTS for past in last)
    if not is_one or not is_own or not (place := _place_of(last, verdicts)):
        return None
    return InVain(times, verdicts[-1], place)


def _error_of(verdict: Verdict) -> str:
    """Return the last line without its values; "" for none."""
    return _VALUES.sub("", verdict.culprit.last_line) if verdict.culprit is not None else ""


def _place_of(last: Sequence[PastRestart], verdicts: Sequence[Verdict]) -> str:
    """Return where all of these failures were; "" if they were in several places."""
    slots = {slot_of(one.culprit.pod) if one.culprit is not None else "" for one in verdicts}
    if len(slots) == 1 and "" not in slots:
        return f"from {slots.pop()}"
    if verdicts[-1].found is FailureClass.LAUNCH:
        return "at the launch"
    steps = {past.last_step for past in last}
    return f"at step {last[-1].last_step}" if len(steps) == 1 and None not in steps else ""


def slot_of(pod: str) -> str:
    """Return a Pod's name without the letters that each new Pod of its slot gets anew."""
    return pod.rpartition("-")[0] or pod
