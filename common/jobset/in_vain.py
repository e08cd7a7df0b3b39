"""
Failures against which restarts do not help: one class, from one place, several times in a row without progress.

The class is the verdict's. The place is the slot whose worker is to blame, or the step at which the epochs ended, or
the launch, for a program that never began to train. Another class, another place, a restart for another reason and
progress in between each begin the count anew. What the worker of nobody explains counts for nothing: class `unknown`,
and `outside`, which is not the job's. It follows from status.restartHistory and status.crashLoop. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from inplace.common.bare.record import record
from inplace.common.jobset.causes import trigger_of
from inplace.common.jobset.crash_loop import OWN_FAULTS, CrashLoop
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.restart_history import PastRestart
from inplace.common.jobset.verdict import Verdict, is_echo

UNCOUNTED = (FailureClass.UNKNOWN, FailureClass.OUTSIDE)


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
        found, proof = self.verdict.found, self.verdict.proof
        said = f" ({proof})" if proof else ""
        helps = f"; {found.advice}" if found.advice else ""
        times = f"{self.times} failures in a row of class {found.value} {self.place} without a step of progress"
        return f"restarts did not help: {times}{said}{helps}"


def in_vain(history: Sequence[PastRestart], loop: CrashLoop, scope: str, times: int) -> InVain | None:
    """Return the failure of a scope that came back so often; None if there is none.

    Args:
        history: with the restart that is under way.
        loop: what came since the last progress, with the failure that led to that restart.
        scope: its name.
        times: how often, >= 2.
    """
    last = [past for past in history if past.scope == scope][-times:]
    if loop.failures < times or len(last) < times or last[-1].epoch - last[0].epoch != times - 1:
        return None
    verdicts = [past.verdict for past in last]
    found = verdicts[-1].found
    is_one = all(one.found is found for one in verdicts) and found not in UNCOUNTED
    is_own = all(trigger_of({"trigger": past.trigger}) in OWN_FAULTS for past in last)
    if not is_one or not is_own or not (place := _place_of(last, verdicts)):
        return None
    return InVain(times, verdicts[-1], place)


def _place_of(last: Sequence[PastRestart], verdicts: Sequence[Verdict]) -> str:
    """Return where all of these failures were; "" if they were in several places."""
    slots = {slot_of(one.culprit.pod) for one in verdicts if one.culprit is not None and not is_echo(one.culprit)}
    if len(slots) == 1 and all(one.culprit is not None and not is_echo(one.culprit) for one in verdicts):
        return f"from {slots.pop()}"
    if verdicts[-1].found is FailureClass.LAUNCH:
        return "at the launch"
    steps = {past.last_step for past in last}
    return f"at step {last[-1].last_step}" if len(steps) == 1 and None not in steps else ""


def slot_of(pod: str) -> str:
    """Return a Pod's name without the letters that each new Pod of its slot gets anew."""
    return pod.rpartition("-")[0] or pod
