"""
Answers that are drawn and not applied: what `mode=observe` of a setting, and no setting at all, would have done.

    inplace.dev/nodes: "failures=2,mode=observe"        also without the annotation: a node that fails again is told
    inplace.dev/failures: "no-progress=3,mode=observe"  it would have failed the JobSet
    inplace.dev/escalation: "InPlace=4,ReplacePod=2,mode=observe"
    inplace.dev/restart-on: "kinds=stall,mode=observe"  also without the annotation: a hang is told

All of it follows from the restarts that the status keeps, and is drawn when a restart ends: its entry names the
answers, an Event says each in words. Whether an answer was right shows in what came after it. Pure. docs/adr/0114
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.bad_nodes import BadNodes, NodeRecord, Records, records_of
from inplace.common.jobset.causes import Cause, Failure, Trigger, trigger_of, unix_time
from inplace.common.jobset.crash_loop import CrashLoop, backoff_of
from inplace.common.jobset.escalation import FAIL, Use, escalation_of, fitting
from inplace.common.jobset.failure_class import class_of
from inplace.common.jobset.notices import GroupNotice, restart_on
from inplace.common.jobset.restart_history import PastRestart, history_of, past_restart, with_restart
from inplace.common.jobset.settings import ESCALATION, FAILURES, NODES, RESTART_ON, STEP_NAMES
from inplace.common.wire import names as wire
from inplace.common.wire.notice import PAUSE, STALL

OBSERVED: Final = "AnswerObserved"  # the Event's reason
NODE: Final = "nodes"
NO_PROGRESS: Final = "no-progress"
SHOWN_WITHIN_S: Final = 3600.0  # after which a node or Pod that fails no more counts as one that was well


Answer = tuple[str, str]
"""Of what kind it is (NODE, NO_PROGRESS, a step of the escalation or its end, STALL or PAUSE); what would be done."""


@record
class Judged:
    """How often answers of one kind would have been given, how many were right, and how many wrong."""

    count: int = 0
    right: int = 0
    wrong: int = 0

    def __add__(self, other: Judged) -> Judged:
        """Return both together."""
        return Judged(self.count + other.count, self.right + other.right, self.wrong + other.wrong)

    def __str__(self) -> str:
        """Say it for a person."""
        times = "once" if self.count == 1 else f"{self.count} times"
        left = self.count - self.right - self.wrong
        open_words = f", of {left} nobody knows yet" if left else ""
        return f"would have acted {times}: {self.right} right, {self.wrong} wrong{open_words}"


def restarts_of(status: Mapping[str, Any]) -> tuple[PastRestart, ...]:
    """Return the restarts that the status keeps, and after them the one that is under way."""
    entry, known = status.get(wire.LAST_GROUP_RESTART), history_of(status)
    if not isinstance(entry, dict) or "syncedAt" in entry or not isinstance(entry.get("epoch"), int):
        return known
    return with_restart(known, past_restart(entry, None))


def suspected(restarts: Iterable[PastRestart], policy: BadNodes, now: str) -> Records:
    """Return the nodes on which workers failed first in the window, as the restarts tell; the last one at the end.

    A node is bad if it has enough first failures, and more than all other nodes together: a script that fails wherever
    it runs blames no node.
    """
    now_s = unix_time(now) or 0.0
    recent = [past for past in restarts if _is_of_its_node(past) and _age_s(past, now_s) <= policy.window_s]
    counts, records = Counter(past.node for past in recent), dict[str, NodeRecord]()
    for past in recent:
        count = counts[past.node]
        is_bad = count >= policy.failures and 2 * count > len(recent)
        times = (*records.pop(past.node, NodeRecord()).failed_at, past.started_at)
        since = past.started_at if is_bad else ""
        records[past.node] = NodeRecord(past.node, times, since, pod=past.pod, why=str(_failure(past)))
    return tuple(records.values())


def known_nodes(status: Mapping[str, Any], asked: BadNodes | None, suspects: BadNodes | None, now: str) -> Records:
    """Return what is known of a JobSet's nodes: the records that its status keeps, or what its restarts tell."""
    if asked is not None:
        return records_of(status, asked, now)
    return suspected(restarts_of(status), suspects, now) if suspects is not None else ()


