"""Read from one Pod event whether it is the first sign that a running group must restart, and its details."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from msgspec.structs import replace

from inplace.common.jobset.causes import MESSAGE_CHARS_MAX, OF_NOTICES, Cause, Failure, Trigger, unix_time
from inplace.common.jobset.containers import InitStatus
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.notices import NO_KINDS
from inplace.common.jobset.verdict import OWN_ENDS, explains
from inplace.common.kube.timestamps import precise_time
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.ledger import Ledger
from inplace.common.wire.exit_words import RESTART_CODE
from inplace.common.wire.last_line import LastLine, clean_line, last_line_of, told_line_of
from inplace.common.wire.phases import exit_code_of
from inplace.common.wire.worker_failure import WorkerFailure
from inplace.controller.tracking.notice_board import entry_of
from inplace.controller.tracking.pods import failure_told, known_epoch, notice_told

SKEW_S_MAX = 60.0  # between a container's end and its sign here: beyond this a clock is wrong, or kubelet was away
WHOLE_SECONDS = len("2026-01-01T00:00:00")  # of a time, which is all that kubelet keeps

RAN = ("Error", "OOMKilled", "Completed", None)  # kubelet's reasons of a container whose program was started

STOPPED = (137, 143, RESTART_CODE)  # SIGKILL, SIGTERM, and our own: how a restart ends workers
OUT_OF_MEMORY = "OOMKilled"

NO_CODE = "the container ended without a word"
UNSEEN_EXIT = "it announced the next epoch, and no exit code of it was seen"


Sign = tuple[Trigger, Failure | None]


def sign_of(
    old: Pod | None,
    new: Pod | None,
    ledger: Ledger,
    *,
    lived: bool,
    synced_at: str = "",
    restart_on: frozenset[str] = NO_KINDS,
) -> Sign | None:
    """Return what a Pod event says of the running epoch; None when it says nothing new.

    Args:
        old: the Pod before the event.
        new: after it; None when it is gone.
        ledger: that took the event in.
        lived: the Pod counted as live before the event.
        synced_at: when the running epoch was synced; "" for the first one, or if it is unknown.
        restart_on: kinds of notices that restart the group.
    """
    pod = new if new is not None else old
    if pod is None or not ledger.synced > ledger.deprecated:
        return None
    if ledger.has_died(pod.metadata.uid) and not pod.is_disrupted:
        told = _stall_of(pod, ledger.synced) or _notice_of(pod, ledger.synced, restart_on)
        return told or (Trigger.WORKER_EXIT, _death_of(pod, ledger.synced))
    if lived and (new is None or not ledger.lives(pod.metadata.uid)):
        return _end_of_pod(pod)
    if new is None or known_epoch(new) <= ledger.synced:
        return None
    if old is None:  # it announced before this controller looked: a new controller's first list
        return Trigger.UNKNOWN, None
    if known_epoch(old) == 0:  # a replacement of a Pod whose end was not seen here
        return Trigger.POD_LOST, None
    ended = [status for status in pod.status.all_statuses if _end_of(status) >= synced_at[:WHOLE_SECONDS]]
    failure = exit_of(pod, ended)
    return Trigger.WORKER_EXIT, failure if failure.container else _announced_exit(new, failure)


def _announced_exit(pod: Pod, failure: Failure) -> Failure:
    """Say how a worker ended whose process was started anew: as the Pod's announcement tells, if it does."""
    annotations = pod.metadata.annotations
    code = exit_code_of(annotations.phases) if annotations is not None and annotations.phases is not None else None
    if not code:  # a completed worker is no failure; see controller/tracking/completions.py
        return replace(failure, message=UNSEEN_EXIT)
    return _told_exit(pod, known_epoch(pod) - 1, replace(failure, exit_code=code))


def _stall_of(pod: Pod, epoch: int) -> tuple[Trigger, Failure] | None:
    """Say that a worker hangs, as the Pod's agent told; the container's end, if one shows, is what that led to."""
    told = _failure_told(pod)
    if told is None or told.epoch != epoch or told.stalled_s is None:
        return None
    where = "" if told.step is None else f" at step {told.step}"
    return Trigger.STALLED, Failure(
        pod.metadata.name,
        pod.spec.node_name or "",
        _only_worker(pod),
        reason="Stalled",
        message=f"silent for {told.stalled_s} s{where}",
        finished_at=precise_time(told.at_s),
    )


