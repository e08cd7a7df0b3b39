"""Read a Pod for the ledger: its slot, its epoch, whether it is live, and the state of its worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.notices import restart_on
from inplace.common.kube.codec import version_number
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import LENGTH_S_MIN, promised_s
from inplace.common.protocol.pod_view import PodLife, PodView, Worker
from inplace.common.protocol.resume import NOTHING
from inplace.common.protocol.slot import Slot
from inplace.common.wire import names as wire
from inplace.common.wire.members import Announced, read_announcement
from inplace.common.wire.notice import Notice, parse_notice
from inplace.common.wire.worker_failure import WorkerFailure, parse_failure

NOWHERE = ("", -1)  # the place of a Pod whose Job is unknown; no shape expects it
_NONE: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a Pod.

    Args:
        view: for the ledger; None when the Pod no longer matters.
        problem: the broken fields, in words; "" for none. The other fields were read.
        notice: what its worker's agent tells of the epoch that the Pod announced; None for nothing.
    """

    view: PodView | None
    problem: str = ""
    notice: Notice | None = None


def read_pod(
    pod: Pod, place: tuple[str, int], *, current: bool, annotations: Mapping[str, Any] = _NONE, has_spares: bool = False
) -> Reading:
    """Read one Pod.

    Args:
        pod: as the API server has it.
        place: (replicatedJob, job index) of its Job.
        current: that Job belongs to the group as it should be now; a Pod of another Job only matters while its
            containers may still run.
        annotations: of the JobSet: they say which notices are failures.
        has_spares: its group has some, so only what an agent announces that reads members counts (docs/adr/0107).
    """
    life = life_of(pod, current=current)
    if not current and life is not PodLife.LEAVING:
        return Reading(None)
    problems = []
    try:
        index = _completion_index(pod)
    except RemoteProtocolError as error:
        problems.append(str(error))
        index = -1
    try:
        epoch = epoch_of(pod)
    except RemoteProtocolError as error:
        problems.append(str(error))
        epoch = None
    try:
        failure = failure_told(pod)
    except RemoteProtocolError as error:
        problems.append(str(error))
        failure = None
    try:
        notice = notice_told(pod)
    except RemoteProtocolError as error:
        problems.append(str(error))
        notice = None
    if notice is not None and (notice.epoch != epoch or life is not PodLife.LIVE):
        notice = None  # of a worker that is gone
    failed_epoch = failure.epoch if failure is not None else None
    if notice is not None and notice.kind in restart_on(annotations):
        failed_epoch = notice.epoch
    given_up = pod.is_given_up and fenced_within_s(pod) is not None
    slot, name = Slot(*place, index), pod.metadata.name
    told = announced(pod, epoch)
    if has_spares and told is None:  # an agent that reads no members would start its worker as soon as it sees S
        epoch = None
    view = PodView(
        pod.metadata.uid,
        slot,
        epoch,
        life,
        worker_of(pod),
        name,
        failed_epoch,
        given_up,
        version_number(pod.metadata.resource_version) or 0,
        told.ran if told is not None else 0,
        told.saved if told is not None and told.saved != NOTHING else None,
    )
    return Reading(view, "; ".join(problems), notice)


def life_of(pod: Pod, *, current: bool) -> PodLife:
    """Say how alive a Pod is, as far as the barrier cares.

    A completed Pod that is being deleted counts as gone: whether its Job must be recreated is read from the
    Job.
    """
    match pod.status.phase, pod.metadata.deletion_timestamp is not None:
        case ("Failed", _) | ("Succeeded", True):
            return PodLife.FAILED
        case ("Succeeded", False):
            return PodLife.SUCCEEDED
        case (_, True):
            return PodLife.LEAVING
        case _:
            return PodLife.LIVE if current else PodLife.LEAVING


