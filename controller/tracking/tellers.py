"""Tell people what an accepted status says: Events, lines of log and metrics of each restart and each notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Cause, Trigger
from inplace.common.jobset.escalation import FAIL
from inplace.common.jobset.failure_class import class_words
from inplace.common.jobset.furthest_behind import silent_of_entry, silent_text
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.last_restart import UNSEEN, entry_of_sync, seconds_of
from inplace.common.jobset.members import noun_of
from inplace.common.jobset.note import Note
from inplace.common.jobset.notices import notices_of
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.slow_ranks import slow_ranks_of_entry
from inplace.common.jobset.verdict import verdict_of
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.members import Members
from inplace.common.wire.notice import BUSY, PAUSE
from inplace.controller.metrics import EXCEEDED, FINISHED, Metrics
from inplace.controller.tracking.group import AcceptedStatus, Group
from inplace.controller.tracking.scope_ledger import RestartTiming, ScopeLedger

EXCHANGES_TOLD_MAX: Final = 5  # of an Event


@dataclass(frozen=True, slots=True)
class RestartTimer:
    """Times the restarts that are under way; a restarted controller has forgotten when their phases began.

    Args:
        emit: writes an Event about an object.
    """

    emit: Callable[[KubeObject, Note], None]
    metrics: Metrics
    log: Log

    def note_status(self, accepted: AcceptedStatus) -> None:
        """Take note of the epochs of an accepted status, and of a group that may not restart again."""
        group, planned = accepted.group, accepted.planned
        for name, scope_ledger in group.ledgers.items():
            before, after = accepted.before.scopes.get(name), accepted.after.scopes.get(name)
            if before and after and (before.synced, before.deprecated) != (after.synced, after.deprecated):
                self._note_epochs(accepted, scope_ledger, before, after)
        if planned.status.get("terminalState") == conditions.FAILED and (
            FAIL in planned.escalation_steps or any(decision.exceeded for decision in group.decisions().values())
        ):
            trigger = next((cause.trigger for cause in group.causes().values()), Trigger.UNKNOWN)
            self._count(group, EXCEEDED, trigger)

    def _note_epochs(self, accepted: AcceptedStatus, scope_ledger: ScopeLedger, before: Scope, after: Scope) -> None:
        jobset, now_s = accepted.after, accepted.at_s
        due_since_s, cause = accepted.due_since_s[after.name], accepted.causes.get(after.name, UNSEEN)
        named = {"namespace": jobset.namespace, "jobset": jobset.name} | ({"scope": after.name} if after.name else {})
        why = {"cause": str(cause)} if before.synced > 0 else {}
        self.log.info("epochs_written", **named, synced=after.synced, deprecated=after.deprecated, **why)
        if after.synced > before.synced + 1:
            return  # a status that was lost is written again: nothing began, and nothing is over
        is_skipped = after.deprecated == after.synced > before.synced
        if is_skipped and scope_ledger.timing is not None:  # the restart that is under way goes on
            self._tell_start(jobset, after, cause)
        elif after.deprecated > before.deprecated:
            timing = scope_ledger.timing = RestartTiming(_beginning(cause, due_since_s), now_s, _pod_of(cause))
            self._observe("deprecate", now_s - timing.began_s)
            if cause.detected_after_s is not None:
                self._observe("detect", cause.detected_after_s)
            self._tell_start(jobset, after, cause)
        if after.synced > before.synced > 0 and not is_skipped:
            known, scope_ledger.timing = scope_ledger.timing, None
            if known is None and before.synced > before.deprecated:  # every Pod announced before S could be deprecated
                known = RestartTiming(_beginning(cause, due_since_s), due_since_s)
            self._tell_end(accepted, after, known, cause)
            self._observe_lift(scope_ledger)

    def _observe_lift(self, scope_ledger: ScopeLedger) -> None:
        """Observe how fast the barrier before this one lifted: all Pods have told of it by now."""
        self.metrics.catch_up()
        if scope_ledger.barrier_s_min is not None:
            self._observe("lift", scope_ledger.barrier_s_min)
            scope_ledger.barrier_s_min = None

    def _observe(self, phase: str, seconds: float) -> None:
        self.metrics.restart_phase_seconds.labels(phase).observe(seconds)

    def _count(self, group: Group, outcome: str, trigger: Trigger) -> None:
        jobset = group.jobset
        self.metrics.restarts.labels(jobset.namespace, jobset.name, outcome, trigger.value).inc()

    def _tell_start(self, jobset: JobSet, scope: Scope, cause: Cause) -> None:
        restarts_max = jobset.failure_policy.restarts_max if jobset.failure_policy is not None else 0
        count = jobset.restarts_begun
        number = f"restart {count} of {restarts_max}"
        if count > restarts_max:
            number = (
                f"with {restarts_max} of {restarts_max} restarts used: the jobset fails, unless a failed job decides"
            )
        if scope.last_exempt == scope.deprecated + 1:
            number = f"not counted as a restart, {count} of {restarts_max} used"
        message = f"epoch {scope.deprecated}{_of(scope)} is deprecated: the group restarts in place, {number}; {cause}"
        message += class_words(cause.trigger, cause.failure)
        self.emit(jobset.raw, Note("GroupRestartStarted", message))

    def _tell_end(self, accepted: AcceptedStatus, scope: Scope, timing: RestartTiming | None, cause: Cause) -> None:
        group, jobset, complete_s = accepted.group, accepted.after, accepted.due_since_s[scope.name]
        ranks = scope.ranks
        size = ranks.pods_in_all if ranks is not None else group.ledgers[scope.name].ledger.shape.size
        self._count(group, FINISHED, cause.trigger)
        entry = entry_of_sync(jobset.status, scope)
        seconds = None
        if entry is not None:
            seconds = seconds_of(entry)
        elif timing is not None:  # the status tells of another scope, which restarts at the same time
            seconds = accepted.at_s - timing.began_s
        took = "in an unknown time" if seconds is None else f"in {seconds:.1f} s"
        if seconds is not None:
            self.metrics.restart_seconds.labels(cause.trigger.value).observe(seconds)
            self.metrics.lost_pod_seconds.labels(jobset.namespace, jobset.name).inc(size * seconds)
            self.metrics.last_restart_seconds.labels(jobset.namespace, jobset.name).set(seconds)
        if timing is not None:
            self._observe("announce", max(0.0, complete_s - timing.deprecated_s))
            self._observe("sync", accepted.at_s - complete_s)
        message = f"{_who(ranks, size)}{_of(scope)} are at epoch {scope.synced} {took}"
        if ranks is not None:
            unit = "Job" if ranks.pods else "slot"
            message += "".join(
                f"; {unit} {slot} plays rank {rank}" for rank, slot in ranks.exchanged[:EXCHANGES_TOLD_MAX]
            )
        found = entry or {}
        verdict = verdict_of(found)
        if cause.trigger.is_failure:
            self.metrics.verdicts.labels(jobset.namespace, jobset.name, verdict.found.value).inc()
        told, culprit = timing.blamed if timing is not None else "", verdict.culprit
        if told and cause.trigger is Trigger.STALLED and _pod_of(cause) != told:
            message += f"; first of all, {cause}"
        elif told and culprit is not None and culprit.pod != told and cause.trigger is not Trigger.STALLED:
            message += f"; verdict: {verdict}"
        if silent := silent_text(silent_of_entry(found), found.get("trigger"), found.get("firstFailure")):
            message += f"; {silent}"
        if (slow := slow_ranks_of_entry(found)) is not None:
            message += f"; {slow}"
        self.emit(jobset.raw, Note("GroupRestartFinished", message))


def _who(ranks: Members | None, size: int) -> str:
    """Say who is there."""
    if ranks is None or ranks.everyone:
        return f"all {size} pods"
    return (
        f"{ranks.size} {noun_of(ranks, 2)}"
        if not ranks.pods
        else f"{size} pods of {ranks.size} {noun_of(ranks, ranks.size)}"
    )


def _beginning(cause: Cause, due_since_s: float) -> float:
    """Return when a group restart began: a failure with its first sign, anything else when it was decided."""
    if cause.seen_s is None or not cause.trigger.is_failure:
        return due_since_s
    return min(cause.seen_s, due_since_s)


def _pod_of(cause: Cause) -> str:
    return cause.failure.pod if cause.failure is not None else ""


def _of(scope: Scope) -> str:
    return f" of scope {scope.name}" if scope.name else ""


# Tell of each notice that the status got: one Event, one line of log, one count.
TOLD = "WorkerNotice"
TOLD_BUSY = "WorkerBusy"


@dataclass(frozen=True, slots=True)
class NoticeTeller:
    """Compares each accepted status with the one before: a new controller tells nothing twice.

    Args:
        emit: writes an Event about an object.
    """

    emit: Callable[[KubeObject, Note], None]
    metrics: Metrics
    log: Log

    def note_status(self, accepted: AcceptedStatus) -> None:
        """Tell of the notices that are new in an accepted status."""
        jobset = accepted.after
        known = set(notices_of(accepted.before.status))
        busy = {(one.scope, one.epoch) for one in known if one.kind == BUSY}
        for notice in notices_of(jobset.status):
            if notice in known:
                continue
            is_busy = notice.kind == BUSY
            if not is_busy or (notice.scope, notice.epoch) not in busy:  # all ranks load: one Event an epoch says it
                self.emit(
                    jobset.raw,
                    Note(TOLD_BUSY if is_busy else TOLD, str(notice), warning=notice.kind not in (BUSY, PAUSE)),
                )
            if is_busy:
                busy.add((notice.scope, notice.epoch))
            self.metrics.notices.labels(jobset.namespace, jobset.name, notice.kind).inc()
            self.log.info(
                "notice_listed",
                namespace=jobset.namespace,
                jobset=jobset.name,
                kind=notice.kind,
                pod=notice.pod,
                node=notice.node,
                message=str(notice),
            )
