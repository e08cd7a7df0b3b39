"""
The world a protocol script acts in: production agents and ledgers around a toy API server.

Announcements are stored and accepted at once, events reach the controller at `reconcile` and agents at
`deliver`, and kubelet acts only on command. All difficulties (PATCHes that hang, stale caches, lagging
kubelets, two controllers) are commands. Annotations and status go through `common.wire.names`, so that scripts
check the names, too.
"""

from __future__ import annotations

from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import StillWaiting, View
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Sizes
from inplace.common.protocol.pod import PodState
from inplace.common.protocol.pod_view import PodLife, Worker
from inplace.common.protocol.slot import Shape
from inplace.common.wire.names import ATTEMPT, EPOCH, MEMBERS_FIELD, epochs_of_status, status_of_epochs
from tests.common.protocol.script_cluster import CLEAN_CODE, JOB, Controller, ScriptCluster, ScriptPod
from tests.transcript import Vocabulary


class ScriptWorld(ScriptCluster, Vocabulary):
    """Runs commands; a method `do_<command>` each."""

    def run(self, line: str) -> list[str]:
        """Run one command line and return its output."""
        lines: list[str] = self.command(line)()
        return lines

    # The JobSet.

    def do_jobset(
        self, slots: str = "3", max_restarts: str = "5", uncounted: str = "0", per_job: str = "1"
    ) -> list[str]:
        """`jobset slots=3 max_restarts=5 uncounted=0 per_job=1`: the spec; also changes it."""
        self.parallelism = int(per_job)
        self.shape = Shape({JOB: (int(slots) // self.parallelism, self.parallelism)})
        self.restarts_max, self.uncounted = int(max_restarts), int(uncounted)
        self.controllers["controller"].ledger.reshape(self.shape)
        return []

    def do_members(self, sizes: str) -> list[str]:
        """`members 2`, `members 1-2`: so many of the slots run, the others are spares. `members 2-6/2`: in steps."""
        least_most, _, step = sizes.partition("/")
        least, _, most = least_most.partition("-")
        self.sizes = Sizes(int(least), int(most or least), int(step or 1))
        self.controllers["controller"] = Controller(self._new_ledger())
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
            self.status = {name: value if name == MEMBERS_FIELD else int(value) for name, value in fields.items()}
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

    def do_guard(self, *names: str, containers: str = "") -> list[str]:
        """`guard 0 1 2 containers=88`: Pods whose guards are the workers' parents; a code for depth `containers`."""
        lines = []
        for name in names:
            self.serial += 1
            pod = ScriptPod(name, f"uid-{self.serial}", int(name.rstrip("bcd")))
            pod.guarded = PodState(restart_code=int(containers) if containers else None, clean_code=CLEAN_CODE)
            self.pods[name] = pod
            lines += self._boot(pod, previous=None)
        return lines

    def do_exited(self, name: str, code: str = "1") -> list[str]:
        """`exited 1 137`: the main process of a guarded worker is gone; what it left still runs."""
        return self._step(self.pods[name], pod_machine.WorkerExited(int(code)))

    def do_tree_gone(self, name: str) -> list[str]:
        """`tree-gone 1`: no process of a guarded worker is left."""
        pod = self.pods[name]
        pod.worker = Worker(pod.worker.instance)
        return self._step(pod, pod_machine.WorkerGone())

    def do_signal(self, name: str, number: str = "15") -> list[str]:
        """`signal 1 15`: the agent of a guarded worker is told to end."""
        return self._step(self.pods[name], pod_machine.Terminate(int(number)))

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
        return self._live(names, PodLife.LEAVING)

    def do_fail(self, *names: str) -> list[str]:
        """`fail 1`: phase Failed; nothing of it runs."""
        return self._live(names, PodLife.FAILED)

    def do_succeed(self, *names: str) -> list[str]:
        """`succeed 1`: the worker exits 0, phase Succeeded."""
        return self._live(names, PodLife.SUCCEEDED)

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

    def do_saved(self, name: str, *steps: str, shared: str = "", unfit: str = "") -> list[str]:
        """`saved 1 4 5 shared=4`: the worker made steps of which its Pod has its part, and one that all can load.

        `saved 1 unfit=5`: step 5 turned out to be unfit.
        """
        pod = self.pods[name]
        pod.copies |= dict.fromkeys(map(int, steps), pod.ran[-1])
        pod.shared = int(shared) if shared else pod.shared
        pod.unfit = int(unfit) if unfit else None if pod.unfit in pod.copies and steps else pod.unfit
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

    def do_remind(self, *names: str) -> list[str]:
        """`remind 1`: this Pod's barrier has been up for long."""
        return [line for pod in self._pods(names) for line in self._step(pod, StillWaiting())]

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

    def do_reconcile(self, *names: str, by: str = "controller", waited: str = "") -> list[str]:
        """`reconcile`: take in every event, decide, write. `reconcile 0 1`: the events of these Pods alone.

        `reconcile waited=yes`: it has waited for missing slots for long enough.

        `reconcile 1 by=old`: the old leader, whose JobSet is as old as its caches; it sees the Pods named.
        """
        controller = self.controllers[by]
        ledger = controller.ledger
        if by == "controller":
            names = names or tuple(self.pods)
            self._learn(ledger)
        lines = self._observe(controller, names)
        decision = self._decide(controller, waited=waited == "yes")
        is_stale = (ledger.synced, ledger.deprecated) != epochs_of_status(self.status)
        if is_stale and (decision.synced, decision.deprecated) != (ledger.synced, ledger.deprecated):
            said = f"{by}: conflict on synced={decision.synced} deprecated={decision.deprecated}, decides again"
            self._learn(ledger)
            lines, decision = [*lines, said], self._decide(controller)
        return lines + self._write(controller, decision, by)

    def do_crash_controller(self) -> list[str]:
        """`crash-controller`: the next one starts from a consistent list."""
        self.controllers["controller"] = Controller(self._new_ledger())
        return []

    def do_trust(self, *slots: str) -> list[str]:
        """`trust 1`: the time has passed in which the worker of a Pod that vanished was to end."""
        ledger = self.controllers["controller"].ledger
        assert isinstance(ledger, MemberLedger), "expected `members` before `trust`"
        for slot in slots:
            ledger.trust(self.slot_of(int(slot)))
        return []

    def do_grow(self) -> list[str]:
        """`grow`: end the running epoch if the next one would have more members, as the controller does in time."""
        ledger = self.controllers["controller"].ledger
        assert isinstance(ledger, MemberLedger), "expected `members` before `grow`"
        if not (size := ledger.grown):
            return ["controller: does not grow"]
        text = self.status[MEMBERS_FIELD]
        self.status = status_of_epochs(ledger.synced, ledger.synced) | {MEMBERS_FIELD: text}
        self.uncounted += 1
        return [f"controller: deprecated={ledger.synced}, for {size} members"]

    def do_handover(self) -> list[str]:
        """`handover`: a new leader; the old one does not know, and its caches never change again."""
        self.controllers["old"] = self.controllers["controller"]
        return self.do_crash_controller()

    def do_ledger(self) -> list[str]:
        """`ledger`: print what the controller counts."""
        ledger = self.controllers["controller"].ledger
        counts = " ".join(f"{epoch}:{count}" for epoch, count in sorted(ledger.histogram().items()))
        problems = " ".join(f"{name}={len(pods)}" for name, pods in ledger.names_in_the_way().items())
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
