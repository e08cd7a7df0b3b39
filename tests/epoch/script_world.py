"""
The world a protocol script acts in: production agents and ledgers around a toy API server.

Announcements are stored and accepted at once, events reach the controller at `reconcile` and agents at
`deliver`, and kubelet acts only when told. Everything that makes this harder (PATCHes that hang, stale
caches, lagging kubelets, two controllers) is a command. Annotations and status go through `common.wire`, so
that scripts check the names, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from common.epoch import agent as machine
from common.epoch.agent import Accepted, AgentState, Event, NotAccepted, Phase, View
from common.epoch.errors import RemoteProtocolError
from common.epoch.ledger import Decision, Ledger, Life, PodView, Worker
from common.epoch.slot import Shape, Slot
from common.wire import ATTEMPT, EPOCH, epoch_annotations, epoch_of_pod, epochs_of_status, status_of_epochs

JOB: Final = "workers"


@dataclass(slots=True)
class ScriptPod:
    """A Pod: its object, its containers and its PATCH in flight."""

    name: str
    uid: str
    slot: int
    annotations: dict[str, str] = field(default_factory=dict)
    life: Life = Life.LIVE
    agent: AgentState | None = None
    on_the_wire: int = 0
    stale: View | None = None  # what this Pod's watch cache answers with
    worker: Worker = field(default_factory=Worker)
    reported: Worker = field(default_factory=Worker)
    lagging: bool = False  # kubelet does not report
    ran: list[int] = field(default_factory=list)  # epochs of its workers; 0 under bypass


@dataclass(slots=True)
class Controller:
    """A leader, or one that believes it is."""

    ledger: Ledger
    seen: set[str] = field(default_factory=set)


class ScriptWorld:
    """Runs commands; a method `do_<command>` each."""

    def __init__(self) -> None:
        self.pods: dict[str, ScriptPod] = {}
        self.status: dict[str, Any] = {}
        self.held: set[str] = set()
        self.ran: dict[str, list[int]] = {}  # for each slot, the epochs its workers ran
        self.in_place = True
        self.spent = {"watches": 0, "patches": 0, "status writes": 0}
        self.serial = 0
        self.do_jobset()

    def run(self, line: str) -> list[str]:
        """Run one command line and return what it printed."""
        name, *words = line.split(" ")
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command: Callable[..., list[str]] = getattr(self, "do_" + name.replace("-", "_"))
        return command(*(word for word in words if "=" not in word), **options)

    # The JobSet.

    def do_jobset(
        self, slots: str = "3", max_restarts: str = "5", uncounted: str = "0", per_job: str = "1"
    ) -> list[str]:
        """`jobset slots=3 max_restarts=5 uncounted=0 per_job=1`: the spec; also changes it."""
        self.parallelism = int(per_job)
        self.shape = Shape({JOB: (int(slots) // self.parallelism, self.parallelism)})
        self.restarts_max, self.uncounted = int(max_restarts), int(uncounted)
        if not hasattr(self, "controllers"):
            self.controllers = {"controller": Controller(Ledger(self.shape))}
        return []

    def do_scale(self, slots: str) -> list[str]:
        """`scale 4`: the spec expects other slots."""
        self.shape = Shape({JOB: (int(slots) // self.parallelism, self.parallelism)})
        return []

    def do_bypass(self, switch: str) -> list[str]:
        """`bypass on`: the JobSet carries the disable annotation, or its strategy changed."""
        self.in_place = switch == "off"
        return []

    def do_status(self, **fields: str) -> list[str]:
        """`status`: print it. `status syncedEpoch=3`: somebody else writes it."""
        if fields:
            self.status = {name: int(value) for name, value in fields.items()}
            return []
        return [f"status: {' '.join(f'{name}={value}' for name, value in self.status.items())}"]

    # Pods and their containers.

    def do_start(self, *names: str) -> list[str]:
        """`start 0 1 2`: new Pods, one per slot; a letter after the slot (1b) tells a second one apart."""
        lines = []
        for name in names:
            self.serial += 1
            self.pods[name] = ScriptPod(name, f"uid-{self.serial}", int(name.rstrip("bcd")))
            lines += self._boot(self.pods[name], previous=None)
        return lines

    def do_replace(self, *names: str) -> list[str]:
        """`replace 1`: the Pod is gone and its Job made another."""
        return self.do_start(*names)

    def do_duplicate(self, name: str) -> list[str]:
        """`duplicate 1`: a second live Pod, 1b, in slot 1."""
        return self.do_start(f"{name}b")

    def do_restart(self, *names: str) -> list[str]:
        """`restart 1`: kubelet removes all containers of the Pod, then starts them."""
        lines = []
        for pod in self._pods(names):
            previous = self._previous(pod)
            pod.worker = Worker(pod.worker.instance)
            pod.on_the_wire = 0
            self._report(pod)
            lines += self._boot(pod, previous)
        return lines

    def do_crash_agent(self, *names: str) -> list[str]:
        """`crash-agent 1`: the process is gone; kubelet has not acted yet."""
        for pod in self._pods(names):
            pod.agent = None
        return []

    def do_terminate(self, *names: str) -> list[str]:
        """`terminate 1`: the Pod has a deletion timestamp; its containers still run."""
        return self._live(names, Life.LEAVING)

    def do_fail(self, *names: str) -> list[str]:
        """`fail 1`: phase Failed; nothing of it runs."""
        return self._live(names, Life.FAILED)

    def do_succeed(self, *names: str) -> list[str]:
        """`succeed 1`: the worker exits 0, phase Succeeded."""
        return self._live(names, Life.SUCCEEDED)

    def do_gone(self, *names: str) -> list[str]:
        """`gone 1`: the Pod object is deleted."""
        for pod in self._pods(names):
            del self.pods[pod.name]
        return []

    def do_worker_exit(self, name: str, code: str) -> list[str]:
        """`worker-exit 1 137`: the worker container terminates; its agent has not noticed."""
        pod = self.pods[name]
        pod.worker = Worker(pod.worker.instance, running=False, failed=code != "0")
        self._report(pod)
        return []

    def do_worker_lag(self, *names: str) -> list[str]:
        """`worker-lag 1`: kubelet's status of this Pod stops moving."""
        for pod in self._pods(names):
            pod.lagging = True
        return []

    def do_worker_report(self, *names: str) -> list[str]:
        """`worker-report 1`: kubelet's status is true again."""
        for pod in self._pods(names):
            pod.lagging = False
            self._report(pod)
        return []

    # Annotations and PATCHes.

    def do_annotate(self, name: str, text: str = "") -> list[str]:
        """`annotate 1 abc`: somebody writes the epoch annotation."""
        self.pods[name].annotations[EPOCH] = text
        return []

    def do_attempt(self, name: str, text: str) -> list[str]:
        """`attempt 1 0`: an upstream agent announces; only upstream's annotation is written."""
        self.pods[name].annotations = {ATTEMPT: text}
        return []

    def do_hold(self, *names: str) -> list[str]:
        """`hold 1`: from now on PATCHes of this Pod wait on the wire for `land`, `lose-reply` or `refuse`."""
        self.held.update(names)
        return []

    def do_land(self, *names: str) -> list[str]:
        """`land 1`: the PATCH is stored and answered."""
        return [line for pod in self._pods(names) for line in self._answer(pod, stored=True, answered=True)]

    def do_lose_reply(self, *names: str) -> list[str]:
        """`lose-reply 1`: the PATCH is stored, its answer is lost."""
        return [line for pod in self._pods(names) for line in self._answer(pod, stored=True, answered=False)]

    def do_refuse(self, *names: str) -> list[str]:
        """`refuse 1`: the PATCH is not stored."""
        return [line for pod in self._pods(names) for line in self._answer(pod, stored=False, answered=False)]

    # Views.

    def do_stale(self, name: str, S: str, D: str = "0") -> list[str]:  # noqa: N803  the protocol's letters
        """`stale 1 S=0 D=0`: this Pod's watch cache answers with an old status until `fresh`."""
        self.pods[name].stale = View(int(S), int(D), self.in_place)
        return []

    def do_fresh(self, *names: str) -> list[str]:
        """`fresh 1`: this Pod's watch cache has caught up."""
        for pod in self._pods(names):
            pod.stale = None
        return []

    def do_deliver(self, *names: str) -> list[str]:
        """`deliver 1 0`: these Pods' watches show the status; without names all Pods', in order."""
        return [line for pod in self._pods(names) if pod.agent for line in self._step(pod, self._view(pod))]

    def do_consistent(self, *names: str) -> list[str]:
        """`consistent 1`: the consistent view that the Pod asked for arrives."""
        lines = []
        for pod in self._pods(names):
            lines += self._step(pod, self._view(None, consistent=True))
        return lines

    # Controllers.

    def do_reconcile(self, *names: str, by: str = "controller") -> list[str]:
        """`reconcile`: take in every event, decide, write. `reconcile 0 1`: the events of these Pods alone.

        `reconcile 1 by=old`: the old leader, whose JobSet is as old as its caches; it sees the Pods named.
        """
        controller = self.controllers[by]
        ledger = controller.ledger
        if by == "controller":
            names = names or tuple(self.pods)
            ledger.learn(*epochs_of_status(self.status))
        lines = self._observe(controller, names)
        decision = self._decide(controller)
        is_stale = (ledger.synced, ledger.deprecated) != epochs_of_status(self.status)
        if is_stale and (decision.synced, decision.deprecated) != (ledger.synced, ledger.deprecated):
            said = f"{by}: conflict on synced={decision.synced} deprecated={decision.deprecated}, decides again"
            ledger.learn(*epochs_of_status(self.status))
            lines, decision = [*lines, said], self._decide(controller)
        return lines + self._write(controller, decision, by)

    def do_crash_controller(self) -> list[str]:
        """`crash-controller`: the next one starts from a consistent list."""
        self.controllers["controller"] = Controller(Ledger(self.shape, *epochs_of_status(self.status)))
        return []

    def do_handover(self) -> list[str]:
        """`handover`: a new leader; the old one does not know, and its caches never change again."""
        self.controllers["old"] = self.controllers["controller"]
        return self.do_crash_controller()

    def do_ledger(self) -> list[str]:
        """`ledger`: print what the controller counts."""
        ledger = self.controllers["controller"].ledger
        counts = " ".join(f"{epoch}:{count}" for epoch, count in sorted(ledger.histogram().items()))
        problems = " ".join(f"{name}={count}" for name, count in ledger.problems().items())
        return [f"ledger: epochs {counts or '-'}" + (f", {problems}" if problems else "")]

    def do_workers(self) -> list[str]:
        """`workers`: print which Pods' workers run."""
        running = [pod.name for pod in self._pods(()) if pod.worker.running]
        return [f"workers: {' '.join(running) or '-'}"]

    def do_budget(self) -> list[str]:
        """`budget`: print what was spent, and start counting anew."""
        line = f"budget: {', '.join(f'{count} {what}' for what, count in self.spent.items())}"
        self.spent = dict.fromkeys(self.spent, 0)
        return [line]

    # What commands are made of.

    def _pods(self, names: tuple[str, ...]) -> list[ScriptPod]:
        return [self.pods[name] for name in names or sorted(self.pods)]

    def _live(self, names: tuple[str, ...], life: Life) -> list[str]:
        for pod in self._pods(names):
            pod.life = life
            if life is not Life.LEAVING:
                pod.agent, pod.worker = None, Worker(pod.worker.instance)
                self._report(pod)
        return []

    def _previous(self, pod: ScriptPod) -> int | None:
        try:
            return epoch_of_pod(pod.annotations)
        except RemoteProtocolError:
            return None

    def _view(self, pod: ScriptPod | None, *, consistent: bool = False) -> View:
        if pod is not None and pod.stale is not None:
            return pod.stale
        return View(*epochs_of_status(self.status), self.in_place, consistent)

    def _boot(self, pod: ScriptPod, previous: int | None) -> list[str]:
        """Start the agent; like the shell, it reads consistently at once when `previous` is unknown."""
        pod.agent = AgentState(previous)
        self.spent["watches"] += 1
        return self._step(pod, self._view(pod, consistent=previous is None))

    def _step(self, pod: ScriptPod, event: Event) -> list[str]:
        """Step the machine; perform its actions in order."""
        assert pod.agent is not None, f"pod {pod.name} has no agent"
        pod.agent, actions = machine.step(pod.agent, event)
        lines = [f"pod {pod.name}: {_shown(action)}" for action in actions] or [f"pod {pod.name}: {_idle(pod.agent)}"]
        for action in actions:
            lines += self._perform(pod, action)
        return lines

    def _perform(self, pod: ScriptPod, action: machine.Action) -> list[str]:
        match action:
            case machine.TakeConsistentView():
                self.spent["watches"] += 1
            case machine.Announce(epoch):
                self.spent["patches"] += 1
                pod.on_the_wire = epoch
                if pod.name not in self.held:
                    return self._answer(pod, stored=True, answered=True)
            case machine.LiftBarrier():
                pod.ran.append(action.epoch or 0)
                self.ran.setdefault(str(pod.slot), []).append(action.epoch or 0)
                pod.worker = Worker(f"{pod.uid}/{len(pod.ran)}", running=True)
                self._report(pod)
            case machine.RestartInPlace() | machine.GiveUp():
                pod.agent = None
        return []

    def _answer(self, pod: ScriptPod, *, stored: bool, answered: bool) -> list[str]:
        """Settle the PATCH on the wire. Nothing is printed while the machine only waits for the next view."""
        epoch, pod.on_the_wire = pod.on_the_wire, 0
        if stored:
            pod.annotations = epoch_annotations(epoch)
        if pod.agent is None:
            return []
        lines = self._step(pod, Accepted(epoch) if answered else NotAccepted(epoch))
        return [line for line in lines if not line.endswith((": waits", ": runs"))]

    def _report(self, pod: ScriptPod) -> None:
        if not pod.lagging:
            pod.reported = pod.worker

    def _decide(self, controller: Controller) -> Decision:
        return controller.ledger.decide(restarts_max=self.restarts_max, uncounted=self.uncounted)

    def _observe(self, controller: Controller, names: tuple[str, ...]) -> list[str]:
        """Feed Pod events to a ledger, as the controller's Pod informer does."""
        lines = []
        controller.ledger.reshape(self.shape)
        present = {pod.uid for pod in self.pods.values()}
        for uid in sorted(controller.seen - present) if names else ():
            controller.ledger.forget(uid)
            controller.seen.discard(uid)
        for name in sorted(names):
            pod = self.pods[name]
            try:
                epoch = epoch_of_pod(pod.annotations)
            except RemoteProtocolError as error:
                lines.append(f"controller: pod {name}: {error}")
                epoch = None
            slot = Slot(JOB, *divmod(pod.slot, self.parallelism))
            controller.ledger.observe(PodView(pod.uid, slot, epoch, pod.life, pod.reported))
            controller.seen.add(pod.uid)
        return lines

    def _write(self, controller: Controller, decision: Decision, by: str) -> list[str]:
        """Perform a decision."""
        if decision.exceeded and decision.restarts <= self.restarts_max:
            return [f"{by}: JobSet failed, no epoch is left in int32"]
        if decision.exceeded:
            return [f"{by}: JobSet failed, {decision.restarts} restarts > maxRestarts {self.restarts_max}"]
        synced, deprecated = controller.ledger.synced, controller.ledger.deprecated
        said = []
        if decision.synced != synced:
            said.append(f"synced={decision.synced}")
        if decision.deprecated != deprecated:
            said.append(f"deprecated={decision.deprecated}")
        if said:
            self.spent["status writes"] += 1
            self.status = status_of_epochs(decision.synced, decision.deprecated)
            controller.ledger.learn(decision.synced, decision.deprecated)
        said += [f"recreate Job {job}" for _, job in sorted(decision.recreate)]
        return [f"{by}: {', '.join(said) or '-'}"]


def _shown(action: machine.Action) -> str:
    """Return an action as scripts print it."""
    match action:
        case machine.Announce(epoch):
            return f"Announce {epoch}"
        case machine.LiftBarrier(None):
            return "LiftBarrier (in-place restart is off)"
        case machine.RestartInPlace(epoch, verdict):
            return f"RestartInPlace ({epoch} is {verdict.value})"
        case machine.GiveUp(synced):
            return f"GiveUp (no epoch after {synced})"
        case _:
            return type(action).__name__


def _idle(state: AgentState) -> str:
    """Say what a Pod without a new action is doing."""
    return "runs" if state.phase in (Phase.LIFTED, Phase.BYPASSED) else "waits"
