"""An opted-out replicatedJob: no barrier waits for it, and no group restart concerns it."""

from typing import Any

import pytest

from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def monitor(**spec: Any) -> KubeObject:
    """Return an opted-out replicatedJob without the settings that in-place restart needs."""
    settings: dict[str, Any] = {"backoffLimit": 0, "podReplacementPolicy": "TerminatingOrFailed"}
    job = replicated_job("monitor", pods=1, **settings, **spec)
    job["template"]["metadata"] = {"annotations": {wire.DISABLE: "true"}}
    return job


def with_monitor(*, rules: list[KubeObject] | None = None, **options: Any) -> KubeObject:
    """Return a JobSet of workers and a monitor."""
    named = [{"name": "r"} | rule for rule in rules or ()]
    return jobset(jobs=[replicated_job(), monitor()], rules=named, **options)


def test_it_is_no_part_of_the_group() -> None:
    """An opted-out replicatedJob has Jobs but no slots."""
    world = settled(with_monitor())
    assert set(world.jobs) == {"train-workers-0", "train-monitor-0"}
    assert world.plan().expected == {"workers"}
    assert world.jobset.shape.size == 2


def test_its_completed_pods_are_not_run_again() -> None:
    """A group restart recreates the group's completed Jobs, and not the monitor's."""
    world = settled(with_monitor())
    world.status.update(wire.status_of_epochs(1, 1))
    world.decision = Decision(1, 1)
    world.set_job("train-monitor-0", "Complete", succeeded=1)
    assert world.plan().actions == ()


def test_its_failure_goes_through_the_failure_policy_without_an_epoch() -> None:
    """Its Job is recreated alone, counts once by its rule, exempts no epoch, and the group does not restart."""
    world = settled(with_monitor(rules=[{"action": "RestartJob", "targetReplicatedJobs": ["monitor"]}]))
    world.status.update(wire.status_of_epochs(2, 1))
    world.settle_job("train-monitor-0", "Failed")
    assert world.deleted == ["train-monitor-0"]
    assert "exemptEpochs" not in world.status or world.status["exemptEpochs"] == 0
    assert world.jobset.recreations_counted == 1


async def test_a_group_starts_and_restarts_without_it(rig: Rig) -> None:
    """When the monitor dies, is replaced or lingers, the barrier does not wait and no worker restarts."""
    crew = await rig.with_pods(with_monitor())
    watcher = crew.pods["train-monitor-0", 0]
    workers = [pod for (job, _), pod in crew.pods.items() if job == "train-workers-0"]
    await rig.meet(crew, 1, pods=workers)
    assert await crew.epochs() == (1, 0)
    await crew.set_worker(watcher)
    await crew.set_worker(watcher, exit_code=1)
    await rig.admin.patch(PODS, "default", watcher, {"metadata": {"finalizers": ["test/hold"]}})
    await rig.admin.delete(JOBS, "default", "train-monitor-0")
    await rig.admin.delete(PODS, "default", watcher, grace_period_s=0)
    await rig.settle()
    assert await crew.epochs() == (1, 0)
    await rig.meet(crew, 2, pods=workers)
    assert await crew.epochs() == (2, 1)
    uid = (await crew.jobset())["metadata"]["uid"]
    assert (await crew.jobs())["train-monitor-0"]["metadata"]["ownerReferences"][0]["uid"] == uid
