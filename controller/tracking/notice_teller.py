"""Tell of each notice that the status got: one Event, one line of log, one count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inplace.common.jobset.note import Note
from inplace.common.jobset.notices import notices_of
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import KubeObject
from inplace.common.wire.notice import BUSY
from inplace.controller.metrics import Metrics
from inplace.controller.tracking.accepted_status import AcceptedStatus

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
                self.emit(jobset.raw, Note(TOLD_BUSY if is_busy else TOLD, str(notice), warning=not is_busy))
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
