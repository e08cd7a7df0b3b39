"""
The whole group under random faults: agents, controllers, kubelets and one status, with rules after each step.

The model checker (tests/model) is exhaustive and small; this is random and large: more Pods, resizes, bypass,
longer runs. Hypothesis shrinks a failure to a short list of commands that can be pasted into a protocol
script.
"""

from __future__ import annotations

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inplace.common.protocol.agent import AgentPhase
from inplace.common.protocol.pod_view import PodLife
from inplace.common.wire.names import epochs_of_status
from tests.common.protocol.script_cluster import ScriptPod
from tests.common.protocol.script_world import ScriptWorld

SLOTS_MAX = 4
ROUNDS_MAX = 12  # a group restart takes three rounds; earlier faults may cost a second one
slots = st.integers(0, SLOTS_MAX - 1)  # modulo the number of Pods, so that few steps miss
some = st.lists(st.integers(0, SLOTS_MAX - 1).map(str), max_size=SLOTS_MAX - 1, unique=True)


class Group(RuleBasedStateMachine):
    """Drives a ScriptWorld; every rule is one of its commands."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ScriptWorld()
        self.statuses = [(0, 0)]

    def do(self, command: str) -> None:
        """Run a command, and note it for the report of a failure."""
        note(command)
        self.world.run(command)
        status = epochs_of_status(self.world.status)
        if status != self.statuses[-1]:
            self.statuses.append(status)

    @initialize(count=st.integers(1, SLOTS_MAX))
    def begin(self, count: int) -> None:
        """Start a group."""
        self.do(f"jobset slots={count} max_restarts=1000000")
        self.do(f"start {' '.join(map(str, range(count)))}")

    @rule(names=some)
    def reconcile(self, names: list[str]) -> None:
        """Let the controller see some Pods, or all, and decide."""
        self.do(" ".join(["reconcile", *self.present(names)]))

    @rule(names=some)
    def deliver(self, names: list[str]) -> None:
        """Show some agents, or all, the status or their caches' version of it."""
        self.do(" ".join(["deliver", *self.present(names)]))

    @rule(number=slots, age=st.integers(0, 4))
    def cache_stops(self, number: int, age: int) -> None:
        """A Pod's watch cache stops at some earlier status."""
        self.stale(self.pick(number), age)

    @rule(number=slots)
    def cache_catches_up(self, number: int) -> None:
        """A Pod's watch cache catches up, and its agent sees the status."""
        if name := self.pick(number):
            self.do(f"fresh {name}")
            self.do(f"deliver {name}")

    @rule(number=slots)
    def consistent(self, number: int) -> None:
        """A consistent view arrives."""
        name = self.pick(number)
        if (pod := self.world.pods.get(name)) and pod.agent and pod.agent.phase is AgentPhase.CONFIRMING:
            self.do(f"consistent {name}")

    @rule(number=slots, age=st.integers(0, 4))
    def restart(self, number: int, age: int) -> None:
        """A worker or an agent died: kubelet restarts the Pod's containers; the first view may be old."""
        name = self.pick(number)
        if (pod := self.world.pods.get(name)) and pod.life is PodLife.LIVE:
            self.stale(name, age)
            self.do(f"restart {name}")

    @rule(number=slots, code=st.sampled_from([1, 137]))
    def worker_exit(self, number: int, code: int) -> None:
        """A worker dies, and kubelet reports it before it acts."""
        name = self.pick(number)
        if (pod := self.world.pods.get(name)) and pod.worker.running:
            self.do(f"worker-exit {name} {code}")

    @rule(number=slots, lags=st.booleans())
    def kubelet_lags(self, number: int, lags: bool) -> None:
        """The status that kubelet reports stops moving, or catches up."""
        if name := self.pick(number):
            self.do(f"worker-{'lag' if lags else 'report'} {name}")

    @rule(number=slots, how=st.sampled_from(["terminate", "fail", "gone"]))
    def lose_pod(self, number: int, how: str) -> None:
        """A Pod is deleted or fails."""
        name = self.pick(number)
        if (pod := self.world.pods.get(name)) and pod.life is PodLife.LIVE:
            self.do(f"{how} {name}")

    @rule(number=slots)
    def replace(self, number: int) -> None:
        """A Job makes the Pod that is missing, once the old one is gone for good."""
        name = str(number)
        pod = self.world.pods.get(name)
        if number < self.world.shape.size and (pod is None or pod.life is PodLife.FAILED):
            self.do(f"start {name}")

    @rule(number=slots)
    def hold(self, number: int) -> None:
        """PATCHes of a Pod hang from now on."""
        if name := self.pick(number):
            self.do(f"hold {name}")

    @rule(number=slots, how=st.sampled_from(["land", "lose-reply", "refuse"]))
    def settle_patch(self, number: int, how: str) -> None:
        """A PATCH that hangs is stored, or not, and answered, or not."""
        name = self.pick(number)
        if (pod := self.world.pods.get(name)) and pod.on_the_wire and pod.agent:
            self.do(f"{how} {name}")

    @rule()
    def crash_controller(self) -> None:
        """A new controller lists everything."""
        self.do("crash-controller")
        self.do("reconcile")

    @rule()
    def handover(self) -> None:
        """A new controller lists everything; the old one does not know."""
        self.do("handover")
        self.do("reconcile")

    @precondition(lambda self: "old" in self.world.controllers)
    @rule(names=some)
    def old_leader(self, names: list[str]) -> None:
        """The old leader decides once more."""
        if self.world.controllers["old"].ledger.shape == self.world.shape:
            self.do(" ".join(["reconcile", *self.present(names), "by=old"]))

    @rule(count=st.integers(1, SLOTS_MAX))
    def scale(self, count: int) -> None:
        """The spec changes; Pods of removed slots are deleted with their Jobs."""
        self.do(f"scale {count}")
        for pod in list(self.world.pods.values()):
            if pod.slot >= count and pod.life is PodLife.LIVE:
                self.do(f"terminate {pod.name}")

    @invariant()
    def no_two_epochs_run_at_once(self) -> None:
        """S1."""
        running = {pod.ran[-1] for pod in self.world.pods.values() if pod.worker.running}
        assert len(running) <= 1, f"workers of epochs {running} run"

    @invariant()
    def no_worker_runs_an_epoch_twice(self) -> None:
        """S2."""
        for name, epochs in self.world.ran.items():
            assert sorted(set(epochs)) == epochs, f"slot {name} ran {epochs}"

    @invariant()
    def the_status_only_grows(self) -> None:
        """S4."""
        for (synced, deprecated), (synced_next, deprecated_next) in zip(self.statuses, self.statuses[1:], strict=False):
            assert synced <= synced_next
            assert deprecated <= deprecated_next <= synced_next

    def teardown(self) -> None:
        """L1: once the faults end, the group comes together."""
        for _ in range(ROUNDS_MAX):
            self.calm_down()
            if self.is_together():
                return
        raise AssertionError(f"not together after {ROUNDS_MAX} rounds: {self.world.pods}")

    def calm_down(self) -> None:
        """Let each part act once: kubelets, Jobs, the API server, caches, the controller."""
        world = self.world
        world.held.clear()
        world.controllers.pop("old", None)
        for pod in list(world.pods.values()):
            self.end_trouble_of(pod)
        for slot in range(world.shape.size):
            if str(slot) not in world.pods:
                self.do(f"start {slot}")
        self.do("reconcile")
        self.do("deliver")

    def end_trouble_of(self, pod: ScriptPod) -> None:
        """End the faults of one Pod, so that events reach it."""
        pod.stale, pod.lagging = None, False
        if pod.life is not PodLife.LIVE:
            self.do(f"gone {pod.name}")
        elif pod.agent is None or pod.worker.failed:
            self.do(f"restart {pod.name}")
        elif pod.on_the_wire:
            self.do(f"land {pod.name}")
        elif pod.agent.phase is AgentPhase.CONFIRMING:
            self.do(f"consistent {pod.name}")

    def is_together(self) -> bool:
        """Return whether every expected slot's worker runs at S."""
        world = self.world
        synced, deprecated = epochs_of_status(world.status)
        at_work = [pod for pod in world.pods.values() if pod.worker.running and pod.ran[-1] == synced]
        return synced > deprecated and len(at_work) == len(world.pods) == world.shape.size

    def stale(self, name: str, age: int) -> None:
        """Let a Pod's watch cache answer with the status of `age` writes ago."""
        if name in self.world.pods:
            synced, deprecated = self.statuses[max(0, len(self.statuses) - 1 - age)]
            self.do(f"stale {name} S={synced} D={deprecated}")

    def pick(self, number: int) -> str:
        """Return the name of one Pod; "" when there is none."""
        names = sorted(self.world.pods)
        return names[number % len(names)] if names else ""

    def present(self, names: list[str]) -> list[str]:
        """Return those Pods of `names` that exist."""
        return [name for name in names if name in self.world.pods]


@pytest.mark.slow
def test_group_keeps_the_rules_whatever_happens() -> None:
    """S1, S2 and S4 hold after every step, and L1 once the faults end."""
    run_state_machine_as_test(Group, settings=settings(stateful_step_count=60))
