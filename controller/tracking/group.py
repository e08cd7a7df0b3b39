"""One JobSet with a ledger for each scope that restarts together in place; what they ask of its status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from inplace.common.jobset.causes import Cause, unix_time
from inplace.common.jobset.conditions import IN_VAIN, is_true
from inplace.common.jobset.escalation import pod_leaving, use_of_restart
from inplace.common.jobset.furthest_behind import FurthestBehind, silent_of_entry
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.last_restart import cause_of
from inplace.common.jobset.notices import GroupNotice, notices_of
from inplace.common.jobset.rules import Matches
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.settings import planned_save_s
from inplace.common.jobset.slow_ranks import PodWork
from inplace.common.jobset.verdict import verdict_of
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.lease import promised_s
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import Plan
from inplace.controller.tracking.counts import SCOPES_SHOWN_MAX, GroupCount, JobSetCount, summed
from inplace.controller.tracking.memories import BlockedPods, LastSteps, MarkedPods
from inplace.controller.tracking.node_watch import NodeWatch
from inplace.controller.tracking.pods import index_has_failed
from inplace.controller.tracking.scope_ledger import ScopeLedger

GRACE_S: Final = 30.0  # of a Pod that says nothing: Kubernetes' default

Key = tuple[str, str]
"""Namespace and name of a JobSet."""


@dataclass(slots=True)
class Group:
    """One JobSet with its ledgers.

    Args:
        ledgers: by scope; none where groups do not restart in place.
        expected: the replicatedJobs that the barriers wait for; None while no pass has said so: then all of them,
            with which nothing can be complete too early.
        left: (replicatedJob, job index) of the Jobs in them that no barrier waits for: they failed, and stay so.
        reported_s: when conditions were last written.
        noticed_s: when the list of notices was last written.
        dirty_since_s: since when counters wait to be written; None while none do.
        nodes: what the Pods say of their nodes.
        accounts: (replicatedJob, ServiceAccount) of the Pods that were seen before they announced.
        index_failures: by UID, the Pods that joined, and whose index had lost Pods before.
        blocked: which Pods have a container that kubelet cannot start.
        matches: which rule of the failure policy each failed Job matches.
    """

    jobset: JobSet
    ledgers: dict[str, ScopeLedger] = field(default_factory=dict)
    expected: frozenset[str] | None = None
    left: frozenset[tuple[str, int]] = frozenset()
    reported_s: float | None = None
    noticed_s: float | None = None
    dirty_since_s: float | None = None
    nodes: NodeWatch = field(default_factory=NodeWatch)
    accounts: set[tuple[str, str]] = field(default_factory=set)
    index_failures: dict[str, Pod] = field(default_factory=dict)
    blocked: BlockedPods = field(default_factory=BlockedPods)
    matches: Matches = field(default_factory=Matches)

    @property
    def key(self) -> Key:
        """Return (namespace, name)."""
        return self.jobset.namespace, self.jobset.name

    @property
    def is_due(self) -> bool:
        """Say whether agents wait for this JobSet's status: a ledger asks for another one."""
        return any(scope_ledger.due_since_s is not None for scope_ledger in self.ledgers.values())

    def open_ledgers(self, listed: int) -> None:
        """Begin to count anew, from what the status says.

        Args:
            listed: the version of the list of Pods with which this controller began; 0 if it saw this JobSet before
                any of its Pods.
        """
        self.ledgers = {}
        if self.jobset.is_in_place and self.jobset.is_ours and not self.jobset.oversize:
            for name, scope in self.jobset.scopes.items():
                ledger = self._ledger(name, scope, listed)
                cause = cause_of(self.jobset.status, scope)
                self.ledgers[name] = ScopeLedger(self.jobset.uid, name, ledger, cause=cause)
                self.ledgers[name].note_status(scope)
            for notice in notices_of(self.jobset.status):
                if (scope_ledger := self.ledgers.get(notice.scope)) is not None:
                    scope_ledger.notices.put(notice)

    def note_account(self, replicated_job: str, account: str) -> bool:
        """Take in the account of a Pod that has not announced; say whether it is new, so that a pass has to look."""
        known = len(self.accounts)
        self.accounts.add((replicated_job, account))
        return len(self.accounts) > known

    def note_joined(self, pod: Pod, *, joined: bool) -> None:
        """Keep a Pod that joined, and whose Job would replace it late because its index failed before."""
        if joined and index_has_failed(pod):
            self.index_failures[pod.metadata.uid] = pod
        elif self.index_failures:
            self.index_failures.pop(pod.metadata.uid, None)

    def relisted(self, version: int) -> None:
        """Let the ledgers know that what happened to Pods before this version may have been missed."""
        for scope_ledger in self.ledgers.values():
            if scope_ledger.members is not None:
                scope_ledger.members.relisted(version)

    def learn(self) -> None:
        """Tell every ledger what the status says now."""
        for name, scope in self.jobset.scopes.items():
            if (scope_ledger := self.ledgers.get(name)) is not None:
                if scope.synced > scope_ledger.ledger.synced:
                    scope_ledger.early_ends.clear()
                    scope_ledger.marked = MarkedPods()
                    scope_ledger.waits_since_s = scope_ledger.deadline_from_s = None
                    if scope.synced > scope.deprecated:  # else the epoch is skipped, and the restart goes on
                        scope_ledger.cause, scope_ledger.silence, scope_ledger.works = None, LastSteps(), {}
                    if scope.has_spares and (ranks := scope.ranks) is not None:
                        scope_ledger.clock.note_members(ranks.size, self.jobset.member_policy(scope).wait_s)
                scope_ledger.ledger.learn(scope.synced, scope.deprecated, scope.ranks)
                if scope_ledger.members is not None:
                    scope_ledger.members.sizes = self.jobset.member_policy(scope).sizes
                scope_ledger.note_status(scope)

    def _ledger(self, name: str, scope: Scope, listed: int) -> Ledger:
        if not scope.has_spares:
            return Ledger(self._shape(name), scope.synced, scope.deprecated, scope.ranks)
        sizes = self.jobset.member_policy(scope).sizes
        return MemberLedger(
            self._shape(name), scope.synced, scope.deprecated, sizes=sizes, members=scope.ranks, since=listed
        )

    def promised_s(self) -> float:
        """Return within how many seconds a worker ends whose epoch is over: by its lease, or by kubelet's grace."""
        if (after_s := self.jobset.fence_after_s) is not None:
            return promised_s(after_s)
        specs = [job.template().get("spec") or {} for job in self.jobset.replicated_jobs if not job.has_opted_out]
        pods = [(spec.get("template") or {}).get("spec") or {} for spec in specs]
        return float(max(pod.get("terminationGracePeriodSeconds") or GRACE_S for pod in pods))

    def _wait_s(self, name: str) -> float:
        """Return for how long a scope with spares waits for more Pods."""
        return self.jobset.member_policy(self.jobset.scopes[name]).wait_s

    def _saves(self, name: str) -> bool:
        """Say whether the workers of a scope get time to save before a planned restart."""
        templates = (self.jobset.replicated_job(job).template() for job in self.jobset.scopes[name].members)
        return planned_save_s(self.jobset.annotations, templates) > 0

    def reshape(self) -> None:
        """Tell every ledger which slots are expected now."""
        for name, scope_ledger in self.ledgers.items():
            scope_ledger.ledger.reshape(self._shape(name))

    def ledger_of(self, replicated_job: str | None) -> ScopeLedger | None:
        """Return the ledger that counts a replicatedJob's Pods.

        If its replicatedJob is unknown (a label was broken), some barrier must wait for its Pods to be
        gone: the first one's.
        """
        job = self.jobset.find_replicated_job(replicated_job or "")
        if job is not None and job.has_opted_out:
            return None
        name = self.jobset.scope_name(job) if job is not None else min(self.ledgers, default="")
        return self.ledgers.get(name)

    def number_of(self, slot: Slot) -> int | None:
        """Return a slot's place in its group, or the rank that it plays; None where the spec has none for it."""
        job, first = self.jobset.find_replicated_job(slot.replicated_job), self.jobset.numbers.first_slot
        if job is None or slot.completion_index < 0:
            return None
        own = self.ledger_of(slot.replicated_job)
        if own is not None and own.members is not None and own.members.members is not None:
            return own.members.members.place_of(slot.job_index, slot.completion_index)
        return first[job.name] + slot.job_index * job.parallelism + slot.completion_index

    def decide(self, name: str) -> Decision:
        """Ask one ledger what the status should say; there is one maxRestarts for all scopes and all recreations."""
        policy, scope = self.jobset.failure_policy, self.jobset.scopes[name]
        assert policy is not None, "only a failure policy can ask for restarts in place"
        elsewhere = self.jobset.recreations_counted
        for other in self.ledgers.values() if len(self.ledgers) > 1 else ():  # at most 100: the CRD's replicatedJobs
            if other.name != name:
                ledger = other.ledger
                elsewhere += self.jobset.scopes[other.name].restarts_at(max(ledger.announced, ledger.synced))
        restarts_max = -1 if self.jobset.has_no_step_left(scope) else policy.restarts_max
        own, uncounted = self.ledgers[name], scope.exempt - elsewhere
        if own.members is None:
            return own.ledger.decide(restarts_max=restarts_max, uncounted=uncounted)
        return own.members.decide(
            restarts_max=restarts_max, uncounted=uncounted, waited=own.clock.waited, avoided=own.avoided
        )

    def causes(self) -> Mapping[str, Cause]:
        """Return why each scope restarts, of those that do."""
        return {
            name: scope_ledger.cause for name, scope_ledger in self.ledgers.items() if scope_ledger.cause is not None
        }

    def silent(self) -> Mapping[str, FurthestBehind]:
        """Return who was silent first in each scope that restarts, as far as its Pods told."""
        found = {
            name: scope_ledger.silence.result(scope_ledger.expected) for name, scope_ledger in self.ledgers.items()
        }
        return {name: silent for name, silent in found.items() if silent is not None}

    def notices(self) -> tuple[GroupNotice, ...]:
        """Return what Pods tell of the workers that run; none where nobody tells, as nearly always."""
        return tuple(notice for scope_ledger in self.ledgers.values() for notice in scope_ledger.notices.entries())

    def works(self) -> Mapping[str, tuple[PodWork, ...]]:
        """Return how long ranks worked on a step, by scope, where Pods told; O(Pods), only while a group restarts."""
        return {name: tuple(one.works.values()) for name, one in self.ledgers.items() if one.works}

    def note_causes(self, causes: Mapping[str, Cause], now_s: float) -> None:
        """Take in what the planner knows of why scopes restart."""
        for name, cause in causes.items():
            if (scope_ledger := self.ledgers.get(name)) is not None and scope_ledger.cause is not cause:
                seen_s = scope_ledger.cause.seen_s if scope_ledger.cause is not None else None
                scope_ledger.cause = replace(cause, seen_s=now_s if seen_s is None else seen_s)

    def pause(self, paused: Mapping[str, float], now_s: float) -> None:
        """Note which scopes wait before their next epoch begins: nobody holds their barriers up meanwhile."""
        for name, scope_ledger in self.ledgers.items():
            scope_ledger.paused_until_s = now_s + paused[name] if name in paused else 0.0
            if name in paused:
                scope_ledger.note_waiting(now_s, waits=False)
                scope_ledger.due_since_s = None

    def decisions(self) -> Mapping[str, Decision]:
        """Ask every ledger."""
        return {name: self.decide(name) for name in self.ledgers}

    def done(self) -> frozenset[str]:
        """Return the scopes with spares whose members have all completed."""
        found = ((name, one.members) for name, one in self.ledgers.items())
        return frozenset(name for name, ledger in found if ledger is not None and ledger.is_done)

    def exchanges(self) -> Mapping[str, str]:
        """Return the scopes that should restart now so that spares become members, and why, in words."""
        found = ((name, one.why_exchange(partial(self._saves, name))) for name, one in self.ledgers.items())
        return {name: why for name, why in found if why}

    def spares(self) -> Mapping[str, int]:
        """Return how many spares could take a rank, by scope."""
        found = ((name, one, one.members) for name, one in self.ledgers.items())
        return {name: ledger.spares(one.avoided) for name, one, ledger in found if ledger is not None}

    def pass_time(self, scope_ledger: ScopeLedger, now_s: float) -> bool:
        """Let a ledger know what is over by now; say whether a wait has begun, at whose end somebody must look."""
        scope_ledger.pass_fences(now_s)
        scope_ledger.trust(self.promised_s, now_s)
        name = scope_ledger.name
        return scope_ledger.note_time(partial(self._saves, name), partial(self._wait_s, name), now_s)

    def note_due(self, scope_ledger: ScopeLedger, now_s: float) -> bool:
        """Say whether a ledger asks for something that the status does not show, and note since when."""
        jobset, ledger = self.jobset, scope_ledger.ledger
        has_begun = self.pass_time(scope_ledger, now_s)
        due = waits = False
        is_paused = now_s < scope_ledger.paused_until_s
        if not (is_paused or jobset.is_finished or jobset.suspended or jobset.is_leaving):
            decision = self.decide(scope_ledger.name)
            changes = (decision.synced, decision.deprecated) != (ledger.synced, ledger.deprecated)
            due = changes or decision.exceeded or bool(decision.recreate) or scope_ledger.name in self.done()
            # A Pod that announced beyond S asks for a change; before the first sync all Pods wait.
            waits = changes or scope_ledger.slots().is_restarting or (ledger.synced == 0 and ledger.shape.size > 0)
        scope_ledger.note_waiting(now_s, waits=waits)
        if not due:
            scope_ledger.due_since_s = None
        elif scope_ledger.due_since_s is None:
            scope_ledger.due_since_s = now_s
        return due or has_begun

    def wait_s(self, now_s: float) -> float | None:
        """Return when a ledger may decide otherwise because of the time alone; None for never."""
        waits_s = [scope_ledger.fences.next_in_s(now_s) for scope_ledger in self.ledgers.values()]
        for name, one in self.ledgers.items():
            if one.members is not None:
                waits_s += [one.trust(self.promised_s, now_s), one.clock.next_in_s(self._wait_s(name), now_s)]
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def counts(self, now_s: float) -> Iterator[GroupCount]:
        """Yield how each scope stands, or how all stand together if they are many; for metrics."""
        if self.jobset.failure_policy is None or self.jobset.is_finished:
            return
        if len(self.ledgers) > SCOPES_SHOWN_MAX:
            yield summed(tuple(self._counts(now_s)))
        else:
            yield from self._counts(now_s)

    def _counts(self, now_s: float) -> Iterator[GroupCount]:
        for position, (name, scope_ledger) in enumerate(self.ledgers.items()):
            ledger = scope_ledger.ledger
            yield GroupCount(
                *self.key,
                scope=name,
                expected=scope_ledger.expected,
                standing=ledger.standing(),
                synced=ledger.synced,
                deprecated=ledger.deprecated,
                waited_s=0.0 if scope_ledger.waits_since_s is None else now_s - scope_ledger.waits_since_s,
                whole=self._count_once(name) if position == 0 else None,
                goodput=self.jobset.scopes[name].goodput,
                is_at_rest=self.jobset.suspended or self.jobset.is_leaving,
                sizes=members.sizes.of_pods(ledger.shape.each) if (members := scope_ledger.members) else None,
                spares_max=max(0, ledger.shape.size - members.sizes.most * ledger.shape.each) if members else 0,
            )

    def _count_once(self, name: str) -> JobSetCount:
        """Return what is said once of the JobSet; `name` is any of its scopes."""
        policy = self.jobset.failure_policy
        assert policy is not None
        last = self.jobset.status.get(wire.LAST_GROUP_RESTART) or {}
        left = max(0, policy.restarts_max - self.decide(name).restarts)
        ended_s = unix_time(last.get("syncedAt"))
        vain = is_true(self.jobset.status.get("conditions") or (), IN_VAIN)
        return JobSetCount(*self.key, policy.restarts_max, left, ended_s, verdict_of(last), silent_of_entry(last), vain)

    def _shape(self, name: str) -> Shape:
        """Return the slots that a scope's barrier waits for."""
        members = self.jobset.scopes[name].members
        if self.expected is not None:
            members &= self.expected
        sizes = {
            job.name: (job.replicas, job.parallelism) for job in self.jobset.replicated_jobs if job.name in members
        }
        return Shape(sizes, frozenset(place for place in self.left if place[0] in sizes))


