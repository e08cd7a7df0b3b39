"""
Add up the phases that the Pods announce: one histogram instead of 5,000 scrape targets.

Each announcement is counted once, at the event that shows a higher epoch than the Pod had before. A Pod that is seen
for the first time (a new leader fills its caches) is not counted, so that no restart is counted by two leaders. While a
herd announces, its phases are only stored: counting them would take a fifth of an event's cost, and every worker waits
for the last event. They are counted when S is written, or at a scrape (`Metrics.catch_up`). For each scope one number
is kept: the shortest wait at the last barrier, which is that of the last Pod. How far a Pod's worker was is read at the
event: the status that ends the restart says who was silent first. Phases decide nothing; garbage is counted and
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.slow_ranks import PodWork
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.last_progress import BEGINNING, parse_last_progress
from inplace.common.wire.phases import RestartPhase, parse_phases
from inplace.controller.metrics import Metrics
from inplace.controller.tracking.pods import known_epoch
from inplace.controller.tracking.scope_ledger import ScopeLedger

UNCOUNTED_MAX: Final = 20_000  # an attacker who tampers with Pods can announce without end


class PhaseReader:
    """Observe the phases of each new announcement, a while after it came.

    Args:
        metrics: what it counts into, and what lets it catch up.
        home_of: who counts a Pod, by its UID.
    """

    def __init__(self, metrics: Metrics, home_of: Callable[[str], ScopeLedger | None] = lambda _: None) -> None:
        self._metrics = metrics
        self._home_of = home_of
        self._observe = {phase: metrics.pod_phase_seconds.labels(phase.value).observe for phase in RestartPhase}
        self._uncounted: list[tuple[str, ScopeLedger | None]] = []
        metrics.catch_up = self.count

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a Pod event."""
        annotations = None if new is None else new.metadata.annotations
        if new is None or annotations is None or (old is not None and annotations == old.metadata.annotations):
            return
        text = annotations.phases
        if text is None or known_epoch(new) <= (known_epoch(old) if old is not None else 0):
            return
        if BEGINNING in text and (old is None or text != _text_of(old)):
            self._note_progress(new, text)
        if old is None:  # another leader counted it
            return
        self._uncounted.append((text, self._home_of(new.metadata.uid)))
        if len(self._uncounted) >= UNCOUNTED_MAX:
            self.count()

    def _note_progress(self, pod: Pod, text: str) -> None:
        """Take in how far the worker of the running epoch was, from the announcement of the next one."""
        home = self._home_of(pod.metadata.uid)
        if home is None or known_epoch(pod) <= home.ledger.synced:
            return
        with suppress(RemoteProtocolError):  # counted with the phases
            if (progress := parse_last_progress(text)) is not None:
                name, node, labels = pod.metadata.name, pod.spec.node_name or "", pod.metadata.labels
                home.silence.note(name, node, progress)
                if progress.work_s is not None:
                    job = (labels and labels.replicated_job) or ""
                    home.works[name] = PodWork(name, node, job, progress.work_rank, progress.work_s)

    def count(self) -> None:
        """Count what was told since the last time."""
        uncounted, self._uncounted = self._uncounted, []
        for text, home in uncounted:
            try:
                phases = parse_phases(text)
            except RemoteProtocolError:
                self._metrics.unreadable_phases.inc()
                continue
            for phase, seconds in phases.items():
                self._observe[phase](seconds)
            if home is not None and (waited_s := phases.get(RestartPhase.BARRIER)) is not None:
                home.note_barrier(waited_s)


def _text_of(pod: Pod) -> str | None:
    return pod.metadata.annotations.phases if pod.metadata.annotations is not None else None
