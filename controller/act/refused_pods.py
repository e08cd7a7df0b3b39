"""
Say on the JobSet why the API server refuses Pods that have an agent, with what the agent adds: a quota, a LimitRange.

Only the Job controller meets the refusal, and its one trace is an Event of the Job. So that is read: not before a
barrier has waited for a Pod that was never made, once in `ASK_AGAIN_S` for a JobSet, and one in `BETWEEN_S` of all
JobSets, because the API server reads a namespace's Events from etcd. A group that is well costs nothing. docs/adr/0089
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from inplace.common.injection.pod_cost import refused_words
from inplace.common.injection.pod_roles import Member
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.note import Note
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.object_events import events_about
from inplace.controller.plan.actions import CreateJob
from inplace.controller.plan.observed import WaitingBarrier
from inplace.controller.tracking.group import Group
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.missing_slots import NO_POD

ASK_AGAIN_S: Final = 300.0  # the verdict changes when a person does something, or other Pods end
BETWEEN_S: Final = 1.0
FAILED_CREATE: Final = "FailedCreate"  # the Job controller's reason


@dataclass(slots=True)
class RefusedPods:
    """Looks at the Jobs of groups that wait."""

    client: KubeClient
    membership: Membership
    recorder: EventRecorder
    settings: JobSettings
    clock: Clock
    log: Log
    _asked_s: dict[str, float] = field(default_factory=dict)  # by JobSet UID, of the last `ASK_AGAIN_S`
    _next_s: float = float("-inf")

    async def look(self, group: Group, barriers: Iterable[WaitingBarrier]) -> None:
        """Emit an Event if the Pods of a group that waits are refused."""
        absent = (missing.job for barrier in barriers for missing in barrier.missing if missing.why == NO_POD)
        jobset, now_s = group.jobset, self.clock.monotonic_s()
        job = self.membership.jobs_of(jobset).get(next(absent, ""))
        asked_s = self._asked_s.get(jobset.uid, float("-inf"))
        if job is None or now_s < max(asked_s + ASK_AGAIN_S, self._next_s):
            return
        recent = {uid: at_s for uid, at_s in self._asked_s.items() if now_s - at_s < ASK_AGAIN_S}
        self._asked_s, self._next_s = recent | {jobset.uid: now_s}, now_s + BETWEEN_S
        member = self._member(jobset, job.metadata.name)
        if member is None:
            return
        try:
            events = await events_about(self.client, jobset.namespace, job.metadata.uid, reason=FAILED_CREATE)
        except (ApiError, TransportError) as error:
            self.log.warning("job_events_unread", job=job.metadata.name, message=str(error))
            return
        if events:
            words = refused_words(events[-1].message or "", member)
            text = f"job {job.metadata.name}: the API server refuses its pods: {words}"
            self.recorder.emit(jobset.raw, Note("PodsRefused", text, warning=True))

    def _member(self, jobset: JobSet, name: str) -> Member | None:
        """Return the Pods of a Job; None where this controller adds no agent to them."""
        replicated_job, index = jobset.places[name]
        return self.settings.member_of(CreateJob(jobset, jobset.replicated_job(replicated_job), index))
