"""
The annotation `inplace.dev/escalation`: what comes after which failure, and how often in how many seconds.

    inplace.dev/escalation: "InPlace=3,ReplacePod=2,RecreateJob=2,RecreateJobs=1,window=21600"

Each *escalation step* may be used at most so many times in any window of so many seconds. A counted failure uses the
first step that has room. When none has, the JobSet fails. The *uses* stand in `status.escalationUses`, written in the
status write that begins the restart, so neither a crash nor another leader loses or doubles one. docs/adr/0021. Pure:
the time comes from the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.settings import ACT, DAY_S, ESCALATION, MODE, OBSERVE, STEP_NAMES
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.wire import names as wire

# The Pod that failed first is replaced, or its Job is made anew; the others restart in place.
IN_PLACE, REPLACE_POD, RECREATE_JOB, RECREATE_JOBS = STEP_NAMES
FAIL: Final = "Fail"  # no step had room; a use's word, never the user's
LEAVE_NODE: Final = "LeaveNode"  # no step: a Pod leaves a bad node, or a marked one
LEAVE_DOMAIN: Final = "LeaveDomain"  # no step: a Job is made anew, because its domain is bad
LEAVES: Final = "PodLeavesNode"  # the Event's reason
LISTED_MAX: Final = 256  # of all, as the CRD has it, which would refuse the whole write, with S in it


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """One way to restart, and how often it may be used in any window of `window_s` seconds."""

    name: str
    uses_max: int
    window_s: int

    def __str__(self) -> str:
        """Say it for a person."""
        return f"{self.name} {self.uses_max} times in {self.window_s} s"


Escalation = tuple[EscalationStep, ...]


class Use(StatusRecord, frozen=True):
    """One use of a step: an item of status.escalationUses.

    Args:
        step: its name, or FAIL, LEAVE_NODE or LEAVE_DOMAIN.
        started_at: when the restart was decided, by the controller's clock; RFC 3339.
        epoch: to which the restart leads.
        scope: that restarts; "" for the whole JobSet.
        recreation: the restart is counted as a recreation of Jobs, and not by its epoch (controller/plan/budget.py).
        pod: name of the Pod that is replaced; "" for none.
        pod_uid: its UID.
    """

    step: str = field(default="", name="escalationStep")
    started_at: str = ""
    epoch: int = 0
    scope: str = ""
    recreation: bool = False
    pod: str = ""
    pod_uid: str = ""

    def leads_to(self, scope: str, epoch: int) -> bool:
        """Say whether it is that of one scope's restart to one epoch."""
        return (self.scope, self.epoch) == (scope, epoch)


def escalation_of(annotations: Mapping[str, Any], *, observed: bool = False) -> Escalation:
    """Return the steps in the user's order, those that are taken or those that are told alone; none where unset."""
    given = ESCALATION.read_or_default(annotations)
    window_s = given.pop("window", DAY_S)
    if (given.pop(MODE.name, ACT) == OBSERVE) is not observed:
        return ()
    return tuple(EscalationStep(name, uses_max, window_s) for name, uses_max in given.items())


def uses_of(status: Mapping[str, Any]) -> tuple[Use, ...]:
    """Read status.escalationUses, the oldest first; what another program wrote there is passed over."""
    found = status.get(wire.ESCALATION_USES)
    items = found if isinstance(found, list) else ()
    return tuple(Use.read(item) for item in items if isinstance(item, Mapping))


def fitting(escalation: Escalation, uses: Sequence[Use], now_s: float) -> EscalationStep | None:
    """Return the first step whose window has room; None where none has."""
    return next((step for step in escalation if count_uses(step, uses, now_s) < step.uses_max), None)


def count_uses(step: EscalationStep, uses: Sequence[Use], now_s: float) -> int:
    """Return how many uses lie in a step's window; a time in the future, from another clock, counts as now."""
    return sum(use.step == step.name and _age_s(use, now_s) < step.window_s for use in uses)


def kept(escalation: Escalation, uses: Sequence[Use], now_s: float, now: str) -> tuple[Use, ...]:
    """Return the uses that may still count: at most `uses_max` for each step. Times in the future become now."""
    steps = {step.name: step for step in escalation}
    left = {step.name: step.uses_max for step in escalation}
    newest_first = []
    for use in reversed(uses):
        step = steps.get(use.step)
        if step is not None and left[use.step] and _age_s(use, now_s) < step.window_s:
            left[use.step] -= 1
            newest_first.append(replace(use, started_at=now) if _age_s(use, now_s) <= 0 else use)
    return tuple(reversed(newest_first))


def listed(uses: Iterable[Use]) -> list[dict[str, Any]]:
    """Return status.escalationUses; of more than the list takes, the oldest uses of steps go, and may be used again."""
    known = list(uses)
    steps = (place for place, use in enumerate(known) if use.step in STEP_NAMES)
    forgotten = frozenset(islice(steps, max(0, len(known) - LISTED_MAX)))
    return [use.fields() for place, use in enumerate(known) if place not in forgotten]


def use_of_restart(uses: Sequence[Use], scope: str, epoch: int) -> Use | None:
    """Return the newest use of one scope's restart to one epoch, that of a step first; None if it has none."""
    found = [use for use in reversed(uses) if use.leads_to(scope, epoch)]
    return next((use for use in found if use.step not in (LEAVE_NODE, LEAVE_DOMAIN)), found[0] if found else None)


def step_of_restart(uses: Sequence[Use], scope: str, epoch: int) -> str:
    """Return what is done in one scope's restart to one epoch, for people; "" where it has no use."""
    if any(use.step == LEAVE_DOMAIN and use.leads_to(scope, epoch) for use in uses):
        return LEAVE_DOMAIN
    use = use_of_restart(uses, scope, epoch)
    return use.step if use is not None else ""


def pod_leaving(uses: Sequence[Use], scope: str, epoch: int) -> Use | None:
    """Return the newest use of one scope's restart to one epoch by which a Pod is replaced; None if it has none."""
    return next((use for use in reversed(uses) if use.pod_uid and use.leads_to(scope, epoch)), None)


def without_epoch(status: Mapping[str, Any], scope: str, epoch: int) -> list[dict[str, Any]]:
    """Return status.escalationUses without that of a restart which is not counted by its epoch after all."""
    return [use.fields() for use in uses_of(status) if use.recreation or not use.leads_to(scope, epoch)]


def led_on(status: Mapping[str, Any], scope: str, epoch: int, after: int) -> list[dict[str, Any]]:
    """Return status.escalationUses where a restart to one epoch leads to another: the first one is skipped."""
    uses = uses_of(status)
    return [(replace(use, epoch=after) if use.leads_to(scope, epoch) else use).fields() for use in uses]


def _age_s(use: Use, now_s: float) -> float:
    """Return how old a use is; a time that nobody can read never ages, rather than being forgotten early."""
    at_s = unix_time(use.started_at)
    return 0.0 if at_s is None else now_s - at_s
