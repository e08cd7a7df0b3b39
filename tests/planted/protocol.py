"""Bugs in the protocol of both programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol import pod_record
from inplace.common.protocol.agent import Accepted, AgentPhase, Announce, NotAccepted, Verdict, is_fresh, judge
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod import PodState, Step, StopWorker
from inplace.common.protocol.pod_view import PodLife
from inplace.controller.plan import epochs
from tests.model.configurations import kinds
from tests.model.pods import Config
from tests.planted.bug import Area, hunted
from tests.planted.mistake import Mistake, instead_of


def _counts_pods(original: Callable[..., bool], self: Ledger, top: int) -> bool:
    return top > self.synced and 0 < self.shape.size <= self._pods_at[top]


def _keeps_the_terminating(original: Callable[..., None], self: Ledger, uid: str) -> None:
    record = self._records.get(uid)
    if record is not None and record.pod.life is PodLife.LEAVING:
        del self._records[uid]
        return
    original(self, uid)


def _announces_beside(original: Callable[..., Step], state: PodState, event: Any) -> Step:
    after, actions = original(state, event)
    if any(isinstance(action, StopWorker) for action in actions):
        return pod_machine._begin_again(replace(state, agent=after.agent))
    return after, actions


def _believes(original: Callable[..., None], self: Ledger, record: pod_record.Record) -> None:
    synced, self.synced = self.synced, max(self.synced, (record.pod.epoch or 0) - 1)
    original(self, record)
    self.synced = synced


def _remembers_the_dead(
    original: Callable[..., None], self: Ledger, synced: int, deprecated: int, members: Members | None = None
) -> None:
    broken = set(self._broken)
    original(self, synced, deprecated, members)
    self._broken |= broken


def _ignores_ghosts(original: Callable[..., bool], self: Ledger, top: int) -> bool:
    ghosts, self._ghosts = self._ghosts, 0
    complete = original(self, top)
    self._ghosts = ghosts
    return complete


def restarts_beyond(count: int) -> Mistake:
    """Let maxRestarts allow so many restarts more than it says."""
    return instead_of(
        Ledger.decide,
        lambda original, self, *, restarts_max, uncounted=0: original(
            self, restarts_max=restarts_max + count, uncounted=uncounted
        ),
    )


def _gives_up_refused(original: Callable[..., Any], state: Any, event: Any) -> Any:
    after, actions = original(state, event)
    is_again = isinstance(event, NotAccepted) and any(isinstance(action, Announce) for action in actions)
    return after, () if is_again else actions


_WORKER: Final = Config(2, 1, kinds("worker"))
_OVERLAP: Final = Config(2, 1, kinds("replace"), overlap=True)
_SUPERVISED: Final = Config(2, 1, kinds("worker"), supervisor=True)

PROTOCOL = (
    hunted(
        "a restarted agent believes a stale watch cache",
        Area.PROTOCOL,
        (instead_of(is_fresh, lambda original, *_: True),),
        "Sieve (OSDI'22): stale states, 19 of its 46 reproduction plans",
        faults=("api-stale-cache", "worker-exit"),
        worlds=(_WORKER,),
    ),
    hunted(
        "the barrier lifts as soon as the epoch is announced",
        Area.PROTOCOL,
        (
            instead_of(
                judge,
                lambda original, epoch, view: (
                    Verdict.SYNCED if (verdict := original(epoch, view)) is Verdict.PENDING else verdict
                ),
            ),
        ),
        worlds=(_WORKER, _SUPERVISED),
    ),
    hunted(
        "synced beats deprecated",
        Area.PROTOCOL,
        (
            instead_of(
                judge,
                lambda original, epoch, view: (
                    Verdict.SYNCED if view.in_place and epoch == view.synced else original(epoch, view)
                ),
            ),
        ),
        worlds=(_WORKER,),
    ),
    hunted(
        "what the watch showed while the announcement was under way is forgotten",
        Area.PROTOCOL,
        (
            instead_of(
                step_agent,
                lambda original, state, event: (
                    (replace(state, phase=AgentPhase.WAITING), ())
                    if isinstance(event, Accepted) and state.phase is AgentPhase.ANNOUNCING
                    else original(state, event)
                ),
            ),
        ),
        faults=("api-slow-answer",),
    ),
    hunted(
        "a slot with two Pods is counted by either of them",
        Area.PROTOCOL,
        (
            instead_of(
                pod_record.only_live,
                lambda original, slot: (
                    original({"": max(slot.values(), key=lambda record: record.epoch or 0)}) if slot else None
                ),
            ),
        ),
        "JobSet #665: Pods of attempt N talk to Pods of attempt N - 1 that still run",
        faults=("pod-slow-to-die",),
        worlds=(_OVERLAP,),
    ),
    hunted(
        "Pods are counted instead of slots",
        Area.PROTOCOL,
        (instead_of(Ledger._is_complete, _counts_pods),),
        "NVRx #348: five live agents where four fit closed the rendezvous",
        faults=("pod-slow-to-die",),
    ),
    hunted(
        "a terminating Pod is taken for gone",
        Area.PROTOCOL,
        (
            instead_of(
                pod_record.may_run, lambda original, record: record.pod.life is PodLife.LIVE and original(record)
            ),
        ),
        "JobSet #684, #686: the next attempt starts while the last one still terminates",
        faults=("pod-slow-to-die",),
        worlds=(_OVERLAP,),
    ),
    hunted(
        "Pods that a resize left over hold no barrier up",
        Area.PROTOCOL,
        (instead_of(Ledger._is_complete, _ignores_ghosts),),
        faults=("resize", "term-ignored"),
        worlds=(Config(2, 1, kinds("worker"), ghosts=1),),
    ),
    hunted(
        "a Pod that is gone stays counted when it was terminating",
        Area.PROTOCOL,
        (instead_of(Ledger.forget, _keeps_the_terminating),),
        "JobSet #576: a Pod stuck in Terminating blocks the recovery for ever",
        faults=("pod-force-deleted",),
    ),
    hunted(
        "the exit of the last epoch's container counts against this one",
        Area.PROTOCOL,
        (
            instead_of(
                Ledger._has_broken,
                lambda original, self, record: original(self, changed(record, instance_synced=self.synced)),
            ),
            instead_of(Ledger._has_broken, lambda original, self, record: original(self, changed(record, ran=True))),
        ),
        faults=("worker-exit", "partition-kubelet"),
        worlds=(
            Config(2, 1, kinds("worker"), early=True),
            Config(2, 2, kinds("worker controller"), stale=1, early=True),
        ),
    ),
    hunted(
        "a worker that died stays on the list after the next sync",
        Area.PROTOCOL,
        (instead_of(Ledger.learn, _remembers_the_dead),),
        worlds=(Config(2, 1, kinds("worker"), stale=1, early=True),),
    ),
    hunted(
        "an epoch far ahead of the group is believed",
        Area.PROTOCOL,
        (instead_of(Ledger._read_announcement, _believes),),
        faults=("annotation-tampered",),
        worlds=(Config(2, 2, kinds("worker write")),),
    ),
    hunted(
        "a supervisor announces while its worker still runs",
        Area.PROTOCOL,
        (instead_of(pod_machine._follow, _announces_beside),),
        worlds=(_SUPERVISED,),
    ),
    hunted(
        "a Pod that completed is waited for at the next barrier",
        Area.PROTOCOL,
        (
            instead_of(Ledger._to_recreate, lambda original, self: frozenset()),
            instead_of(epochs._cannot_restart, lambda original, draft, job: False),
        ),
        faults=("worker-completes",),
        worlds=(Config(2, 2, kinds("worker success")),),
    ),
    hunted(
        "an announcement that was refused is not sent again",
        Area.AGENT,
        (instead_of(step_agent, _gives_up_refused),),
        worlds=(Config(2, 1, kinds("patch")),),
    ),
)

LIMITS = (
    hunted(
        "maxRestarts allows one restart fewer than it says",
        Area.BUDGET,
        (restarts_beyond(-1),),
        faults=("worker-exit",),
        worlds=(Config(2, 1, kinds("worker"), restarts_max=1),),
    ),
    hunted(
        "maxRestarts allows one restart more than it says",
        Area.BUDGET,
        (restarts_beyond(1),),
        worlds=(Config(2, 2, kinds("worker"), restarts_max=1),),
    ),
)
