"""
One pass over one JobSet: observe, plan, write the status, act.

The status goes first: it is what 5,000 agents wait for, it must not be lost when an action fails, and a
conflict there means that the actions were decided on old state, so none is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from inplace.common.jobset.bad_nodes import NO_SIGNS, NodeSigns
from inplace.common.jobset.buckets import Bucket, bucket_of, is_current
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import PersistentVolumeClaim, Pod
from inplace.common.jobset.observing import known_nodes
from inplace.common.jobset.service import Service
from inplace.common.jobset.topology import exclusive_key
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import Conflict, NotFound
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.kube.timestamps import micro_time, time_text
from inplace.common.wire import names as wire
from inplace.controller.act.execute import Executor
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.act.node_tainting import NodeTaints
from inplace.controller.act.refused_pods import RefusedPods
from inplace.controller.api.domains import Domains
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.evictions import EvictionReader
from inplace.controller.api.node_marks import NodeMarksReader
from inplace.controller.api.scheduling_objects import SchedulingReader
from inplace.controller.metrics import Metrics
from inplace.controller.plan.actions import AvoidNodes, Plan
from inplace.controller.plan.bad_nodes import domains_to_read
from inplace.controller.plan.observed import NeverJoined, Observed
from inplace.controller.plan.placement import follower_to_read, leaders_to_follow
from inplace.controller.plan.steps import plan
from inplace.controller.tracking.group import AcceptedStatus, Group, Key, failed_pods
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.missing_slots import find_missing_slots
from inplace.controller.tracking.never_joined import never_joined
from inplace.controller.tracking.pods import NOWHERE
from inplace.controller.tracking.scope_ledger import ScopeLedger


@dataclass(slots=True)
class Reconciler:
    """Makes one JobSet at a time agree with its spec; which event asked is unknown on purpose.

    Args:
        readers: tell of each accepted status, one after the other.
        settings: of the Jobs that it makes.
        only_writes: is told when a pass has decided all and only writes from then on.
    """

    client: KubeClient
    membership: Membership
    jobsets: Informer[KubeObject]
    services: Informer[Service]
    claims: Informer[PersistentVolumeClaim]
    pods: Informer[Pod]
    domains: Domains
    marks: NodeMarksReader
    evictions: EvictionReader
    scheduling: SchedulingReader
    taints: NodeTaints
    only_writes: Callable[[Key], None]
    executor: Executor
    recorder: EventRecorder
    metrics: Metrics
    clock: Clock
    readers: Sequence[Callable[[AcceptedStatus], None]]
    refused_pods: RefusedPods
    settings: JobSettings
    _known: dict[Key, str] = field(default_factory=dict)  # UID by key, to clean up after a JobSet that is gone

    async def reconcile(self, key: Key) -> float | None:
        """Make one JobSet agree with its spec; say after how many seconds to look again without being asked, if ever.

        Raises:
            ApiError, TransportError: the status could not be written; nothing else was done.
            ActionsFailedError: the status stands, some actions failed.
        """
        group = self.membership.get(key)
        known = self._known.get(key)
        if known is not None and (group is None or group.jobset.uid != known):
            self._forget(key, known)
        if group is None:
            return None
        self._known[key] = group.jobset.uid
        self.evictions.note(group)
        for scope_ledger in group.ledgers.values():
            group.pass_time(scope_ledger, self.clock.monotonic_s())
        observed = await self._observe(group)
        planned = plan(observed)
        jobset = group.jobset
        if await self._forgets_request(jobset, planned):
            planned = plan(replace(observed, forgets_requests=True))
        self.membership.expect(group, planned.expected, planned.left)
        group.note_causes(planned.causes, self.clock.monotonic_s())
        for note in planned.warnings:
            self.recorder.emit(jobset.raw, note)
        self._count_overdue(group, planned)
        group.pause(planned.paused, self.clock.monotonic_s())
        held_s = await self._write_status(group, planned)
        group.nodes.taken_back(observed.node_signs.returned)
        for action in planned.actions:
            if isinstance(action, AvoidNodes):
                group.nodes.avoids(action.pod.metadata.uid, action.nodes)
        self.only_writes(key)
        await self.taints.perform(group, planned.taints)
        taken_s = await self.executor.perform(jobset, planned.actions)
        await self.refused_pods.look(group, observed.barriers.values())
        clock_s = group.wait_s(self.clock.monotonic_s())
        again_s = 0.0 if planned.taints else None  # the next pass decides who leaves
        waits = (held_s, planned.requeue_after_s, taken_s, clock_s, again_s)
        waits_s = [wait_s for wait_s in waits if wait_s is not None]
        return min(waits_s, default=None)

    async def _forgets_request(self, jobset: JobSet, planned: Plan) -> bool:
        """Say whether the status would drop the id of the first request: what is not noted is asked for for ever.

        Raises:
            ApiError, TransportError: the API server refused the dry run, or did not answer.
        """
        if wire.LAST_RESTART_REQUEST not in planned.status or wire.LAST_RESTART_REQUEST in jobset.status:
            return False
        patch = {
            "metadata": {"uid": jobset.uid},
            "status": {wire.LAST_RESTART_REQUEST: planned.status[wire.LAST_RESTART_REQUEST]},
        }
        try:
            seen = await self.client.patch(
                JOBSETS, jobset.namespace, jobset.name, patch, subresource="status", dry_run=True
            )
        except NotFound:
            return False  # deleted meanwhile
        return wire.LAST_RESTART_REQUEST not in (seen.get("status") or {})

    def _count_overdue(self, group: Group, planned: Plan) -> None:
        """Count the deadlines that barriers missed; the next one counts from now."""
        names = (group.jobset.namespace, group.jobset.name)
        for scope, jobs in planned.overdue.items():
            self.metrics.deadlines.labels(*names).inc()
            self.metrics.barrier_recreations.labels(*names).inc(jobs)
            group.ledgers[scope].deadline_from_s = self.clock.monotonic_s()

    async def _observe(self, group: Group) -> Observed:
        jobset = group.jobset
        pods = self._pods_to_place(group)
        domains, asked_domains = {}, {}
        for name, some in pods.items():
            key = exclusive_key(jobset, jobset.replicated_job(jobset.places[name][0]))
            if key is None:
                continue
            for node in leaders_to_follow(some):
                if (domain := await self.domains.of_node(node, key)) is not None:
                    domains[node, key] = domain
            if (follower := follower_to_read(some)) is not None:
                asked_domains[follower.metadata.uid] = await self.domains.asked_by(follower, key)
        node_signs = self._node_signs(group)
        for node, key in domains_to_read(jobset, group.nodes.gated, node_signs.in_use, time_text(self.clock)):
            if (domain := await self.domains.of_node(node, key)) is not None:
                domains[node, key] = domain
        now_s = self.clock.monotonic_s()
        barriers = find_missing_slots(self.membership, group, now_s)
        self.marks.ask(group, barriers)
        self._note_bad_pods(group)
        return Observed(
            jobset=jobset,
            now=time_text(self.clock),
            jobs=self.membership.jobs_of(jobset),
            service=self.services.get(jobset.namespace, jobset.subdomain),
            claims={
                name: claim
                for name in map(jobset.claim_name, jobset.claims)
                if (claim := self.claims.get(jobset.namespace, name)) is not None
            },
            decisions=group.decisions(),
            done=group.done(),
            exchanges=group.exchanges(),
            pods=pods,
            scheduling_objects=self.scheduling.of(jobset),
            domains=domains,
            asked_domains=asked_domains,
            causes=group.causes(),
            barriers=barriers,
            silent=group.silent(),
            works=group.works(),
            failed_pods=self._failed_pods(group),
            marked={name: one.marked.leaving for name, one in group.ledgers.items() if one.marked.leaving},
            spares=group.spares(),
            bad_spares=tuple(pod for one in group.ledgers.values() for pod in one.bad_spares),
            asking={name: open_s for name, one in group.ledgers.items() if (open_s := one.marked.open_s(now_s)) > 0.0},
            never_joined=self._never_joined(group),
            blocked=group.blocked.causes(lambda name: self.pods.get(jobset.namespace, name)),
            blocked_s=group.blocked.lasts_s(self.clock.monotonic_s()),
            reported_s=None if group.reported_s is None else self.clock.monotonic_s() - group.reported_s,
            notices=group.notices(),
            noticed_s=None if group.noticed_s is None else self.clock.monotonic_s() - group.noticed_s,
            now_micro=micro_time(self.clock),
            matches=self._matches(group),
            gated=group.nodes.gated,
            index_failures=tuple(group.index_failures.values()),
            node_signs=node_signs,
            accounts=group.accounts,
            adds_agents=self.settings.agent is not None,
            agents_by_default=self.settings.adds_by_default(jobset.namespace),
            taints_nodes=self.taints.limits is not None,
        )

    def _failed_pods(self, group: Group) -> dict[str, Pod]:
        """Return by scope the Pod that a restart may replace; none where restarts replace none."""
        if not group.jobset.replaces_pods:
            return {}
        return failed_pods(group, lambda name: self.pods.get(group.jobset.namespace, name), self.membership.home_of)

    def _note_bad_pods(self, group: Group) -> None:
        """Let ledgers with spares know which of their Pods failed on bad nodes, as the status says."""
        jobset, found, now = group.jobset, dict[ScopeLedger, list[Pod]](), time_text(self.clock)
        if all(one.members is None for one in group.ledgers.values()):
            return
        suspects = jobset.suspects if jobset.suspects is None or not jobset.suspects.is_observed else None
        for record in known_nodes(jobset.status, jobset.bad_nodes, suspects, now):
            pod = self.pods.get(jobset.namespace, record.pod) if record.is_bad else None
            home = self.membership.home_of(pod.metadata.uid) if pod is not None else None
            if pod is not None and home is not None and pod.spec.node_name == record.node:
                found.setdefault(home, []).append(pod)
        for scope_ledger in group.ledgers.values():
            scope_ledger.bad = tuple(found.get(scope_ledger, ()))

    def _never_joined(self, group: Group) -> NeverJoined | None:
        """Return the slot that failed most often before it joined; none where nothing restarts in place."""
        if not group.jobset.is_in_place:
            return None
        jobset, jobs = group.jobset, self.membership.jobs_of(group.jobset).values()
        members = [job for job in jobs if jobset.places.get(job.metadata.name, NOWHERE)[0] not in jobset.opted_out]
        of_slots = never_joined((job for job in members if is_current(jobset, job)), self.membership.pods_of)
        found = [of_slots, *(ledger.early_ends.worst() for ledger in group.ledgers.values())]
        return max((one for one in found if one is not None), key=lambda one: one.count, default=None)

    def _matches(self, group: Group) -> Mapping[str, int | None]:
        """Return which rule of the failure policy each failed Job matches, of those that there was time to look at."""
        jobset = group.jobset
        if jobset.failure_policy is None or not jobset.failure_policy.rules:
            return {}
        jobs = self.membership.jobs_of(jobset).values()
        failed = [job for job in jobs if bucket_of(jobset, job) is Bucket.FAILED]
        return group.matches.look(jobset, failed, self.clock.monotonic_s)

    def _node_signs(self, group: Group) -> NodeSigns:
        """Return what was seen of the nodes; how many are in use is counted where a decision may need it."""
        jobset = group.jobset
        if jobset.bad_nodes is None:
            return NO_SIGNS
        in_use: set[str | None] = set()
        if group.nodes.has_signs or group.causes():
            for job in self.membership.jobs_of(jobset).values():
                in_use |= {pod.spec.node_name for pod in self.membership.pods_of(job) if pod.status.phase == "Running"}
        return group.nodes.signs(len(in_use))

    def _pods_to_place(self, group: Group) -> dict[str, Sequence[Pod]]:
        """Return the Pods of each Job that is placed exclusively."""
        jobset = group.jobset
        if not jobset.is_placed_exclusively:
            return {}
        jobs = self.membership.jobs_of(jobset)
        return {name: self.membership.pods_of(job) for name, job in jobs.items() if name in jobset.places}

    async def _write_status(self, group: Group, planned: Plan) -> float | None:
        """Write what changed; counters alone wait for company. Return how long they still wait.

        Raises:
            Conflict: another client wrote in between; the cache is fresh again, decide again.
        """
        jobset, now_s = group.jobset, self.clock.monotonic_s()
        if not planned.status:
            group.dirty_since_s = None
            return None
        if not planned.is_urgent:
            group.dirty_since_s = now_s if group.dirty_since_s is None else group.dirty_since_s
            waited_s = now_s - group.dirty_since_s
            if waited_s < planned.hold_s:
                return planned.hold_s - waited_s
        due_since_s = {
            name: scope_ledger.due_since_s if scope_ledger.due_since_s is not None else now_s
            for name, scope_ledger in group.ledgers.items()
        }
        causes = group.causes()  # BEFORE the write: a watch that is faster than the answer ends them
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": jobset.resource_version, "uid": jobset.uid},
            "status": status_patch(jobset.status, planned.status),
        }
        is_division = wire.SCOPED_EPOCHS not in jobset.status and wire.SCOPED_EPOCHS in planned.status
        sight = self.membership.first_sight
        try:
            with sight.dividing(jobset.uid, group.relisted) if is_division else nullcontext():
                written = await self.client.patch(JOBSETS, jobset.namespace, jobset.name, patch, subresource="status")
        except Conflict:
            self.metrics.conflicts.inc()
            with suppress(NotFound):  # read it again: the watch may take longer to show what we collided with
                self.jobsets.absorb(await self.client.get(JOBSETS, jobset.namespace, jobset.name))
            raise
        except NotFound:
            return None  # deleted meanwhile; its own event cleans up
        group.dirty_since_s = None
        if "conditions" in planned.status:
            group.reported_s = self.clock.monotonic_s()
        if wire.NOTICES in planned.status:
            group.noticed_s = self.clock.monotonic_s()
        after = replace(jobset, status=written.get("status") or {})
        accepted = AcceptedStatus(group, jobset, after, planned, causes, due_since_s, self.clock.monotonic_s())
        for read in self.readers:
            read(accepted)
        self.jobsets.absorb(written)  # AFTER the readers: what the ledgers learn from it ends causes
        return None

    def _forget(self, key: Key, uid: str) -> None:
        """Drop what is remembered of a JobSet that is gone."""
        self._known.pop(key, None)
        self.executor.refusals.forget(uid)
        self.executor.rights.forget(uid)
        self.metrics.forget(*key)


def status_patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a merge patch that makes each field of a status as `wanted` says; the other fields stay.

    RFC 7386 alone would keep old fields of objects.
    """
    return {name: _replacing(stored.get(name), value) for name, value in wanted.items()}


def _replacing(old: Any, new: Any) -> Any:
    """Return `new` with a null for everything of `old` that it does not have."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    gone = {name: None for name in old if name not in new}
    return gone | {name: _replacing(old.get(name), value) for name, value in new.items()}
