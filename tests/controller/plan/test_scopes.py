"""Partial restart in place: each groupName or replicatedJob by itself, and one maxRestarts for all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.rules import RESTART_JOB_UNCOUNTED, RESTART_UNCOUNTED
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob
from inplace.simulator.cluster.virtual_time import run
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import make_job, make_membership, make_pod
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def divided(by: str | None = "ReplicatedJob", *jobs: KubeObject, **options: Any) -> KubeObject:
    """Return a JobSet of two replicatedJobs, a and b, that is divided by its annotation."""
    annotations = None if by is None else {wire.RESTART_SCOPE: by}
    return jobset(jobs=list(jobs) or [replicated_job("a"), replicated_job("b")], annotations=annotations, **options)


def started(*args: Any, **options: Any) -> PlannerWorld:
    """Return a world whose Jobs were created."""
    return settled(divided(*args, **options))


def epochs(world: PlannerWorld) -> dict[str, tuple[int, int]]:
    """Return (S, D) by scope."""
    return {name: (scope.synced, scope.deprecated) for name, scope in world.jobset.scopes.items()}


def exempt(world: PlannerWorld) -> dict[str, int]:
    """Return exemptEpochs by scope."""
    return {name: scope.exempt for name, scope in world.jobset.scopes.items()}


def running(world: PlannerWorld, **synced: int) -> None:
    """Let each scope run at an epoch."""
    entries = [{"name": name, wire.SYNCED_EPOCH: s, wire.DEPRECATED_EPOCH: s - 1} for name, s in synced.items()]
    world.status[wire.SCOPED_EPOCHS] = entries


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


@pytest.mark.parametrize(
    ("by", "later", "words"),
    [
        ("Pod", "Pod", "expected one of JobSet, Group, ReplicatedJob, saw 'Pod'; the jobset restarts as JobSet"),
        ("Job", "Job", "for jobs that each restart alone, give each a replicatedJob of its own and use ReplicatedJob"),
        ("Group", "ReplicatedJob", "expected Group, with which the jobset began, saw ReplicatedJob"),
        ("Group", None, "expected Group, with which the jobset began, saw JobSet"),
        (None, "Group", "expected JobSet, with which the jobset began, saw Group"),
    ],
)
def test_an_annotation_without_effect_is_a_spec_problem(by: str | None, later: str | None, words: str) -> None:
    """An unknown value or a change of the annotation is a SpecProblem; the division stays."""
    world = started(by)
    before = world.jobset.restart_scope
    world.manifest["metadata"]["annotations"] = {wire.RESTART_SCOPE: later} if later is not None else {}
    world.settle()
    assert words in world.condition("SpecProblem")["message"]
    assert world.jobset.restart_scope == before


def test_each_decision_goes_into_its_own_entry() -> None:
    """S and D are written into their scope's entry; the JobSet's own fields stay absent."""
    world = started()
    world.decisions = {"a": Decision(1, 0), "b": Decision(0, 0)}
    world.settle()
    assert epochs(world) == {"a": (1, 0), "b": (0, 0)}
    world.decisions = {"a": Decision(1, 1), "b": Decision(1, 0)}
    world.settle()
    assert epochs(world) == {"a": (1, 1), "b": (1, 0)}
    assert not {"syncedEpoch", "deprecatedEpoch", "currentInPlaceRestartAttempt"} & world.status.keys()


def test_only_the_completed_jobs_of_the_scope_that_restarts_are_recreated() -> None:
    """A scope's restart recreates its own completed Jobs, and no other scope's."""
    world = started()
    running(world, a=1, b=1)
    world.decisions = {"a": Decision(1, 1), "b": Decision(1, 0)}
    world.settle()
    for name in ("train-a-0", "train-b-0"):
        world.set_job(name, succeeded=1)
    world.carry_out(world.plan())
    assert world.deleted == ["train-a-0"]


@pytest.mark.parametrize(
    ("action", "expected"), [(RESTART_UNCOUNTED, {"a": 1, "b": 1}), (RESTART_JOB_UNCOUNTED, {"a": 1, "b": 0})]
)
def test_a_recreation_exempts_an_epoch_of_each_scope_it_touches(action: str, expected: dict[str, int]) -> None:
    """Recreating all Jobs exempts an epoch in every scope, recreating one Job only in its scope."""
    world = started(rules=[{"name": "r", "action": action}])
    running(world, a=2, b=3)
    world.settle_job("train-a-0", "Failed")
    assert exempt(world) == expected


def test_a_resume_exempts_an_epoch_of_each_scope() -> None:
    """A resume exempts an epoch in each scope, because every Pod is new."""
    world = started()
    running(world, a=1, b=4)
    world.manifest["spec"]["suspend"] = True
    world.settle()
    world.manifest["spec"]["suspend"] = False
    world.settle()
    assert exempt(world) == {"a": 1, "b": 1}


def test_a_smaller_scope_restarts_alone() -> None:
    """Shrinking one replicatedJob deprecates the epoch of its own scope, uncounted, and no other's."""
    world = started("ReplicatedJob", replicated_job("a", pods=4), replicated_job("b", pods=4))
    running(world, a=2, b=2)
    world.decisions = {"a": Decision(2, 1), "b": Decision(2, 1)}
    for part in ("parallelism", "completions"):
        world.manifest["spec"]["replicatedJobs"][1]["template"]["spec"][part] = 3
    world.carry_out(world.plan())
    assert epochs(world) == {"a": (2, 1), "b": (2, 2)}
    assert exempt(world) == {"a": 0, "b": 1}


