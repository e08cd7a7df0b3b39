"""InOrder and dependsOn: the order of starts, the conditions, and no deadlock at a barrier."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

IN_ORDER = {"startupPolicyOrder": "InOrder"}


def depending(name: str, *on: tuple[str, str], **options: Any) -> KubeObject:
    """Return a replicatedJob that waits for others."""
    return replicated_job(name, **options) | {"dependsOn": [{"name": n, "status": status} for n, status in on]}


def in_order(*, strategy: str | None = "Recreate", **options: Any) -> KubeObject:
    """Return a JobSet of a, b and c that start in order."""
    jobs = [replicated_job("a", replicas=2), replicated_job("b"), replicated_job("c")]
    return jobset(jobs=jobs, strategy=strategy, startupPolicy=IN_ORDER, **options)


def truth(world: PlannerWorld, kind: str) -> str | None:
    """Return the status of a condition."""
    condition = world.find_condition(kind)
    return condition["status"] if condition is not None else None


def phases(world: PlannerWorld) -> tuple[str | None, str | None]:
    """Return the two conditions of the startup policy."""
    return truth(world, "StartupPolicyInProgress"), truth(world, "StartupPolicyCompleted")


def test_in_order_each_waits_for_all_jobs_before_it() -> None:
    """Ready, succeeded and failed Jobs are up; the conditions say how far it is, and exclude each other."""
    world = settled(in_order())
    assert set(world.jobs) == {"train-a-0", "train-a-1"}
    assert phases(world) == ("True", None)
    world.settle_job("train-a-0", active=2, ready=2)
    assert len(world.jobs) == 2
    world.settle_job("train-a-1", "Complete")
    assert set(world.jobs) == {"train-a-0", "train-a-1", "train-b-0"}
    for name in ("train-b-0", "train-c-0"):
        world.settle_job(name, active=2, ready=2)
    assert phases(world) == ("False", "True")
    assert world.condition("StartupPolicyCompleted")["message"] == "in order startup policy has completed"


def test_a_restart_repeats_the_order() -> None:
    """After a recreation only the first replicatedJob is created again, and the policy is in progress again."""
    world = settled(in_order())
    for name in ("train-a-0", "train-a-1", "train-b-0", "train-c-0"):
        world.settle_job(name, active=2, ready=2)
    world.settle_job("train-c-0", "Failed")
    assert set(world.jobs) == {"train-a-0", "train-a-1"}
    assert phases(world) == ("True", "False")


def test_without_replicas_there_is_nothing_to_wait_for() -> None:
    """A replicatedJob of 0 replicas counts as started."""
    jobs = [replicated_job("a", replicas=0), replicated_job("b")]
    assert set(settled(jobset(strategy=None, jobs=jobs, startupPolicy=IN_ORDER)).jobs) == {"train-b-0"}


def test_suspended_all_jobs_exist_and_are_resumed_in_order() -> None:
    """Jobs are created suspended, all at once; they are resumed in order, and Suspended stays True until the end."""
    world = settled(in_order(suspend=True))
    assert len(world.jobs) == 4
    assert phases(world) == (None, None)
    world.manifest["spec"]["suspend"] = False
    resumed: list[str] = []
    for names in (("train-a-0", "train-a-1"), ("train-b-0",), ("train-c-0",)):
        world.settle()
        assert truth(world, "Suspended") == "True"
        resumed += names
        assert {name for name, job in world.jobs.items() if not job["spec"]["suspend"]} == set(resumed)
        for name in names:
            world.set_job(name, active=2, ready=2)
    world.settle()
    assert truth(world, "Suspended") == "False"
    assert phases(world) == ("False", "True")


@pytest.mark.parametrize(("status", "state"), [("Ready", {"active": 2, "ready": 2}), ("Complete", None)])
def test_depends_on(status: str, state: KubeObject | None) -> None:
    """A dependent is created when every Job of what it depends on is ready, or complete."""
    world = settled(jobset(strategy=None, jobs=[replicated_job("a", replicas=2), depending("b", ("a", status))]))
    for name in ("train-a-0", "train-a-1"):
        assert "train-b-0" not in world.jobs
        if state is None:
            world.settle_job(name, active=2, ready=2)
            assert "train-b-0" not in world.jobs
            world.set_job(name, "Complete")
        else:
            world.set_job(name, **state)
        world.settle()
    assert "train-b-0" in world.jobs
    assert phases(world) == (None, None)


def test_all_dependencies_must_hold() -> None:
    """With several dependencies the last one decides."""
    jobs = [replicated_job("a"), replicated_job("b"), depending("c", ("a", "Ready"), ("b", "Complete"))]
    world = settled(jobset(strategy=None, jobs=jobs))
    world.settle_job("train-b-0", "Complete")
    assert "train-c-0" not in world.jobs
    world.settle_job("train-a-0", active=2, ready=2)
    assert "train-c-0" in world.jobs


@pytest.mark.parametrize("name", ["b", "c", "nobody"])
def test_a_dependency_that_does_not_stand_before_it(name: str) -> None:
    """With an invalid dependency a replicatedJob never starts and SpecProblem says why; the others run."""
    jobs = [replicated_job("a"), depending("b", (name, "Ready")), replicated_job("c")]
    world = settled(jobset(strategy=None, jobs=jobs))
    assert set(world.jobs) == {"train-a-0", "train-c-0"}
    assert f"expected the name of a replicatedJob before it, saw '{name}'" in world.condition("SpecProblem")["message"]


def test_a_group_restart_does_not_start_the_order_over() -> None:
    """An in-place restart makes Pods unready, but changes no startup condition and no Job."""
    world = settled(in_order(strategy=wire.IN_PLACE_RESTART))
    names = ("train-a-0", "train-a-1", "train-b-0", "train-c-0")
    for name in names:
        world.settle_job(name, active=2, ready=2)
    world.status.update(wire.status_of_epochs(3, 3))
    for name in names:
        world.set_job(name, active=2)
    planned = world.plan()
    assert planned.expected == {"a", "b", "c"}
    assert (planned.actions, set(planned.status)) == ((), {"replicatedJobsStatus"})


def test_the_barrier_waits_only_for_what_is_due() -> None:
    """The barrier expects a replicatedJob from the creation of its Jobs, also when its dependency becomes unready."""
    jobs = [replicated_job("a"), depending("b", ("a", "Ready")), depending("c", ("b", "Ready"))]
    world = settled(jobset(jobs=jobs))
    assert world.plan().expected == {"a"}
    world.set_job("train-a-0", active=2, ready=2)
    assert world.plan().expected == {"a", "b"}
    world.settle()
    world.set_job("train-a-0", active=2)
    assert world.plan().expected == {"a", "b"}


def test_an_initializer_leaves_the_group_when_it_is_done() -> None:
    """After its completion a replicatedJob that others depend on is not expected, and no restart runs it again."""
    world = settled(jobset(jobs=[replicated_job("init"), depending("train", ("init", "Complete"))]))
    world.status.update(wire.status_of_epochs(1, 0))
    world.set_job("train-init-0", "Complete", succeeded=2)
    planned = world.plan()
    assert planned.expected == {"train"}
    world.settle()
    assert (world.status["exemptEpochs"], world.status["lastExemptEpoch"]) == (1, 2)
    world.status.update(wire.status_of_epochs(2, 2))
    assert world.plan().actions == ()


@st.composite
def graphs(draw: st.DrawFn) -> KubeObject:
    """Draw a JobSet whose replicatedJobs start in some order."""
    jobs: list[KubeObject] = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        earlier = [(job["name"], draw(st.sampled_from(["Ready", "Complete"]))) for job in jobs if draw(st.booleans())]
        jobs.append(depending(name, *earlier, replicas=draw(st.integers(0, 2))))
    manifest = jobset(jobs=jobs, suspend=draw(st.booleans()))
    if draw(st.booleans()):
        for job in jobs:
            del job["dependsOn"]
        manifest = changed(manifest, "spec.startupPolicy", IN_ORDER)
    return manifest


@given(graphs(), st.data())
def test_every_order_reaches_its_end(manifest: KubeObject, data: st.DataObject) -> None:
    """In every order all Jobs are created in the end, when Jobs become ready or complete."""
    world = settled(manifest)
    world.manifest["spec"]["suspend"] = False
    everything = set(world.jobset.places)
    seen = set(world.jobs)
    empty = {job.name for job in world.jobset.replicated_jobs if job.replicas == 0}
    for _ in everything:
        world.settle()
        seen |= set(world.jobs)
        assert world.plan().expected <= {name.split("-")[1] for name in world.jobs} | empty
        for name, job in world.jobs.items():
            if job["spec"]["suspend"] or "Complete" in str(job.get("status")):
                continue
            if "status" in job or data.draw(st.booleans()):
                world.set_job(name, "Complete", succeeded=2)
            else:
                world.set_job(name, active=2, ready=2)
    for name in list(world.jobs):
        world.settle_job(name, "Complete", succeeded=2)
        seen |= set(world.jobs)
    assert seen == everything


async def test_dependents_join_the_group_by_one_uncounted_restart(rig: Rig) -> None:
    """The first replicatedJob syncs alone; its dependent joins by one uncounted restart, and all run at one epoch."""
    manifest = jobset(jobs=[replicated_job("a"), depending("b", ("a", "Ready"))], restarts_max=0)
    crew = await rig.started(manifest)
    assert await crew.epochs() == (1, 0)
    await crew.set_job("train-a-0", active=2, ready=2)
    await rig.settle()
    await crew.make_pods()
    await rig.announce(crew, crew.pods["train-b-0", 0], 2)
    assert await crew.epochs() == (1, 1)
    (event,) = await rig.events("GroupRestartStarted")
    assert "not counted as a restart, 0 of 0 used" in event["note"]
    await crew.set_job("train-a-0", active=2, ready=0)
    await rig.settle()
    await rig.change_controller()
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert "terminalState" not in await crew.status()
    await rig.announce(crew, crew.pods["train-a-0", 0], 3)
    assert (await crew.status())["terminalState"] == "Failed"


def test_who_is_not_due_waits_for_somebody_who_is_named() -> None:
    """The condition names the waiting replicatedJobs at each step, and is False when all have started."""
    world = settled(in_order())
    condition = world.condition("StartWaiting")
    words = "replicatedJob b waits for a to be up; replicatedJob c waits for a to be up"
    assert (condition["status"], condition["message"]) == ("True", words)
    for name in ("train-a-0", "train-a-1"):
        world.set_job(name, active=2, ready=2)
    world.settle()
    assert world.condition("StartWaiting")["message"] == "replicatedJob c waits for b to be up"
    for name in ("train-b-0", "train-c-0"):
        world.settle()
        world.set_job(name, active=2, ready=2)
    world.settle()
    assert world.condition("StartWaiting")["status"] == "False"


def test_who_depends_on_another_says_on_whom() -> None:
    """Name and state of each dependency."""
    after = replicated_job("b") | {"dependsOn": [{"name": "a", "status": "Complete"}]}
    world = settled(jobset(strategy=None, jobs=[replicated_job("a"), after]))
    assert world.condition("StartWaiting")["message"] == "replicatedJob b waits for a to be Complete"


def test_who_fails_in_the_same_pass_never_waited() -> None:
    """When the JobSet fails in the same pass, no waiting condition is written."""
    world = settled(jobset(jobs=[replicated_job("a"), depending("b", ("a", "Ready"))], strategy=wire.IN_PLACE_RESTART))
    world.status.pop("conditions")
    world.decision = Decision(1, 0, restarts=1, exceeded=True)
    planned = world.plan()
    assert planned.status["terminalState"] == "Failed"
    assert {condition["status"] for condition in planned.status["conditions"]} == {"True"}