def worker_of(pod: Pod) -> Worker:
    """Fold the regular containers into one worker: does any run, did any fail, which run of them is it.

    The agent is an init container and so is not among them.
    """
    instances, running, failed = [], False, False
    for status in pod.status.container_statuses or ():
        instances.append(status.container_id or "")
        state = status.state
        running = running or state.running is not None
        failed = failed or (state.terminated is not None and state.terminated.exit_code != 0)
    instances.sort()
    return Worker(",".join(instances).strip(","), running, failed)


def account_of(pod: Pod) -> str:
    """Return a Pod's ServiceAccount: admission gives `default` to Pods that name none, where it is switched on."""
    return pod.spec.service_account_name or "default"


def index_has_failed(pod: Pod) -> bool:
    """Say whether earlier Pods of its index failed, so that its Job waits longer before it replaces this one."""
    keys = pod.metadata.annotations
    return keys is not None and not {keys.index_failures, keys.index_failures_ignored} <= {None, "0"}


def epoch_of(pod: Pod) -> int | None:
    """Read the epoch that a Pod announced; None when it announced nothing.

    Raises:
        RemoteProtocolError: the annotation is no epoch.
    """
    keys = pod.metadata.annotations
    return None if keys is None else wire.announced_epoch(keys.epoch, keys.attempt)


def announced(pod: Pod, epoch: int | None) -> Announced | None:
    """Return what a Pod told with its announcement of an epoch; None if its agent told nothing."""
    keys = pod.metadata.annotations
    return None if keys is None or epoch is None else read_announcement(keys.ran, epoch)


def known_epoch(pod: Pod) -> int:
    """Return the epoch that a Pod announced; 0 for none, or one that cannot be read."""
    try:
        return epoch_of(pod) or 0
    except RemoteProtocolError:
        return 0


def failure_told(pod: Pod) -> WorkerFailure | None:
    """Read how a Pod's worker died, as its agent told it; None when it told nothing.

    Raises:
        RemoteProtocolError: the annotation is unreadable.
    """
    keys = pod.metadata.annotations
    return None if keys is None or keys.worker_failed is None else parse_failure(keys.worker_failed)


def notice_told(pod: Pod) -> Notice | None:
    """Read the newest notice of a Pod's worker, of whichever epoch; None when its agent told none.

    Raises:
        RemoteProtocolError: the annotation is unreadable.
    """
    keys = pod.metadata.annotations
    return None if keys is None or keys.notice is None else parse_notice(keys.notice)


def fenced_within_s(pod: Pod) -> int | None:
    """Return within how many seconds a Pod that is being deleted ends a worker whose epoch is over; None for ever.

    That is the promise of its own agent. One that cannot be read is none: the barrier waits for the Pod's end.
    """
    keys = pod.metadata.annotations
    if keys is None or keys.fenced_within is None or pod.metadata.deletion_timestamp is None:
        return None
    try:
        return wire.parse_int32(keys.fenced_within, wire.FENCED_WITHIN, least=promised_s(LENGTH_S_MIN))
    except RemoteProtocolError:
        return None


def labelled_place(pod: Pod) -> tuple[str, int]:
    """Return (replicatedJob, job index) as a Pod's own labels tell them; NOWHERE where they do not."""
    labels = pod.metadata.labels
    if labels is None or labels.replicated_job is None or labels.job_index is None:
        return NOWHERE
    try:
        return labels.replicated_job, wire.parse_int32(labels.job_index, wire.JOB_INDEX, least=0)
    except RemoteProtocolError:
        return NOWHERE


def _completion_index(pod: Pod) -> int:
    """Read the completion index: the label, or the annotation if the label is broken."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    texts = [keys.completion_index for keys in (labels, annotations) if keys is not None]
    for text in texts:
        if text is not None and text.isascii() and text.isdigit():
            return wire.parse_int32(text, wire.JOB_COMPLETION_INDEX, least=0)
    seen = next((text for text in texts if text is not None), None)
    return wire.parse_int32(seen, wire.JOB_COMPLETION_INDEX, least=0)
