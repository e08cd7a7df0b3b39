"""InOrder and dependsOn: the order of starts, the conditions, and no deadlock at a barrier."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import settled

pytestmark = pytest.mark.virtual_time

IN_ORDER = {"startupPolicyOrder": "InOrder"}


def depending(name: str, *on: tuple[str, str], **options: Any) -> KubeObject:
    """Return a replicatedJob that waits for others."""
    return replicated_job(name, **options) | {"dependsOn": [{"name": n, "status": status} for n, status in on]}


def in_order(*, strategy: str | None = "Recreate", **options: Any) -> KubeObject:
    """Return a JobSet of a, b and c that start in order."""
    jobs = [replicated_job("a", replicas=2), replicated_job("b"), replicated_job("c")]
    return jobset(jobs=jobs, strategy=strategy, startupPolicy=IN_ORDER, **options)


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


def test_who_fails_in_the_same_pass_never_waited() -> None:
    """When the JobSet fails in the same pass, no waiting condition is written."""
    world = settled(jobset(jobs=[replicated_job("a"), depending("b", ("a", "Ready"))], strategy=wire.IN_PLACE_RESTART))
    world.status.pop("conditions")
    world.decision = Decision(1, 0, restarts=1, exceeded=True)
    planned = world.plan()
    assert planned.status["terminalState"] == "Failed"
    assert {condition["status"] for condition in planned.status["conditions"]} == {"True"}
