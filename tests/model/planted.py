"""
Planted bugs, which the model checker must find.

Each is one mutation of production code, or one assumption about the environment dropped, with the smallest
configuration known to show it. A bug that goes uncaught means that the checker, or the rule, is blind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tests.model.code import Code, planted
from tests.model.configurations import kinds
from tests.model.explore import Result, explore
from tests.model.linked_workers import explore_linked_workers
from tests.model.links import explore_links
from tests.model.pods import Config


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Args:
        name: what is wrong.
        module: one of `Code`, such as agent or ledger; "" if the environment is at fault.
        old: text that occurs once in the module.
        new: what stands there instead.
        where: it shows, in the world of a group or in one of one Pod.
        slow: takes too long for --quick.
    """

    name: str
    where: Config | Callable[[Code], Result]
    module: str = ""
    old: str = ""
    new: str = ""
    slow: bool = False

    def code(self) -> Code:
        """Return the code with the bug in it."""
        return planted(self.module, self.old, self.new) if self.module else Code()

    def hunt(self) -> Result:
        """Explore the code with the bug in it, where it shows."""
        return explore(self.where, self.code()) if isinstance(self.where, Config) else self.where(self.code())


_JUDGE: Final = """    if epoch <= view.deprecated:
        return Verdict.DEPRECATED
    if epoch == view.synced:
        return Verdict.SYNCED
"""
_JUDGE_SWAPPED: Final = """    if epoch == view.synced:
        return Verdict.SYNCED
    if epoch <= view.deprecated:
        return Verdict.DEPRECATED
"""
_FRESH: Final = "    return view.consistent and view.synced >= reached"
_ONLY: Final = """    if len(slot) != 1:
        return None
    (only,) = slot.values()
"""
_ANY: Final = """    if not slot:
        return None
    only = max(slot.values(), key=lambda record: record.epoch or 0)
"""
_EXITED: Final = """            return _exited(replace(state, failures=0) if progressed else state, code)
        case WorkerGone():
            return _gone(state)
"""
_UNLINKED: Final = """    return state, ()


def _told_to_end"""
_STARTS: Final = """    return replace(state, phase=RUNNING), (StartWorker(state.epoch),)


def _told_to_end"""
_STOPS: Final = "return replace(state, phase=STOPPING), (StopWorker(),)"
_RESTARTS: Final = "is_over = restarts > restarts_max and"
_WORKER: Final = Config(2, 1, kinds("worker"))
_PODS: Final = Config(2, 1, kinds("worker replace"))
_OVERLAP: Final = Config(2, 1, kinds("replace"), overlap=True)
_SUPERVISED: Final = Config(2, 1, kinds("worker"), supervisor=True)


def dropped(name: str, assumption: str, config: Config, *, slow: bool = False) -> Bug:
    """Drop an assumption about the environment."""
    return Bug(f"environment: {name}", replace(config, dropped=frozenset({assumption})), slow=slow)


