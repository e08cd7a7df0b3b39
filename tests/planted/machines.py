"""Planted bugs of the machines and the ledger, each with the smallest world known to show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import agent, guard, linked_worker, pod, pod_record
from inplace.common.protocol.agent import AgentPhase, Announce, TakeConsistentView, Verdict, is_fresh, judge, newest
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.failure_report import ReportDue, ReportState
from inplace.common.protocol.guard import GuardState, TellEnd, WorkerEnded
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.linked_worker import ABSENT, LinkedWorkerState
from inplace.common.protocol.members import Members
from inplace.common.protocol.pod import PodState, StartWorker, StopWorker, WorkerExited, WorkerGone, WorkerLife
from inplace.common.wire import names as wire
from tests.model.configurations import kinds
from tests.model.guarded_pods import explore_containers_pod, explore_entrypoint_pod, explore_process_pod
from tests.model.pods import Config
from tests.planted.bug import checked, dropped
from tests.planted.mistake import Mistake, instead_of

Stepping = Callable[..., Any]
_WORKER: Final = Config(2, 1, kinds("worker"))
_PODS: Final = Config(2, 1, kinds("worker replace"))
_OVERLAP: Final = Config(2, 1, kinds("replace"), overlap=True)
_SUPERVISED: Final = Config(2, 1, kinds("worker"), supervisor=True)


def _announces_synced(original: Stepping, state: agent.AgentState) -> Any:
    after, actions = original(state)
    if not any(isinstance(action, Announce) for action in actions):
        return after, actions
    epoch = max(1, after.epoch - 1)
    return replace(after, epoch=epoch), (Announce(epoch),)


def _lifts_unanswered(original: Stepping, state: agent.AgentState) -> Any:
    is_early = state.phase is AgentPhase.ANNOUNCING and state.view is not None
    if is_early and state.view is not None and judge(state.epoch, state.view) is Verdict.SYNCED:
        return original(replace(state, phase=AgentPhase.WAITING))
    return original(state)


def _without(function: Callable[..., Any], kind: type) -> Mistake:
    """Let a step keep actions of one kind to itself."""

    def bug(original: Stepping, *args: Any) -> Any:
        after, actions = original(*args)
        return after, tuple(action for action in actions if not isinstance(action, kind))

    return instead_of(function, bug)


def _sets_nothing_aside(
    original: Callable[..., None], self: Ledger, synced: int, deprecated: int, members: Members | None = None
) -> None:
    ahead, self._ahead = self._ahead, set()
    original(self, synced, deprecated, members)
    self._ahead = ahead


def _completes_early(original: Callable[..., bool], self: Ledger, top: int) -> bool:
    return top > self.synced and self._ghosts == 0 and self._slots_at[top] >= self.shape.size - 1


def _deprecates_the_top(original: Callable[..., Decision], self: Ledger, **limits: int) -> Decision:
    decision = original(self, **limits)
    is_begun = self.announced > decision.synced and not decision.exceeded
    return changed(decision, deprecated=self.announced) if is_begun else decision


def _starts_unlinked(original: Stepping, state: GuardState) -> Any:
    after, actions = original(state)
    if actions:
        return after, actions
    return replace(state, phase=guard.RUNNING), (guard.StartWorker(state.epoch),)


def _tells_final_codes(original: Stepping, state: GuardState, ended: WorkerEnded) -> Any:
    after, actions = original(replace(state, final_codes=frozenset()), ended)
    return replace(after, final_codes=state.final_codes), actions


def _tells_every_death(original: Stepping, state: GuardState, ended: WorkerEnded) -> Any:
    after, actions = original(state, ended)
    failed = ended.code not in (0, *state.final_codes)
    return after, tuple(replace(each, failed=failed) if isinstance(each, TellEnd) else each for each in actions)


def _starts_the_next(original: Stepping, state: GuardState, ended: WorkerEnded) -> Any:
    after, actions = original(state, ended)
    if after.phase != guard.WAITING:
        return after, actions
    return replace(after, phase=guard.RUNNING), (*actions[:-1], guard.StartWorker(state.epoch))


def _tells_again(original: Stepping, state: PodState) -> Any:
    return original(replace(state, report=ReportState()))


def _leaves_untold(original: Stepping, state: PodState, event: Any) -> Any:
    after, actions = original(state, event)
    return pod._told(after) if isinstance(event, ReportDue) else (after, actions)


def _is_gone_at_once(original: Stepping, state: LinkedWorkerState) -> Any:
    after, actions = original(replace(state, peers=()))
    return replace(after, peers=state.peers), actions


def _never_cleans(original: Stepping, state: PodState, code: int) -> Any:
    after, actions = original(replace(state, clean_after=0), code)
    return replace(after, clean_after=state.clean_after), actions


def _is_gone_when_it_exits(original: Stepping, state: PodState, event: Any) -> Any:
    if isinstance(event, WorkerGone):
        return state, ()
    after, actions = original(state, event)
    return original(after, WorkerGone()) if isinstance(event, WorkerExited) else (after, actions)


def _starts_again(original: Stepping, state: PodState) -> Any:
    if pod._is_leaving(state) or state.code is not None:
        return original(state)
    return replace(state, life=WorkerLife.RUNNING), (StartWorker(state.agent.epoch),)


def _keeps_no_view(original: Stepping, state: PodState) -> Any:
    old = state.agent
    new = agent.AgentState(previous=old.epoch, reached=old.reached, leased=old.leased)
    return replace(state, agent=new, life=WorkerLife.ABSENT, report=ReportState()), ()


_ANNOUNCES_SYNCED: Final = instead_of(agent._choose, _announces_synced)
_LIFTS_UNANSWERED: Final = instead_of(agent._settle, _lifts_unanswered)
_LOST_STATUS_IS_BELIEVED: Final = instead_of(
    is_fresh, lambda original, view, previous, reached=0: original(view, previous, 0)
)

MACHINE_BUGS: Final = (
    checked(
        "agent: an unknown previous counts as fresh",
        Config(2, 1, kinds("replace")),
        instead_of(
            is_fresh,
            lambda original, view, previous, reached=0: (
                view.synced >= (previous or 0) or original(view, previous, reached)
            ),
        ),
    ),
    checked("agent: announces S, not S + 1", _WORKER, _ANNOUNCES_SYNCED),
    checked("agent: lifts without Accepted", _WORKER, _LIFTS_UNANSWERED),
    checked(
        "agent: an older view takes back a newer one",
        _WORKER,
        instead_of(newest, lambda original, old, new: replace(original(old, new), synced=new.synced)),
    ),
    checked("agent: never asks for a consistent view", _PODS, _without(agent._choose, TakeConsistentView)),
    checked("ledger: D = max(e)", _WORKER, instead_of(Ledger.decide, _deprecates_the_top)),
    checked(
        "ledger: never deprecates",
        _WORKER,
        instead_of(
            Ledger.decide,
            lambda original, self, **limits: changed(original(self, **limits), deprecated=self.deprecated),
        ),
    ),
    checked("ledger: syncs one slot early", _WORKER, instead_of(Ledger._is_complete, _completes_early)),
    checked(
        "ledger: terminating Pods count as live",
        Config(2, 1, kinds("replace")),
        instead_of(pod_record.only_live, lambda original, slot: next(iter(slot.values())) if len(slot) == 1 else None),
    ),
    checked(
        "ledger: an epoch set aside is not read again",
        Config(2, 2, kinds("worker write")),
        instead_of(Ledger.learn, _sets_nothing_aside),
    ),
    checked(
        "ledger: completed Jobs are recreated while the group runs",
        Config(2, 1, kinds("success")),
        instead_of(
            Ledger._to_recreate, lambda original, self: frozenset(self._succeeded) if self.synced > 0 else frozenset()
        ),
    ),
    checked(
        "ledger: a death that was told counts in any epoch",
        Config(2, 1, kinds("worker"), tells=True),
        instead_of(
            Ledger._has_broken,
            lambda original, self, record: original(
                self, changed(record, pod=changed(record.pod, failed_epoch=record.pod.failed_epoch and self.synced))
            ),
        ),
    ),
    checked(
        "guard: starts its worker before the lift", explore_containers_pod, instead_of(guard._stop, _starts_unlinked)
    ),
    checked(
        "guard: does not end its worker when the agent leaves",
        explore_containers_pod,
        instead_of(
            guard._stop, lambda original, state: original(state) if state.phase == guard.WAITING else (state, ())
        ),
    ),
    checked("guard: tells of a final code", explore_containers_pod, instead_of(guard._ended, _tells_final_codes)),
    checked("guard: tells of a Pod that ends", explore_containers_pod, instead_of(guard._ended, _tells_every_death)),
    checked(
        "guard: restarts the group for a final code", explore_process_pod, instead_of(guard._ended, _tells_final_codes)
    ),
    checked("guard: keeps a death to itself", explore_process_pod, _without(guard._ended, TellEnd)),
    checked("pod: tells of each death", explore_containers_pod, instead_of(pod._lost, _tells_again)),
    checked("pod: leaves before its PATCH is out", explore_containers_pod, instead_of(pod._tell, _leaves_untold)),
    checked(
        "guard: says that nothing is left beside what its worker left",
        explore_process_pod,
        instead_of(guard._ended, lambda original, state, ended: original(state, replace(ended, is_tree_gone=True))),
    ),
    checked(
        "guard: starts the next worker without a lift", explore_process_pod, instead_of(guard._ended, _starts_the_next)
    ),
    checked(
        "guard: does not end its worker when the agent says so",
        explore_process_pod,
        instead_of(guard._told_to_end, lambda original, state, number: (state, ())),
    ),
    checked(
        "linked worker: the next epoch is announced before the guard says that nothing is left",
        explore_process_pod,
        instead_of(linked_worker._settled, _is_gone_at_once),
    ),
    checked(
        "linked worker: a container that is gone counts as one that waits",
        explore_process_pod,
        instead_of(
            linked_worker._left,
            lambda original, state, number: original(linked_worker._at(state, number, ABSENT), number),
        ),
    ),
    checked(
        "linked worker: a container in which no guard came counts as one without a worker",
        explore_entrypoint_pod,
        instead_of(linked_worker._settled, lambda original, state: original(replace(state, awaited=0))),
    ),
    checked(
        "pod: leaves for clean containers before its PATCH is out",
        explore_process_pod,
        instead_of(pod._tell, _leaves_untold),
    ),
    checked("pod: never asks for clean containers", explore_process_pod, instead_of(pod._exited, _never_cleans)),
    checked(
        "supervisor: announces when its worker exits, not when the tree is gone",
        _SUPERVISED,
        instead_of(pod.step, _is_gone_when_it_exits),
    ),
    checked(
        "supervisor: starts the worker again in the epoch that is over",
        _SUPERVISED,
        instead_of(pod._gone, _starts_again),
    ),
    checked("supervisor: does not stop its worker", _SUPERVISED, _without(pod._follow, StopWorker)),
    checked(
        "supervisor: keeps no view for the next machine", _SUPERVISED, instead_of(pod._begin_again, _keeps_no_view)
    ),
    checked("supervisor: the agent lifts without Accepted", _SUPERVISED, _LIFTS_UNANSWERED),
    checked("supervisor: the agent announces S, not S + 1", _SUPERVISED, _ANNOUNCES_SYNCED),
    checked(
        "ledger: a status that was lost is never found again",
        Config(1, 3, kinds("lost worker controller")),
        instead_of(Ledger._find_lost, lambda original, self: None),
    ),
    checked(
        "agent: a lost status is believed when it was read consistently",
        Config(2, 2, kinds("lost worker")),
        _LOST_STATUS_IS_BELIEVED,
    ),
    checked(
        "supervisor: a lost status is believed when it was read consistently",
        Config(2, 2, kinds("lost agent"), supervisor=True),
        _LOST_STATUS_IS_BELIEVED,
    ),
    checked(
        "wire: D beyond S is read as it stands",
        Config(2, 1, kinds("torn")),
        instead_of(wire.epochs_of_status, lambda original, status: wire.epochs_as_written(status)),
    ),
    dropped(
        "a PATCH of a supervisor lands after its next one",
        "late patch",
        Config(2, 2, kinds("worker patch"), supervisor=True),
    ),
    dropped("status writes do not conflict", "conflict", Config(2, 2, kinds("worker handover"))),
    dropped("kubelet passes an old annotation", "previous", Config(2, 2, kinds("worker"))),
    dropped("a PATCH outlives its containers", "late patch", Config(2, 2, kinds("worker agent patch"))),
    dropped("Jobs are deleted by name alone", "uid", Config(2, 2, kinds("worker success"))),
    dropped(
        "Pod events of one slot out of order", "order", Config(2, 2, kinds("replace"), stale=1, overlap=True), slow=True
    ),
)
