"""Deletion after a TTL, volume claims, and mistakes in a spec."""

from typing import Any

import pytest

from inplace.common.kube.resources import JOBSETS, PERSISTENT_VOLUME_CLAIMS, KubeObject
from inplace.controller.plan.actions import CreateClaim, CreateJob, DeleteJobSet, SuspendJob
from inplace.controller.plan.finish import REQUEUE_S_MAX
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

CONTAINER = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"


def finished(condition: str = "Complete", **spec: Any) -> PlannerWorld:
    """Return the world of a JobSet that finished at 00:00:00."""
    world = settled(jobset(strategy=None, **spec))
    world.set_job("train-workers-0", condition)
    world.carry_out(world.plan())
    return world


def claims_policy(*names: str, retain: bool = False) -> list[KubeObject]:
    """Return spec.volumeClaimPolicies of one policy."""
    templates = [
        {
            "metadata": {"name": name, "labels": {"team": "a"}, "annotations": {"note": "b"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        for name in names
    ]
    policy: KubeObject = {"templates": templates}
    return [policy | ({"retentionPolicy": {"whenDeleted": "Retain"}} if retain else {})]


def with_claims(*, retain: bool = False, **spec: Any) -> KubeObject:
    """Return a JobSet of two replicatedJobs, the first of which mounts a claim."""
    manifest = jobset(
        strategy=None,
        jobs=[replicated_job("a"), replicated_job("b")],
        volumeClaimPolicies=claims_policy("cache", retain=retain),
        **spec,
    )
    return changed(manifest, f"{CONTAINER}.volumeMounts", [{"name": "cache", "mountPath": "/cache"}])


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_finished_jobset_is_deleted_when_its_time_has_come(condition: str) -> None:
    """A completed or failed JobSet is deleted at its TTL, not a second before; the pass asks to run then."""
    world = finished(condition, ttlSecondsAfterFinished=60)
    planned = world.plan()
    assert (planned.actions, planned.requeue_after_s) == ((), 60.0)
    world.now = "2026-01-01T00:00:59Z"
    assert world.plan().requeue_after_s == 1.0
    world.now = "2026-01-01T00:01:00Z"
    assert world.plan().actions == (DeleteJobSet("js-uid"),)
    world.settle()
    assert world.is_deleted
    assert world.plan().actions == ()


@pytest.mark.parametrize("condition", ["Completed", "Failed"])
def test_what_another_controller_finished_is_deleted_by_its_ttl(condition: str) -> None:
    """A JobSet of another controller is deleted at its TTL once that one finished it; nothing else happens to it."""
    world = PlannerWorld(jobset(managedBy="kueue.x-k8s.io/multikueue", ttlSecondsAfterFinished=60))
    world.now = "2026-01-01T00:01:00Z"
    assert (world.plan().status, world.plan().actions, world.plan().requeue_after_s) == ({}, (), None)
    ended = {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}
    world.manifest["status"] = {"conditions": [ended]}
    assert (world.plan().status, world.plan().actions, world.plan().requeue_after_s) == ({}, (), 30.0)
    world.now = "2026-01-01T00:01:30Z"
    assert (world.plan().status, world.plan().actions) == ({}, (DeleteJobSet("js-uid"),))
    world.manifest["metadata"]["deletionTimestamp"] = world.now
    assert world.plan().actions == ()


def test_ttl_0_deletes_at_once_and_no_ttl_never() -> None:
    """TTL 0 deletes at the finish, no TTL never deletes, and a running JobSet is not deleted."""
    assert finished(ttlSecondsAfterFinished=0).plan().actions == (DeleteJobSet("js-uid"),)
    world = finished()
    world.now = "2099-01-01T00:00:00Z"
    assert (world.plan().actions, world.plan().requeue_after_s) == ((), None)
    running = settled(jobset(ttlSecondsAfterFinished=0))
    assert not running.is_deleted


def test_a_clock_that_was_ahead_delays_and_never_hastens() -> None:
    """A finish time in the future delays the deletion; each single wait is at most an hour."""
    world = finished(ttlSecondsAfterFinished=60)
    world.now = "2025-12-31T23:59:00Z"
    assert world.plan().requeue_after_s == 120.0
    world.now = "2025-12-01T00:00:00Z"
    assert world.plan().requeue_after_s == REQUEUE_S_MAX


def test_a_finish_without_a_time_deletes_nothing() -> None:
    """Without a readable finish time the problem is reported and the JobSet stays."""
    world = finished(ttlSecondsAfterFinished=0)
    world.status["conditions"][0]["lastTransitionTime"] = "soon"
    planned = world.plan()
    assert planned.actions == ()
    assert [warning.reason for warning in planned.warnings] == ["TTLUnknown"]


def test_claims_come_before_jobs() -> None:
    """The claim is made first, with the template's labels and annotations; then the Jobs, and one mounts it."""
    world = PlannerWorld(with_claims())
    planned = world.plan()
    assert not [action for action in planned.actions if isinstance(action, CreateJob)]
    (action,) = [action for action in planned.actions if isinstance(action, CreateClaim)]
    metadata = action.manifest["metadata"]
    assert metadata["name"] == "cache-train"
    assert metadata["labels"] == {"team": "a", "jobset.sigs.k8s.io/jobset-name": "train"}
    assert metadata["annotations"] == {"note": "b"}
    assert metadata["ownerReferences"][0]["uid"] == "js-uid"
    assert action.manifest["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    world.settle()
    pods = {name: job["spec"]["template"]["spec"] for name, job in world.jobs.items()}
    assert pods["train-a-0"]["volumes"] == [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache-train"}}]
    assert "volumes" not in pods["train-b-0"]


def test_claims_are_made_while_suspended() -> None:
    """Claims are made while suspended, so that storage is ready at the resume."""
    world = settled(with_claims(suspend=True))
    assert set(world.claims) == {"cache-train"}
    assert len(world.jobs) == 2


def test_a_retained_claim_has_no_owner_and_is_used_again() -> None:
    """A retained claim has no owner and stays; the next JobSet of that name uses it unchanged."""
    world = settled(with_claims(retain=True))
    claim = world.claims["cache-train"]
    assert "ownerReferences" not in claim["metadata"]
    again = PlannerWorld(with_claims(retain=True), claims={"cache-train": claim | {"spec": {"volumeName": "bound"}}})
    assert not [action for action in again.plan().actions if isinstance(action, CreateClaim)]
    assert len([action for action in again.plan().actions if isinstance(action, CreateJob)]) == 2


@pytest.mark.parametrize("how", ["leaving", "foreign"])
def test_a_claim_that_will_go_is_waited_for(how: str) -> None:
    """No Job is created while its claim is being deleted or belongs to another JobSet; the reason is reported."""
    world = settled(with_claims())
    world.jobs.clear()
    metadata = world.claims["cache-train"]["metadata"]
    if how == "leaving":
        metadata["deletionTimestamp"] = world.now
    else:
        metadata["ownerReferences"][0]["uid"] = "an older train"
    planned = world.plan()
    assert planned.actions == ()
    assert planned.requeue_after_s is not None
    (warning,) = planned.warnings
    assert warning.reason == "PVCCreationFailed"
    assert "cache-train" in warning.message
    del world.claims["cache-train"]
    world.settle()
    assert len(world.jobs) == 2


def test_a_lost_claim_stops_only_the_creation_of_jobs() -> None:
    """A missing claim stops only the creation of Jobs; suspend and other actions go on."""
    world = settled(with_claims())
    world.claims.clear()
    world.manifest["spec"]["suspend"] = True
    kinds = {type(action) for action in world.plan().actions}
    assert kinds == {CreateClaim, SuspendJob}


async def test_claims_in_the_cluster(rig: Rig) -> None:
    """Claims are made, come back when they are deleted, and a namesake's claim is waited for until it is gone."""
    claims = PERSISTENT_VOLUME_CLAIMS
    crew = await rig.submit(with_claims())
    assert len(await crew.jobs()) == 2
    first = await rig.admin.get(claims, "default", "cache-train")
    await rig.admin.delete(claims, "default", "cache-train")
    await rig.settle()
    second = await rig.admin.get(claims, "default", "cache-train")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]

    hold = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
    await rig.admin.patch(claims, "default", "cache-train", hold)
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(5.0)
    again = await rig.submit(with_claims())
    assert await again.jobs() == {}
    assert len(await rig.events("PVCCreationFailed")) == 1
    await rig.admin.patch(claims, "default", "cache-train", {"metadata": {"finalizers": None}})
    await rig.settle()
    assert len(await again.jobs()) == 2
    third = await rig.admin.get(claims, "default", "cache-train")
    owner = (await again.jobset())["metadata"]["uid"]
    assert third["metadata"]["ownerReferences"][0]["uid"] == owner