def _notice_of(pod: Pod, epoch: int, restart_on: frozenset[str]) -> Sign | None:
    """Say what is wrong with a worker that runs, as the Pod's agent told, where that restarts the group."""
    try:
        notice = notice_told(pod)
    except RemoteProtocolError:
        return None
    if notice is None or notice.epoch != epoch or notice.kind not in restart_on:
        return None
    trigger, reason = OF_NOTICES[notice.kind]
    entry = entry_of(pod, notice)
    return trigger, Failure(
        entry.pod, entry.node, _only_worker(pod), reason=reason, message=str(entry), finished_at=entry.at
    )


def _only_worker(pod: Pod) -> str:
    """Return the name of a Pod's one worker; an agent does not say which of several failed."""
    statuses = pod.status.container_statuses or ()
    return statuses[0].name if len(statuses) == 1 else ""


def _death_of(pod: Pod, epoch: int) -> Failure:
    """Say how a worker died: in kubelet's words, or in those of the Pod's agent, which come first."""
    failure = exit_of(pod, pod.status.container_statuses or ())
    told = _failure_told(pod)
    is_seen = failure.container and failure.exit_code != RESTART_CODE
    if is_seen or told is None or told.epoch != epoch:
        return failure
    return _told_death(pod, told)


def _told_death(pod: Pod, told: WorkerFailure) -> Failure:
    """Say how a worker died, in the words of the Pod's agent."""
    message = "" if told.code is not None else NO_CODE
    if told.in_vain:
        restarts = "the last restart" if told.in_vain == 1 else f"the last {told.in_vain} restarts"
        message = f"{restarts} did not help, so its Pod gets clean containers"
    failure = Failure(
        pod.metadata.name,
        pod.spec.node_name or "",
        exit_code=told.code,
        message=message,
        finished_at=precise_time(told.at_s),
    )
    return _told_exit(pod, told.epoch, failure)


def _told_exit(pod: Pod, epoch: int, failure: Failure) -> Failure:
    """Add to an exit that the Pod's agent told when it was, and what the worker wrote last."""
    annotations = pod.metadata.annotations
    text = annotations.last_line if annotations is not None else None
    end: LastLine | None = told_line_of(text, epoch) if text is not None else None
    failure = replace(failure, container=_only_worker(pod))
    if end is None:
        return failure
    return replace(failure, finished_at=precise_time(end.at_s), last_line=clean_line(end.line))


def corrected(cause: Cause, pod: Pod, synced: int) -> Cause:
    """Return the cause, or the end of this Pod's worker that is told later, and came before.

    Args:
        cause: of the restart that is under way.
        pod: any of the scope.
        synced: the epoch that is over.
    """
    if cause.trigger not in OWN_ENDS or cause.failure is None:
        return cause
    late = _end_told(pod, synced)
    if late is None or late[1].pod == cause.failure.pod or not explains(late[1], cause.failure):
        return cause
    return dataclasses.replace(cause, trigger=late[0], failure=late[1])


def _end_told(pod: Pod, epoch: int) -> tuple[Trigger, Failure] | None:
    """Return how a Pod's worker of an epoch failed by itself, as agent or kubelet tell; None where nobody does.

    What kubelet says after a signal that ends processes counts for nothing here: the restart itself sends it.
    """
    if (stall := _stall_of(pod, epoch)) is not None:
        return stall
    told = _failure_told(pod)
    if told is not None and told.epoch == epoch:
        return Trigger.WORKER_EXIT, _told_death(pod, told)
    known, keys = known_epoch(pod), pod.metadata.annotations
    if known > epoch:
        code = exit_code_of(keys.phases) if keys is not None and keys.phases is not None else None
        failure = Failure(pod.metadata.name, pod.spec.node_name or "", exit_code=code)
        return (Trigger.WORKER_EXIT, _told_exit(pod, epoch, failure)) if code and known == epoch + 1 else None
    failure = exit_of(pod, pod.status.container_statuses or ())
    is_own = failure.container and (failure.exit_code not in STOPPED or failure.reason == OUT_OF_MEMORY)
    return (Trigger.WORKER_EXIT, failure) if is_own and known == epoch and not pod.is_disrupted else None