BUGS: Final = (
    Bug("agent: every view counts as fresh", Config(2, 1, kinds("worker")), "agent", _FRESH, "    return True"),
    Bug(
        "agent: an unknown previous counts as fresh",
        Config(2, 1, kinds("replace")),
        "agent",
        "if previous is not None and view.synced >= previous:",
        "if view.synced >= (previous or 0):",
    ),
    Bug(
        "agent: announces S, not S + 1",
        _WORKER,
        "agent",
        "epoch = view.synced + 1",
        "epoch = max(1, view.synced)",
    ),
    Bug("agent: lifts on e >= S", _WORKER, "agent", "if epoch == view.synced:", "if epoch >= view.synced:"),
    Bug("agent: synced beats deprecated", _WORKER, "agent", _JUDGE, _JUDGE_SWAPPED),
    Bug(
        "agent: lifts without Accepted",
        _WORKER,
        "agent",
        "Verdict.SYNCED: AgentPhase.ANNOUNCING",
        "Verdict.SYNCED: AgentPhase.LIFTED",
    ),
    Bug(
        "agent: an older view takes back a newer one",
        _WORKER,
        "agent",
        "synced=max(old.synced, new.synced)",
        "synced=new.synced",
    ),
    Bug(
        "agent: does not send again after a lost reply",
        Config(2, 1, kinds("patch")),
        "agent",
        "return state, (Announce(state.epoch),)",
        "return state, ()",
    ),
    Bug("agent: never asks for a consistent view", _PODS, "agent", "else (TakeConsistentView(),)", "else ()"),
    Bug("ledger: D = max(e)", _WORKER, "ledger", "max(deprecated, top - 1)", "max(deprecated, top)"),
    Bug("ledger: never deprecates", _WORKER, "ledger", "max(deprecated, top - 1)", "deprecated"),
    Bug(
        "ledger: syncs one slot early",
        _WORKER,
        "ledger",
        "self._slots_at[top] == size",
        "self._slots_at[top] >= size - 1",
    ),
    Bug(
        "ledger: terminating Pods count as live",
        Config(2, 1, kinds("replace")),
        "ledger",
        "return only if only.pod.life is PodLife.LIVE else None",
        "return only",
    ),
    Bug(
        "ledger: terminating Pods do not block their slot",
        _OVERLAP,
        "ledger",
        "_OCCUPYING = (PodLife.LIVE, PodLife.LEAVING)",
        "_OCCUPYING = (PodLife.LIVE,)",
    ),
    Bug(
        "ledger: ghosts are ignored",
        Config(2, 1, kinds("worker"), ghosts=1),
        "ledger",
        "size > 0 and self._ghosts == 0 and",
        "size > 0 and",
    ),
    Bug(
        "ledger: two Pods of a slot count",
        _OVERLAP,
        "ledger",
        _ONLY,
        _ANY,
    ),
    Bug(
        "ledger: an epoch beyond S + 1 is believed",
        Config(2, 2, kinds("worker write")),
        "ledger",
        "epoch > self.synced + 1:",
        "epoch > self.synced + 9:",
    ),
    Bug(
        "ledger: an epoch set aside is not read again",
        Config(2, 2, kinds("worker write")),
        "ledger",
        "for uid in tuple(self._ahead):",
        "for uid in ():",
    ),
    Bug(
        "ledger: one restart too many",
        Config(2, 2, kinds("worker"), restarts_max=1),
        "ledger",
        _RESTARTS,
        "is_over = restarts > restarts_max + 1 and",
    ),
    Bug(
        "ledger: one restart too few",
        Config(2, 1, kinds("worker"), restarts_max=1),
        "ledger",
        _RESTARTS,
        "is_over = restarts >= restarts_max and",
    ),
    Bug(
        "ledger: completed Jobs stay",
        Config(2, 2, kinds("worker success")),
        "ledger",
        "return frozenset(self._succeeded) if self._is_restarting() else frozenset()",
        "return frozenset()",
    ),
    Bug(
        "ledger: completed Jobs are recreated while the group runs",
        Config(2, 1, kinds("success")),
        "ledger",
        "frozenset(self._succeeded) if self._is_restarting() else",
        "frozenset(self._succeeded) if self.synced > 0 else",
    ),
    Bug(
        "ledger: a lagging exit code counts as an edge",
        Config(2, 1, kinds("worker"), early=True),
        "ledger",
        " and self.synced == record.instance_synced",
        "",
    ),
    Bug(
        "ledger: a container never seen running counts as an edge",
        Config(2, 2, kinds("worker controller"), stale=1, early=True),
        "ledger",
        "record.pod.worker.failed and record.ran and",
        "record.pod.worker.failed and",
    ),
    Bug(
        "ledger: a dead worker is remembered into the next epoch",
        Config(2, 1, kinds("worker"), stale=1, early=True),
        "ledger",
        "self._broken.clear()",
        "pass",
    ),
    Bug(
        "ledger: a death that was told counts in any epoch",
        Config(2, 1, kinds("worker"), tells=True),
        "ledger",
        "record.pod.failed_epoch == self.synced and",
        "record.pod.failed_epoch is not None and",
    ),
    Bug("guard: starts its worker before the lift", explore_links, "guard", _UNLINKED, _STARTS),
    Bug("guard: does not end its worker when the agent leaves", explore_links, "guard", _STOPS, "return state, ()"),
    Bug("guard: tells of a final code", explore_links, "guard", " and code not in state.final_codes", ""),
    Bug(
        "guard: tells of a Pod that ends",
        explore_links,
        "guard",
        "failed = state.phase == RUNNING and code",
        "failed = code",
    ),
    Bug(
        "guard: keeps a death to itself",
        explore_links,
        "guard",
        "return gone, (told, Leave(code))",
        "return gone, (Leave(code),)",
    ),
    Bug(
        "sidecar: tells of each death in its Pod",
        explore_links,
        "telling",
        "if state.failure is not None:",
        "if state.failure is event:",
    ),
    Bug(
        "sidecar: leaves before its PATCH is out",
        explore_links,
        "sidecar",
        "if isinstance(event, FailureTold) and",
        "if isinstance(event, FailureTold | TellingDue) and",
    ),
    Bug(
        "guard: says that nothing is left beside what its worker left",
        explore_linked_workers,
        "guard",
        "if not ended.is_tree_gone:",
        "if False:",
    ),
    Bug(
        "guard: starts the next worker without a lift",
        explore_linked_workers,
        "guard",
        "return replace(state, phase=WAITING), (*words, TellAbsent())",
        "return replace(state, phase=RUNNING), (*words, StartWorker(state.epoch))",
    ),
    Bug(
        "guard: does not end its worker when the agent says so",
        explore_linked_workers,
        "guard",
        "if state.phase == WAITING or not state.stays:",
        "if True:",
    ),
    Bug(
        "linked worker: the next epoch is announced before the guard says that nothing is left",
        explore_linked_workers,
        "linked_worker",
        "not state.is_ending or any(peer.life != ABSENT for peer in state.peers):",
        "not state.is_ending:",
    ),
    Bug(
        "linked worker: a container that is gone counts as one that waits",
        explore_linked_workers,
        "linked_worker",
        "if life in (LIFTED, RUNS):\n",
        "if False:\n",
    ),
    Bug(
        "supervisor: leaves for clean containers before its PATCH is out",
        explore_linked_workers,
        "supervisor",
        "        if isinstance(event, FailureTold):\n            return _leave(state)",
        "        if isinstance(event, TellingDue | FailureTold):\n            return _leave(state)",
    ),
    Bug(
        "supervisor: never asks for clean containers",
        explore_linked_workers,
        "supervisor",
        "0 < state.clean_after <= state.failures\n",
        "0 < 99 <= state.failures\n",
    ),
    Bug(
        "supervisor: announces when its worker exits, not when the tree is gone",
        _SUPERVISED,
        "supervisor",
        _EXITED,
        _EXITED.replace("_gone(state)", "state, ()").replace(
            "_exited(replace(state, failures=0) if progressed else state, code)",
            "_gone(_exited(replace(state, failures=0) if progressed else state, code)[0])",
        ),
    ),
    Bug(
        "supervisor: announces the next epoch beside a running worker",
        _SUPERVISED,
        "supervisor",
        "return replace(state, life=WorkerLife.STOPPING, code=state.restart_code), (stop,)\n        case",
        "return _begin_again(state)\n        case",
    ),
    Bug(
        "supervisor: starts the worker again in the epoch that is over",
        _SUPERVISED,
        "supervisor",
        "return _begin_again(state)\n\n\ndef _terminate",
        "return replace(state, life=WorkerLife.RUNNING), (StartWorker(state.agent.epoch),)\n\n\ndef _terminate",
    ),
    Bug(
        "supervisor: does not stop its worker",
        _SUPERVISED,
        "supervisor",
        "(stop,)\n        case",
        "()\n        case",
    ),
    Bug(
        "supervisor: keeps no view for the next machine",
        _SUPERVISED,
        "supervisor",
        "return _follow(replace(state, agent=agent, life=WorkerLife.ABSENT), replace(view, consistent=False))",
        "return replace(state, agent=agent, life=WorkerLife.ABSENT), ()",
    ),
    Bug(
        "supervisor: restarts the group for a worker that completed",
        Config(2, 1, kinds("success"), supervisor=True),
        "supervisor",
        "code if code == 0 or is_final or",
        "code if is_final or",
    ),
    Bug(
        "supervisor: the agent lifts without Accepted",
        _SUPERVISED,
        "agent",
        "Verdict.SYNCED: AgentPhase.ANNOUNCING",
        "Verdict.SYNCED: AgentPhase.LIFTED",
    ),
    Bug(
        "supervisor: the agent lifts on e >= S",
        _SUPERVISED,
        "agent",
        "if epoch == view.synced:",
        "if epoch >= view.synced:",
    ),
    Bug(
        "supervisor: the agent announces S, not S + 1",
        _SUPERVISED,
        "agent",
        "epoch = view.synced + 1",
        "epoch = max(1, view.synced)",
    ),
    Bug(
        "ledger: a status that was lost is never found again",
        Config(1, 3, kinds("lost worker controller")),
        "ledger",
        "if (found := self._find_lost()) is not None:",
        "if (found := self._find_lost()) is not None and False:",
    ),
    Bug(
        "agent: a lost status is believed when it was read consistently",
        Config(2, 2, kinds("lost worker")),
        "agent",
        "view.consistent and view.synced >= reached",
        "view.consistent",
    ),
    Bug(
        "supervisor: a lost status is believed when it was read consistently",
        Config(2, 2, kinds("lost agent"), supervisor=True),
        "agent",
        "view.consistent and view.synced >= reached",
        "view.consistent",
    ),
    Bug(
        "wire: D beyond S is read as it stands",
        Config(2, 1, kinds("torn")),
        "wire",
        "return max(synced, deprecated), deprecated",
        "return synced, deprecated",
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
        "Pod events of one slot out of order",
        "order",
        Config(2, 2, kinds("replace"), stale=1, overlap=True),
        slow=True,
    ),
)
