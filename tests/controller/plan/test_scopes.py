"""Partial restart in place: each groupName or replicatedJob by itself, and one maxRestarts for all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob
from inplace.simulator.cluster.virtual_time import run
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import make_job, make_membership, make_pod
from tests.controller.plan.planner_world import PlannerWorld

pytestmark = pytest.mark.virtual_time


def divided(by: str | None = "ReplicatedJob", *jobs: KubeObject, **options: Any) -> KubeObject:
    """Return a JobSet of two replicatedJobs, a and b, that is divided by its annotation."""
    annotations = None if by is None else {wire.RESTART_SCOPE: by}
    return jobset(jobs=list(jobs) or [replicated_job("a"), replicated_job("b")], annotations=annotations, **options)


def epochs(world: PlannerWorld) -> dict[str, tuple[int, int]]:
    """Return (S, D) by scope."""
    return {name: (scope.synced, scope.deprecated) for name, scope in world.jobset.scopes.items()}


def exempt(world: PlannerWorld) -> dict[str, int]:
    """Return exemptEpochs by scope."""
    return {name: scope.exempt for name, scope in world.jobset.scopes.items()}


def test_the_division_is_in_the_status_before_any_job_exists() -> None:
    """The first pass writes only the division; the Pods of the second pass have their scope's annotation."""
    jobs = [replicated_job(name) | {"groupName": group} for name, group in (("a", "x"), ("b", "y"), ("c", "x"))]
    world = PlannerWorld(divided("Group", *jobs))
    planned = world.plan()
    assert planned.actions == ()
    assert planned.status[wire.RESTART_SCOPE_FIELD] == "Group"
    assert planned.status[wire.SCOPED_EPOCHS] == [
        {"name": name, wire.SYNCED_EPOCH: 0, wire.DEPRECATED_EPOCH: 0} for name in ("x", "y")
    ]
    world.settle()
    told = {
        name: job["spec"]["template"]["metadata"]["annotations"][wire.RESTART_SCOPE] for name, job in world.jobs.items()
    }
    assert told == {"train-a-0": "x", "train-b-0": "y", "train-c-0": "x"}
    placed = world.jobs["train-c-0"]["spec"]["template"]["metadata"]["annotations"]
    assert (placed[wire.GROUP_SIZE], placed[wire.GROUP_OFFSET]) == ("4", "2")


@pytest.mark.parametrize("by", [None, "JobSet"])
def test_a_jobset_that_is_not_divided_is_as_before(by: str | None) -> None:
    """An undivided JobSet creates Jobs in the first pass; its status and Pods name no scope."""
    world = PlannerWorld(divided(by))
    assert any(isinstance(action, CreateJob) for action in world.plan().actions)
    world.settle()
    world.decision = Decision(1, 0)
    world.settle()
    assert not {wire.RESTART_SCOPE_FIELD, wire.SCOPED_EPOCHS} & world.status.keys()
    assert (world.status["syncedEpoch"], world.status["currentInPlaceRestartAttempt"]) == (1, 0)
    for job in world.jobs.values():
        assert wire.RESTART_SCOPE not in job["spec"]["template"]["metadata"]["annotations"]


class Divided:
    """A membership with one divided JobSet of two scopes, two Pods each."""

    def __init__(self, restarts_max: int) -> None:
        self.membership = make_membership()
        self.version = 0
        self.manifest = divided(restarts_max=restarts_max)
        self.manifest["metadata"]["uid"] = "js"
        self.scopes = dict.fromkeys("ab", (0, 0))
        self.write()
        for name in "ab":
            self.membership.job_changed(None, make_job(f"job-{name}", name=f"train-{name}-0"))

    def write(self) -> None:
        """Show the JobSet with the epochs as they are now."""
        self.version += 1
        entries = [
            {"name": name, wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}
            for name, (synced, deprecated) in self.scopes.items()
        ]
        status = {wire.RESTART_SCOPE_FIELD: "ReplicatedJob", wire.SCOPED_EPOCHS: entries}
        metadata = self.manifest["metadata"] | {"resourceVersion": str(self.version)}
        self.membership.jobset_changed(None, self.manifest | {"metadata": metadata, "status": status})

    def announce(self, name: str, index: int, epoch: int) -> None:
        """Let one Pod announce."""
        self.membership.pod_changed(None, make_pod(index, epoch, uid=f"{name}-{index}", job=f"job-{name}"))

    def decide(self) -> dict[str, Decision]:
        """Ask both ledgers."""
        group = self.membership.get(("default", "train"))
        assert group is not None
        return dict(group.decisions())

    def obey(self) -> bool:
        """Write what the ledgers decide; False when the JobSet failed."""
        decisions = self.decide()
        if any(decision.exceeded for decision in decisions.values()):
            return False
        self.scopes = {name: (decision.synced, decision.deprecated) for name, decision in decisions.items()}
        self.write()
        return True


moves = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.booleans()), max_size=40)


@given(moves, st.integers(0, 3))
def test_scopes_never_touch_each_other_and_share_one_budget(history: list[tuple[str, int, bool]], most: int) -> None:
    """An announcement changes only its own scope's decision, and all scopes together keep maxRestarts."""

    def play() -> None:
        world = Divided(most)
        for name, index, writes in history:
            other = "b" if name == "a" else "a"
            before = world.decide()[other]
            world.announce(name, index, world.scopes[name][0] + 1)
            after = world.decide()[other]
            assert (after.synced, after.deprecated, after.recreate) == (
                before.synced,
                before.deprecated,
                before.recreate,
            ) or after.exceeded
            if writes and not world.obey():
                used = sum(max(0, synced - 1) for synced, _ in world.scopes.values())
                assert used <= most
                return
            assert sum(max(0, synced - 1) for synced, _ in world.scopes.values()) <= most

    async def scenario() -> None:
        play()

    run(scenario())


def pods(crew: Crew, job: str) -> list[str]:
    """Return the Pods of one Job."""
    return [pod for (name, _), pod in crew.pods.items() if name == job]


async def test_a_pod_whose_job_is_gone_holds_up_its_own_scope() -> None:
    """A Pod whose Job is gone delays only the scope that its label names."""
    world = Divided(3)
    labels = {wire.JOBSET_UID: "js", wire.REPLICATED_JOB_NAME: "b"}
    world.membership.pod_changed(None, make_pod(0, 1, uid="ghost", job="gone", metadata={"labels": labels}))
    for name in "ab":
        for index in range(2):
            world.announce(name, index, 1)
    assert {name: decision.synced for name, decision in world.decide().items()} == {"a": 1, "b": 0}