# Find the Pods that the step ReplacePod may replace, or is replacing: of each scope the one that failed first.


def failed_pods(
    group: Group, pod_named: Callable[[str], Pod | None], home_of: Callable[[str], ScopeLedger | None]
) -> dict[str, Pod]:
    """Return them by scope.

    A Pod that is being replaced comes first. Else a Pod counts if its worker was seen to exit first, or is slow, and it
    still lives, unless the restart has taken another step. After a hang the Pod that told first is as
    likely healthy, and a Pod that is lost has a replacement already.

    Args:
        group: whose restarts may replace Pods.
        pod_named: finds a Pod of its namespace by name.
        home_of: finds who counts a Pod, by its UID.
    """
    found, jobset = {}, group.jobset
    for name, scope_ledger in group.ledgers.items():
        uses, epoch = jobset.escalation_uses, jobset.scopes[name].synced + 1
        leaving, use = pod_leaving(uses, name, epoch), use_of_restart(uses, name, epoch)
        cause = scope_ledger.cause
        failure = cause.failure if cause is not None and cause.is_of_the_pod else None
        candidate = failure.pod if failure is not None and use is None else ""
        pod = pod_named(leaving.pod if leaving is not None else candidate)
        if pod is None or home_of(pod.metadata.uid) is not scope_ledger:
            continue
        if leaving is not None or scope_ledger.ledger.lives(pod.metadata.uid):
            found[name] = pod
    return found


# A status that the API server accepted, and what led to it: all who tell of a pass read this one record.


@dataclass(frozen=True, slots=True)
class AcceptedStatus:
    """The status write of one pass.

    Args:
        group: the JobSet's; a watch may have shown it more than was written.
        before: the JobSet that was decided on.
        after: the same with the accepted status.
        planned: the decision.
        causes: by scope, why it restarts.
        due_since_s: by scope, when its ledger first asked for this write.
        at_s: when the server accepted it.
    """

    group: Group
    before: JobSet
    after: JobSet
    planned: Plan
    causes: Mapping[str, Cause]
    due_since_s: Mapping[str, float]
    at_s: float