def answers(
    annotations: Mapping[str, Any],
    restarts: Sequence[PastRestart],
    *,
    suspects: BadNodes | None,
    loop: CrashLoop,
    notices: Iterable[GroupNotice],
    now: str,
) -> Iterator[Answer]:
    """Yield what would have been done about the newest restart.

    Args:
        annotations: of the JobSet.
        restarts: that the status keeps, this one at the end.
        suspects: when a node is told of; None where the JobSet acts itself, or wants no word of it.
        loop: the crash loop with which the next epoch begins.
        notices: of the epoch that ended.
        now: RFC 3339.
    """
    newest = restarts[-1]
    if suspects is not None:
        yield from _of_nodes(suspects, restarts, now)
    backoff = backoff_of(annotations)
    if backoff.is_observed and loop.is_beyond(backoff):
        seen = f"{loop.epochs} epochs in a row without progress"
        yield NO_PROGRESS, f"{seen}: the jobset would have failed ({FAILURES.named(NO_PROGRESS)})"
    trigger, steps = trigger_of({"trigger": newest.trigger}), escalation_of(annotations, observed=True)
    if steps and trigger.is_failure and trigger not in (Trigger.DISRUPTED, Trigger.JOB_FAILED):
        uses = [Use(kind, past.started_at) for past in restarts[:-1] for kind in past.answers if kind in STEP_NAMES]
        step = fitting(steps, uses, unix_time(now) or 0.0)
        did = f"escalation step {step.name} would have been taken" if step else "the jobset would have failed"
        yield step.name if step else FAIL, f"{did} ({ESCALATION.key})"
    if STALL not in restart_on(annotations):
        yield from _of_hangs(notices, newest)


def judged(restarts: Sequence[PastRestart], now_s: float) -> dict[str, Judged]:
    """Say of each kind of answer how often it would have been given, and how often that was right.

    Right is: a node or Pod that failed first again within an hour; after NO_PROGRESS and the escalation's end a failure
    and never a higher step; a silence after which the group restarted. Wrong is: an hour without that; a higher step;
    a silence after which the rank went on.
    """
    found: dict[str, Judged] = {}
    for place, past in enumerate(restarts):
        later = [one for one in restarts[place + 1 :] if one.scope == past.scope]
        for kind in past.answers:
            if kind == STEP_NAMES[0]:  # that was done anyway
                continue
            was_right = _was_right(kind, past, later, now_s)
            key = STALL if kind == PAUSE else kind
            found[key] = found.get(key, Judged()) + Judged(1, int(was_right is True), int(was_right is False))
    return found


def _was_right(kind: str, past: PastRestart, later: Sequence[PastRestart], now_s: float) -> bool | None:
    """Say whether an answer would have been right; None while nobody knows."""
    if kind in (STALL, PAUSE):
        return kind == STALL
    failures = [one for one in later if trigger_of({"trigger": one.trigger}).is_failure]
    if kind in (NO_PROGRESS, FAIL):
        if past.last_step is None:
            return None
        is_higher = any(one.last_step is not None and one.last_step > past.last_step for one in later)
        return False if is_higher else True if failures else None
    by_s = (unix_time(past.started_at) or 0.0) + SHOWN_WITHIN_S
    soon = [one for one in failures if (unix_time(one.started_at) or 0.0) <= by_s]
    if kind == NODE:
        soon = [one for one in soon if one.node == past.node and one.pod]
    elif kind == STEP_NAMES[1]:  # the Pod would have been another one
        soon = [one for one in soon[:1] if one.pod == past.pod]
    return True if soon else False if now_s > by_s else None


def _of_nodes(policy: BadNodes, restarts: Sequence[PastRestart], now: str) -> Iterator[Answer]:
    newest = restarts[-1]
    found = next((one for one in suspected(restarts, policy, now) if one.node == newest.node and one.is_bad), None)
    if found is not None and _is_of_its_node(newest):
        seen = f"{len(found.failed_at)} first failures within {policy.window_s} s, the last: {found.why}"
        does = "its pod would have left it" if policy.is_observed else "its pod stays"
        cure = f"{NODES.key}={policy.failures} lets new pods avoid it; once it is cordoned the pod leaves when it fails"
        yield NODE, f"node {found.node}: {seen}; {does}; {cure}"


def _of_hangs(notices: Iterable[GroupNotice], newest: PastRestart) -> Iterator[Answer]:
    """Yield one answer for the silences of the epoch that ended: its group ended in them, or went on."""
    silences = [one for one in notices if one.kind in (STALL, PAUSE)]
    ended = [one for one in silences if one.kind == STALL]
    trigger = trigger_of({"trigger": newest.trigger})
    if ended and (trigger.is_failure or trigger is Trigger.MANUAL):
        yield STALL, f"{ended[0]}; the group would have restarted then (stall in {RESTART_ON.key})"
    elif silences and not ended:
        yield PAUSE, f"{silences[0]}; the group would have restarted for nothing (stall in {RESTART_ON.key})"


def _is_of_its_node(past: PastRestart) -> bool:
    """Say whether a restart tells of a node what a JobSet with the annotation counts."""
    trigger, failure = trigger_of({"trigger": past.trigger}), _failure(past)
    is_of_pod = trigger is Trigger.STALLED or Cause(trigger, "", failure=failure).is_of_the_pod
    return bool(past.node) and is_of_pod and class_of(trigger, failure).may_be_of_the_node


def _failure(past: PastRestart) -> Failure:
    return Failure(past.pod, "", "", past.exit_code, past.reason, last_line=past.last_line)


def _age_s(past: PastRestart, now_s: float) -> float:
    """Return how long ago a restart began; a time in the future counts as now."""
    at_s = unix_time(past.started_at)
    return float("inf") if at_s is None else max(0.0, now_s - at_s)
