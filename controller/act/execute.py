"""
Carry out the plan of one JobSet.

Guarantees:
* Every possible action is done, even if another one fails.
* An action that only a person can make possible is tried once a pass, and later (`refusals`). A server that is
  unreachable, or does not know our token, is tried once a pass.
* An object of ours that exists already counts as created.
* Deletions and suspensions name the object that the plan looked at (UID).
* Answers go into the caches, so the next pass does not work on an older view than this one.
* A Job is built when its place in the window of writes is free: passes that wait for their turn keep none in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anyio import create_task_group

from inplace.common.injection.rights import commands
from inplace.common.jobset.bad_nodes import affinity_avoiding
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import JOB_CODEC, Job, PersistentVolumeClaim, Pod
from inplace.common.jobset.note import Note
from inplace.common.jobset.pod_groups import SCHEDULING_CODEC
from inplace.common.jobset.service import Service
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unauthorized
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Informer, Log
from inplace.common.kube.resources import JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.act.agent_rights import AgentRights
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.act.refusals import (
    ActionsFailedError,
    ForeignObjectError,
    Refusals,
    ResourcesNotPropagatedError,
)
from inplace.controller.api.domains import read_pod_spec
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.scheduling_objects import SchedulingReader
from inplace.controller.plan.actions import (
    Action,
    AvoidNodes,
    BindAgents,
    CreateClaim,
    CreateJob,
    CreateSchedulingObject,
    CreateService,
    DeleteJob,
    DeleteJobSet,
    DeleteSchedulingObject,
    LiftGate,
    ReplacePod,
    ResetIndexBackoff,
    ResizeJob,
    ResizeSchedulingObject,
    ResumeJob,
    SuspendJob,
    UpdateService,
)
from inplace.controller.plan.resume import changes_resources, execution_annotation, template_patch

PARALLEL_MAX = 50  # writes in flight for one JobSet; upstream's bound
ACTIONS_MAX = 500  # of one pass: some seconds; then the JobSet is looked at again, and an urgent one may go before it
GIVES_WAY_S = 2.0  # how long one pass writes while other JobSets wait; to plan anew takes 0.1 s for the largest
BYTES_MAX = 2 * 2**20  # of their Jobs' JSON: as much takes seconds as well
AGAIN_S = 0.25  # a view that is late would ask for it with each event, see `_due`; what is deleted is back soon

_REASONS: Final[Mapping[type, str]] = {
    CreateJob: "JobCreationFailed",
    CreateService: "HeadlessServiceCreationFailed",
    UpdateService: "HeadlessServiceUpdateFailed",
    LiftGate: "ExclusivePlacementFailed",
    AvoidNodes: "AvoidingNodesFailed",
    ReplacePod: "PodReplacementFailed",
    ResetIndexBackoff: "IndexBackoffResetFailed",
    CreateClaim: "PVCCreationFailed",
    CreateSchedulingObject: "GangCreationFailed",
    ResizeSchedulingObject: "GangUpdateFailed",
    DeleteSchedulingObject: "GangDeletionFailed",
    BindAgents: "AgentBindingFailed",
    DeleteJobSet: "JobSetDeletionFailed",
}

_CREATES: Final = {CreateJob: JOBS, CreateService: SERVICES, CreateClaim: PERSISTENT_VOLUME_CLAIMS}
Created = tuple[str, str, str]  # plural, namespace and name
Place = Callable[[str, int], contextlib.AbstractAsyncContextManager[None]]


@dataclass(slots=True)
class Executor:
    """Performs actions, at most `ACTIONS_MAX` and `BYTES_MAX` in a pass; the next plan has the rest, from the state.

    Args:
        place: waits for a namespace's turn to write about so many bytes, and holds a place for them.
        others_wait: says whether other JobSets wait for a pass.
    """

    client: KubeClient
    jobs: Informer[Job]
    services: Informer[Service]
    claims: Informer[PersistentVolumeClaim]
    pods: Informer[Pod]
    recorder: EventRecorder
    refusals: Refusals
    clock: Clock
    log: Log
    settings: JobSettings
    rights: AgentRights
    scheduling: SchedulingReader
    place: Place
    others_wait: Callable[[], bool]
    _created_s: dict[Created | None, float] = field(default_factory=dict)

    async def perform(self, jobset: JobSet, actions: Sequence[Action]) -> float | None:
        """Perform every action, a bounded number at once.

        Returns:
            After how many seconds to look again, as it is too soon for something; None: all is done.

        Raises:
            ActionsFailedError: at least one failed; the others were performed, or wait behind a refusal.
        """
        if not actions:
            return None
        slots = asyncio.Semaphore(PARALLEL_MAX)
        failures: list[tuple[Action, Exception]] = []
        in_vain = False  # no request of this pass can succeed
        began_s, gives_way = self.clock.monotonic_s(), False  # to other JobSets; the next pass has the rest
        due, again_s = self._due(jobset, actions)

        async def perform_one(action: Action) -> None:
            nonlocal in_vain, gives_way
            created = _created_by(jobset.namespace, action)
            try:
                async with self.place(jobset.namespace, _bytes_of(action)):
                    gives_way |= self.clock.monotonic_s() > began_s + GIVES_WAY_S and self.others_wait()
                    if gives_way or in_vain or self.refusals.wait_s(jobset, action) > 0:  # as another action found out
                        self._created_s.pop(created, None)
                        return
                    await self._perform(jobset, action)
            except (ApiError, TransportError, ForeignObjectError, ResourcesNotPropagatedError) as error:
                # Its traceback holds this frame, and the frame `failures`: a circle around the whole Job.
                failures.append((action, error.with_traceback(None)))
                cause = error.cause if isinstance(error, ResourcesNotPropagatedError) else error
                in_vain |= isinstance(cause, Unauthorized) or (isinstance(cause, TransportError) and not cause.sent)
                self._created_s.pop(created, None)
                self.refusals.note(jobset, action, cause)
            else:
                self.refusals.granted(jobset, action)
            finally:
                slots.release()

        for together in _scouts_first(due):
            async with create_task_group() as group:
                for action in together:
                    await slots.acquire()
                    group.start_soon(perform_one, action)
                    await asyncio.sleep(0)  # building a Job of 1 MB takes 10 ms: let others run before the next
        if failures:
            action, error = failures[0]
            self._report(jobset, action, error)
            counts = f"{len(failures)} of {len(due)} actions failed"
            raise ActionsFailedError(f"{counts}, first: {error}") from error
        return 0.0 if gives_way else again_s

    def _due(self, jobset: JobSet, actions: Sequence[Action]) -> tuple[list[Action], float | None]:
        """Return what may be asked for now, and after how many seconds to look at the rest (None: there is none).

        Not what was refused a moment ago, and not what creates what was there, or was created, a moment ago: when the
        watch of one kind is late, each event of another would ask again for what is there, or for what the garbage
        collector removes at once because its JobSet is gone already.
        """
        now_s = self.clock.monotonic_s()
        due: list[Action] = []
        size = 0
        waits_s: list[float] = []
        self._created_s = {what: at_s for what, at_s in self._created_s.items() if now_s - at_s < AGAIN_S}
        for action in actions:
            if isinstance(action, BindAgents) and self.rights.has(jobset, action.account):
                continue  # planned in each pass; it must not wait for its turn to write
            created = _created_by(jobset.namespace, action)
            wait_s = AGAIN_S if created in self._created_s else self.refusals.wait_s(jobset, action)
            if wait_s > 0:
                waits_s.append(wait_s)
                continue
            if len(due) == ACTIONS_MAX or size > BYTES_MAX:
                return due, 0.0
            due.append(action)
            size += _bytes_of(action)
            if created is not None:
                self._created_s[created] = now_s
        return due, min(waits_s, default=None)

    def _report(self, jobset: JobSet, action: Action, error: Exception) -> None:
        """Tell the user about the first failure; the rest are most often the same."""
        reason = _REASONS.get(type(action), "JobUpdateFailed")
        if isinstance(error, ResourcesNotPropagatedError):
            reason = "FailedResourcePropagation"
        message = str(error)
        if isinstance(action, BindAgents):
            message = (
                "the controller may not give the agents their rights; pods start, and agents that lack them wait: "
                f"{commands(jobset.namespace, action.account, jobset.name)}; the API server's answer: {error}"
            )
        self.recorder.emit(jobset.raw, Note(reason, message, warning=True))

    async def _perform(self, jobset: JobSet, action: Action) -> None:
        namespace = jobset.namespace
        match action:
            case CreateJob():
                manifest, findings = self.settings.manifest_of(action)
                for note in self.settings.notes_on(action, manifest, findings):
                    self.recorder.emit(jobset.raw, note)
                await self._create_job(jobset, manifest)
                self.rights.forget(jobset.uid)
            case CreateService(manifest):
                await self._create_shared(SERVICES, self.services, namespace, manifest)
            case UpdateService(service, ports):
                version = {"uid": service.metadata.uid, "resourceVersion": service.metadata.resource_version}
                change = {"metadata": version, "spec": {"ports": list(ports) or None}}
                await self._patch(SERVICES, self.services, namespace, service.metadata.name, change)
            case CreateClaim(manifest):
                await self._create_shared(PERSISTENT_VOLUME_CLAIMS, self.claims, namespace, manifest)
            case CreateSchedulingObject(resource, manifest):
                await self._create_scheduling_object(jobset, resource, manifest)
            case ResizeSchedulingObject(resource, name, uid, spec):
                change = {"metadata": {"uid": uid}, "spec": spec}
                with contextlib.suppress(NotFound, Conflict):
                    self._absorb(resource, await self.client.patch(resource, namespace, name, change))
            case DeleteSchedulingObject(resource, name, uid):
                with contextlib.suppress(NotFound, Conflict):  # gone, or another object by now
                    await self.client.delete(resource, namespace, name, uid=uid)
            case BindAgents(account):
                await self.rights.give(jobset, account)
            case DeleteJobSet(uid):
                self.log.info("finished_jobset_deleted", namespace=namespace, jobset=jobset.name)
                with contextlib.suppress(NotFound, Conflict):  # gone, or another JobSet by now
                    await self.client.delete(JOBSETS, namespace, jobset.name, propagation="Foreground", uid=uid)
            case DeleteJob(name, uid, why):
                self.log.info("job_deleted", namespace=namespace, jobset=jobset.name, job=name, why=why)
                await self._delete_job(namespace, name, uid)
            case SuspendJob(name, uid):
                stop = {"metadata": {"uid": uid}, "spec": {"suspend": True}}
                await self._patch(JOBS, self.jobs, namespace, name, stop)
            case LiftGate(pod, selector):
                spec = {"nodeSelector": dict(selector)} if selector else {}
                await self._patch_gated(namespace, pod, wire.PLACEMENT_GATE, spec)
            case AvoidNodes():
                await self._avoid_nodes(namespace, action)
            case ReplacePod(pod):
                deadline = {"metadata": {"uid": pod.metadata.uid}, "spec": {"activeDeadlineSeconds": action.DEADLINE_S}}
                await self._patch(PODS, self.pods, namespace, pod.metadata.name, deadline)
            case ResetIndexBackoff(pod):
                reset = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(action.CHANGE)}}
                await self._patch(PODS, self.pods, namespace, pod.metadata.name, reset)
            case ResizeJob(name, uid, pods):
                size = {"metadata": {"uid": uid}, "spec": {"parallelism": pods, "completions": pods}}
                await self._patch(JOBS, self.jobs, namespace, name, size)
            case ResumeJob():
                with contextlib.suppress(NotFound, Conflict):
                    await self._resume_job(namespace, action)

    async def _patch(
        self, resource: Resource, cache: Informer[Any], namespace: str, name: str, change: KubeObject
    ) -> None:
        """Change an object, unless it is gone, or another one or version by now: its next event is looked at."""
        with contextlib.suppress(NotFound, Conflict):
            cache.absorb(await self.client.patch(resource, namespace, name, change))

    async def _avoid_nodes(self, namespace: str, action: AvoidNodes) -> None:
        """Lift our gate; where there are nodes to avoid, read first which affinity the Pod has."""
        spec: KubeObject = {}
        if action.nodes:
            if (stored := await read_pod_spec(self.client, action.pod)) is None:
                return  # gone
            old = stored.get("affinity")
            spec["affinity"] = affinity_avoiding(old, action.nodes, action.topology, action.domains)
        await self._patch_gated(namespace, action.pod, wire.AVOIDANCE_GATE, spec)

    async def _patch_gated(self, namespace: str, pod: Pod, gate: str, spec: KubeObject) -> None:
        """Change the spec of this very Pod, and take away one gate."""
        gates = [one.name for one in pod.spec.scheduling_gates or () if one.name != gate]
        spec |= {"schedulingGates": [{"name": name} for name in gates] or None}
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        await self._patch(PODS, self.pods, namespace, pod.metadata.name, {"metadata": version, "spec": spec})

    async def _resume_job(self, namespace: str, action: ResumeJob) -> None:
        """Resume a Job as it is now: read it, so that what is gone from the template is removed.

        A start time is cleared first: servers before 1.35 let a pod template change only before the first start.

        Raises:
            ResourcesNotPropagatedError: its Pods would get other resources, and the server refuses the change.
        """
        name, (wanted, _) = action.name, self.settings.manifest_of(action.place)
        job = await self.client.get(JOBS, namespace, name)
        version = {"uid": action.uid, "resourceVersion": job["metadata"]["resourceVersion"]}
        if (job.get("status") or {}).get("startTime") is not None:
            cleared = {"metadata": version, "status": {"startTime": None}}
            job = await self.client.patch(JOBS, namespace, name, cleared, subresource="status")
            version["resourceVersion"] = job["metadata"]["resourceVersion"]
        spec: KubeObject = {"suspend": False}
        if changes := template_patch(job["spec"]["template"], wanted["spec"]["template"]):
            spec["template"] = changes
        metadata: KubeObject = version | {"annotations": execution_annotation(wanted)}
        try:
            self.jobs.absorb(await self.client.patch(JOBS, namespace, name, {"metadata": metadata, "spec": spec}))
        except (NotFound, Conflict):
            raise  # another Job by now, or another version of it
        except ApiError as error:
            if not changes_resources(changes):
                raise
            raise ResourcesNotPropagatedError(name, error) from error

    async def _create_job(self, jobset: JobSet, manifest: KubeObject) -> None:
        namespace, name = jobset.namespace, manifest["metadata"]["name"]
        known = self.jobs.get(namespace, name)
        if known is not None and known.owner_uid != jobset.uid:
            # Unasked: while a namesake's Pods end, each of their events comes by here.
            raise ForeignObjectError(jobset, "job", name)
        try:
            created = await self.client.create(JOBS, namespace, manifest)
        except AlreadyExists:
            created = await self.client.get(JOBS, namespace, name)
            if JOB_CODEC.convert(created).owner_uid != jobset.uid:
                raise ForeignObjectError(jobset, "job", name) from None
        self.jobs.absorb(created)

    async def _create_shared(
        self, resource: Resource, cache: Informer[Any], namespace: str, manifest: KubeObject
    ) -> None:
        """Create an object whose name another program may use; one that exists is left alone."""
        with contextlib.suppress(AlreadyExists):
            cache.absorb(await self.client.create(resource, namespace, manifest))

    async def _create_scheduling_object(self, jobset: JobSet, resource: Resource, manifest: KubeObject) -> None:
        name = manifest["metadata"]["name"]
        try:
            created = await self.client.create(resource, jobset.namespace, manifest)
        except AlreadyExists:
            created = await self.client.get(resource, jobset.namespace, name)
            if SCHEDULING_CODEC.convert(created).owner_uid != jobset.uid:
                raise ForeignObjectError(jobset, resource.kind, name) from None
        self._absorb(resource, created)

    def _absorb(self, resource: Resource, answer: KubeObject) -> None:
        if (cache := self.scheduling.cache(resource)) is not None:
            cache.absorb(answer)

    async def _delete_job(self, namespace: str, name: str, uid: str) -> None:
        try:
            answer = await self.client.delete(JOBS, namespace, name, propagation="Foreground", uid=uid)
        except (NotFound, Conflict):
            return  # gone, or another Job by now; the cache will show it
        if answer.get("kind") == JOBS.kind and "deletionTimestamp" in answer.get("metadata", {}):
            self.jobs.absorb(answer)


def _scouts_first(actions: Sequence[Action]) -> tuple[list[Action], list[Action]]:
    """Return the first action of each type, and all others: what is refused to the first is not asked for again."""
    scouts = {type(action): action for action in reversed(actions)}
    return list(scouts.values()), [action for action in actions if scouts[type(action)] is not action]


def _bytes_of(action: Action) -> int:
    """Return about how large a Job's JSON is that has to be built for an action."""
    place = action.place if isinstance(action, ResumeJob) else action
    return len(place.job.template_json) if isinstance(place, CreateJob) else 0


def _created_by(namespace: str, action: Action) -> Created | None:
    """Return what an action creates; None for other actions."""
    if not isinstance(action, CreateJob | CreateService | CreateClaim):
        return None
    name = action.name if isinstance(action, CreateJob) else str(action.manifest["metadata"]["name"])
    return _CREATES[type(action)].plural, namespace, name