def test_one_scope_that_exceeds_fails_the_jobset() -> None:
    """When one scope exceeds maxRestarts, the JobSet fails and the other scope's epochs are not written any more."""
    world = started()
    running(world, a=1, b=1)
    world.decisions = {"a": Decision(1, 1), "b": Decision(1, 0, restarts=4, exceeded=True)}
    world.settle()
    assert world.status["terminalState"] == "Failed"
    assert epochs(world) == {"a": (1, 0), "b": (1, 0)}


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


async def scoped_epochs(crew: Crew) -> dict[str, tuple[int, int]]:
    """Return (S, D) by scope."""
    entries = (await crew.status())[wire.SCOPED_EPOCHS]
    return {entry["name"]: (entry[wire.SYNCED_EPOCH], entry[wire.DEPRECATED_EPOCH]) for entry in entries}


async def test_a_failure_restarts_its_scope_and_the_budget_is_one(rig: Rig) -> None:
    """One scope restarts while the other runs; Events name it; the sum of both is bounded, for a new controller too."""
    crew = await rig.started(divided(restarts_max=2))
    assert await scoped_epochs(crew) == {"a": (1, 0), "b": (1, 0)}
    await rig.set_worker(crew, pods(crew, "train-a-0")[0], 0.1, exit_code=1)
    assert await scoped_epochs(crew) == {"a": (1, 1), "b": (1, 0)}
    await rig.meet(crew, 2, pods=pods(crew, "train-a-0"))
    assert await scoped_epochs(crew) == {"a": (2, 1), "b": (1, 0)}
    (begun,), (ended,) = await rig.events("GroupRestartStarted"), await rig.events("GroupRestartFinished")
    assert begun["note"].startswith("epoch 1 of scope a is deprecated")
    assert ended["note"].startswith("all 2 pods of scope a are at epoch 2")
    await rig.change_controller()
    await rig.meet(crew, 2, pods=pods(crew, "train-b-0"))
    assert await scoped_epochs(crew) == {"a": (2, 1), "b": (2, 1)}
    await rig.announce(crew, pods(crew, "train-a-0")[0], 3)
    assert (await crew.condition("Failed"))["reason"] == "ReachedMaxRestarts"


async def test_a_scope_that_starts_later_restarts_nobody(rig: Rig) -> None:
    """A replicatedJob that waits for another of another scope joins by a first start of its own."""
    later = replicated_job("b") | {"dependsOn": [{"name": "a", "status": "Ready"}]}
    crew = await rig.started(divided("ReplicatedJob", replicated_job("a"), later))
    assert await scoped_epochs(crew) == {"a": (1, 0), "b": (0, 0)}
    await crew.set_job("train-a-0", active=2, ready=2)
    await rig.settle()
    await crew.make_pods()
    await rig.meet(crew, 1, pods=pods(crew, "train-b-0"))
    assert await scoped_epochs(crew) == {"a": (1, 0), "b": (1, 0)}


async def test_a_pod_whose_job_is_gone_holds_up_its_own_scope() -> None:
    """A Pod whose Job is gone delays only the scope that its label names."""
    world = Divided(3)
    labels = {wire.JOBSET_UID: "js", wire.REPLICATED_JOB_NAME: "b"}
    world.membership.pod_changed(None, make_pod(0, 1, uid="ghost", job="gone", metadata={"labels": labels}))
    for name in "ab":
        for index in range(2):
            world.announce(name, index, 1)
    assert {name: decision.synced for name, decision in world.decide().items()} == {"a": 1, "b": 0}
