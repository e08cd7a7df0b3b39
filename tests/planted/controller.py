"""Bugs in the controller: leader election, passes over a JobSet, the budget of restarts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from inplace.common.jobset.crash_loop import CrashLoop
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError, Conflict
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.ledger import Ledger
from inplace.controller.act.reconcile import Reconciler
from inplace.controller.act.refusals import ActionsFailedError
from inplace.controller.api.leader import Elector, LeaderOnlyTransport, LeadershipLostError
from inplace.controller.plan.escalation import replace_pods
from inplace.controller.tracking.group import Group, Key
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.pods import Reading, epoch_of, read_pod, worker_of
from tests.planted.bug import Area, hunted
from tests.planted.mistake import instead_of, planted, within

Reconciling = Callable[..., Coroutine[Any, Any, float | None]]
FIRST_GROUP = instead_of(Membership._owned_by, lambda original, self, owner: next(iter(self._groups.values()), None))


async def _stays(original: Callable[..., Coroutine[Any, Any, None]], self: Elector) -> None:
    with suppress(LeadershipLostError):
        await original(self)


async def _waits_long(
    original: Callable[..., Coroutine[Any, Any, Response]],
    self: KubeClient,
    request: Request,
    *,
    timeout_s: float,
    expects_json: bool = True,
) -> Response:
    return await original(self, request, timeout_s=1e9, expects_json=expects_json)


async def _ignores_renewals(original: Callable[..., Coroutine[Any, Any, bool]], self: Elector) -> bool:
    seen_s = self._seen_s
    there = await original(self)
    self._seen_s = seen_s or self._seen_s
    return there


async def _writes_on(
    original: Callable[..., Coroutine[Any, Any, Response]],
    self: LeaderOnlyTransport,
    request: Request,
    *,
    timeout_s: float,
) -> Response:
    return await self._inner.request(request, timeout_s=timeout_s)


async def _drops_what_failed(original: Reconciling, self: Reconciler, key: Key) -> float | None:
    try:
        return await original(self, key)
    except Conflict:
        raise
    except (ApiError, TransportError, ActionsFailedError):
        return None


async def _drops_conflicts(original: Reconciling, self: Reconciler, key: Key) -> float | None:
    try:
        return await original(self, key)
    except Conflict:
        return None


def _wakes_nobody(original: Callable[..., None], self: Membership, old: Job | None, new: Job | None) -> None:
    wake = self.wake
    if new is None:
        self.wake = lambda key, after_s: None
    original(self, old, new)
    self.wake = wake


def _counts_namesakes(original: Callable[..., Any], self: Membership, pod: Pod, job_uid: str) -> Any:
    if self._job_of(pod, job_uid) is None:
        return original(self, pod, job_uid)
    with planted(FIRST_GROUP):
        return original(self, pod, job_uid)


def _reads_or_raises(original: Callable[..., Reading], pod: Pod, place: tuple[str, int], **rest: Any) -> Reading:
    reading = original(pod, place, **rest)
    if reading.view is not None:
        epoch_of(pod)
    return reading


# By the ledger's id, which no other one shares while this one is kept.
_RESTARTS_FORGOTTEN: dict[int, tuple[Ledger, int]] = {}


def _forgets(original: Callable[..., Decision], self: Ledger, *, restarts_max: int, uncounted: int = 0) -> Decision:
    _, forgotten = _RESTARTS_FORGOTTEN.setdefault(id(self), (self, max(0, self.synced - 1)))
    return original(self, restarts_max=restarts_max, uncounted=uncounted + forgotten)


LEADER = (
    hunted(
        "a leader that lost the Lease goes on unnoticed",
        Area.LEADER,
        (instead_of(Elector.hold, _stays),),
        "kubernetes_asyncio leaderelection: the end of the leader's task is never noticed",
        faults=("lease-stolen", "lease-deleted"),
    ),
    hunted(
        "a request for the Lease that hangs is waited for without end",
        Area.LEADER,
        (
            instead_of(Elector._renewal_s, lambda original, self: 1e9),
            instead_of(Elector.left_s, lambda original, self: 1e9 if self._leads else 0.0),
            instead_of(KubeClient.send, _waits_long),
        ),
        "kubernetes_asyncio leaderelection: a hung request outlives the lease",
        faults=("partition-controller", "api-timeout-before-commit"),
    ),
    hunted(
        "a Lease that is renewed is taken over all the same",
        Area.LEADER,
        (instead_of(Elector._read, _ignores_renewals),),
    ),
    hunted(
        "a leader that stood still writes on when it wakes up",
        Area.LEADER,
        (instead_of(LeaderOnlyTransport.request, _writes_on),),
        "HBase, as told by Kleppmann (How to do distributed locking, 2016): no fence behind a lock",
        faults=("two-leaders",),
    ),
)

CONTROLLER = (
    hunted(
        "a status write that failed is not tried again",
        Area.CONTROLLER,
        (instead_of(Reconciler.reconcile, _drops_what_failed),),
        "JobSet #1194: no requeue after a failed status update",
        faults=("api-500",),
    ),
    hunted(
        "a conflict is not tried again",
        Area.CONTROLLER,
        (instead_of(Reconciler.reconcile, _drops_conflicts),),
        faults=("conflict",),
    ),
    hunted(
        "the end of a deleted Pod is not seen",
        Area.CONTROLLER,
        (
            instead_of(
                Membership.pod_changed,
                lambda original, self, old, new: None if new is None else original(self, old, new),
            ),
        ),
        "JobSet #574: no restart when a Pod is deleted or its node shut down",
        faults=("pod-force-deleted",),
    ),
    hunted(
        "a Pod that vanished while it waits is forgotten",
        Area.CONTROLLER,
        (instead_of(Ledger.vanish, lambda original, self, uid: self.forget(uid)),),
        faults=("pod-force-deleted", "pod-slow-to-die", "connection-refused"),
    ),
    hunted(
        "a Job that is gone wakes no JobSet",
        Area.CONTROLLER,
        (instead_of(Membership.job_changed, _wakes_nobody),),
        "Volcano #5385: a targeted restart deletes what it needs and hangs in Restarting",
        faults=("job-deleted", "worker-completes"),
    ),
    hunted(
        "Pods of an older JobSet of the same name are counted",
        Area.CONTROLLER,
        (instead_of(Membership._assign, _counts_namesakes),),
        "JobSet #1165, #1167: child Jobs are listed by the name of their JobSet, not by its UID",
        faults=("jobset-recreated",),
    ),
    hunted(
        "one broken annotation ends the controller",
        Area.CONTROLLER,
        (instead_of(read_pod, _reads_or_raises),),
        faults=("annotation-tampered",),
    ),
    hunted(
        "a worker that ends well is taken for a failure",
        Area.CONTROLLER,
        (
            instead_of(
                worker_of,
                lambda original, pod: replace(
                    original(pod),
                    failed=any(status.state.terminated is not None for status in pod.status.container_statuses or ()),
                ),
            ),
        ),
    ),
    hunted(
        "a barrier waits for the slots that were asked for at first",
        Area.CONTROLLER,
        (within(Membership._follow, instead_of(Group.reshape, lambda original, self: None)),),
        faults=("resize",),
    ),
)

MARKED = (
    hunted(
        "a Pod that leaves its node counts at the barrier",
        Area.CONTROLLER,
        (instead_of(JobSet.replaced_pods, lambda original, self: frozenset()),),
        faults=(
            "node-cordoned",
            "term-ignored",  # a Pod that ends at once counts for no barrier
        ),
    ),
    hunted(
        "a Pod that leaves its node is never ended",
        Area.CONTROLLER,
        (instead_of(replace_pods, lambda original, draft: False),),
        faults=("node-cordoned",),
    ),
)

BUDGET = (
    hunted(
        "a restart in vain does not wait",
        Area.BUDGET,
        (instead_of(CrashLoop.left_s, lambda original, self, now_s, backoff: 0.0),),
        faults=("worker-exit",),
    ),
    hunted(
        "a new leader forgets the restarts of the old one",
        Area.BUDGET,
        (instead_of(Ledger.decide, _forgets),),
        "Kubeflow trainer #3779: a recreated object begins with a full budget",
        faults=("controllers-crash", "controller-crash"),
    ),
)
