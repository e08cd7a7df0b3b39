"""Elastic Indexed Jobs: up and down while they run, in both ways of restarting."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.errors import Invalid
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import DeleteJob, ResizeJob
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def resized(pods: int, **spec: Any) -> KubeObject:
    """Return the patch that resizes workers."""
    return {"spec": {"replicatedJobs": [replicated_job(replicas=2, pods=pods, **spec)]}}


def world_of(pods: int, *, strategy: str = "Recreate", **spec: Any) -> PlannerWorld:
    """Return a settled world of two Jobs."""
    return settled(jobset(strategy=strategy, jobs=[replicated_job(replicas=2, pods=pods, **spec)]))


@given(st.integers(1, 5), st.integers(1, 5))
def test_active_jobs_get_the_size_of_their_template(before: int, after: int) -> None:
    """Active Jobs get the new size in one pass, finished Jobs keep theirs, and the next plan is empty."""
    world = world_of(before)
    world.settle_job("train-workers-1", "Complete")
    world.manifest["spec"] |= resized(after)["spec"]
    expected = (ResizeJob("train-workers-0", "job-1", after),) if before != after else ()
    assert world.plan().actions == expected
    assert world.settle() == (before != after)
    spec = world.jobs["train-workers-0"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (after, after)


@pytest.mark.parametrize("spec", [{"completionMode": "NonIndexed"}, {"completions": 7}])
def test_what_is_not_elastic_keeps_its_size(spec: KubeObject) -> None:
    """Only Indexed Jobs whose completions equal their parallelism follow."""
    world = world_of(2, **spec)
    world.manifest["spec"] |= resized(3, **spec)["spec"]
    assert world.plan().actions == ()


@pytest.mark.parametrize(("pods", "deprecated"), [(3, None), (1, 2)])
def test_a_group_is_restarted_by_its_newcomers_or_by_us(pods: int, deprecated: int | None) -> None:
    """Growing restarts the group when a new Pod announces; shrinking deprecates the epoch; neither counts."""
    world = world_of(2, strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(2, 1))
    world.decision = Decision(2, 1)
    world.manifest["spec"] |= resized(pods)["spec"]
    planned = world.plan()
    assert [type(action) for action in planned.actions] == [ResizeJob, ResizeJob]
    assert planned.status["exemptEpochs"] == 1
    assert planned.status["lastExemptEpoch"] == 3
    assert planned.status.get("deprecatedEpoch") == deprecated
    world.carry_out(planned)
    world.decision = Decision(2, deprecated or 1)
    assert (world.plan().status, world.plan().actions) == ({}, ())


def test_a_job_that_is_recreated_is_not_resized_as_well() -> None:
    """A Job that is recreated gets no resize patch too: it is created at the new size."""
    world = world_of(2, strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(2, 2))
    world.decision = Decision(2, 2, recreate=frozenset({("workers", 0)}))
    world.manifest["spec"] |= resized(3)["spec"]
    actions = {(type(action), getattr(action, "name", "")) for action in world.plan().actions}
    assert actions == {(DeleteJob, "train-workers-0"), (ResizeJob, "train-workers-1")}


async def test_a_finished_jobset_is_not_resized(rig: Rig) -> None:
    """The API server refuses to resize a finished JobSet, with upstream's message."""
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=2, pods=2)]))
    for name in await crew.jobs():
        await crew.finish_job(name, "Complete")
    await rig.settle()
    with pytest.raises(Invalid, match="Cannot mutate parallelism or completions when JobSet is in a terminal"):
        await rig.edit(resized(3), 0.0)