def with_exit(cause: Cause, pod: Pod, synced: int) -> Cause:
    """Return the cause, with what kubelet says later of the exit that the Pod's agent told first.

    Args:
        cause: of the restart that is under way.
        pod: any of the scope.
        synced: the epoch that is over; a Pod that announced a newer one shows the exits of others.
    """
    failure = cause.failure
    if cause.trigger is not Trigger.WORKER_EXIT or failure is None or failure.pod != pod.metadata.name:
        return cause
    if known_epoch(pod) > synced:
        return cause
    seen = exit_of(pod, pod.status.container_statuses or ())
    if not seen.container or failure.exit_code not in (None, seen.exit_code) or seen.exit_code == RESTART_CODE:
        return cause
    known = replace(failure, exit_code=seen.exit_code, last_line=failure.last_line or seen.last_line)
    return cause if known == failure else dataclasses.replace(cause, failure=known)


def _failure_told(pod: Pod) -> WorkerFailure | None:
    try:
        return failure_told(pod)
    except RemoteProtocolError:
        return None


def _end_of_pod(pod: Pod) -> tuple[Trigger, Failure] | None:
    """Return what ended a Pod: its own failed container, or a deletion or eviction; completing is no failure."""
    if pod.status.phase == "Succeeded":
        return None
    if (
        pod.status.phase == "Failed"
        and not pod.is_disrupted
        and (failure := exit_of(pod, pod.status.all_statuses)).container
    ):
        return Trigger.WORKER_EXIT, failure
    is_disrupted = pod.status.condition("DisruptionTarget") is not None
    return Trigger.DISRUPTED if is_disrupted else Trigger.POD_LOST, loss_of(pod)


def exit_of(pod: Pod, statuses: Iterable[InitStatus]) -> Failure:
    """Say which of these containers of a Pod failed first; a Failure without a container when none did."""
    ended = [status for status in statuses if _has_failed(status)]
    if not ended:
        return Failure(pod.metadata.name, pod.spec.node_name or "")
    first = min(ended, key=_end_of)
    state = first.state.terminated
    assert state is not None
    ran = state.reason in RAN  # then the message is the worker's own, or the end of its log
    return Failure(
        pod.metadata.name,
        pod.spec.node_name or "",
        first.name,
        state.exit_code,
        state.reason or "",
        "" if ran else clean_line(state.message or "", MESSAGE_CHARS_MAX),
        state.finished_at or "",
        last_line_of(state.message or "") if ran else "",
    )


def loss_of(pod: Pod) -> Failure:
    """Say why a Pod is lost: the disruption's words, the Pod's own, or that it is deleted."""
    name, node, status = pod.metadata.name, pod.spec.node_name or "", pod.status
    disruption = status.condition("DisruptionTarget")
    if disruption is not None:
        return Failure(name, node, reason=disruption.reason or "", message=disruption.message or "")
    if status.phase == "Failed":
        return Failure(name, node, reason=status.reason or "Failed", message=status.message or "")
    return Failure(name, node, reason="Deleted")


def seconds_since(finished_at: str, now_s: float) -> float | None:
    """Return how long ago a container ended; None when the clocks of its node and ours are too far apart to say.

    kubelet cuts the moment to whole seconds, so this is up to one second too long.
    """
    ended_s = unix_time(finished_at)
    return now_s - ended_s if ended_s is not None and 0.0 <= now_s - ended_s <= SKEW_S_MAX else None


def _has_failed(status: InitStatus) -> bool:
    return status.state.terminated is not None and status.state.terminated.exit_code != 0


def _end_of(status: InitStatus) -> str:
    """Return when a container ended, as text that sorts; kubelet writes all in UTC and one form."""
    ended = status.state.terminated
    return (ended.finished_at if ended is not None else None) or ""
