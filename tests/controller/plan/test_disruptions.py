"""Pods that are evicted, preempted or drained use up no restart, unless their Job's policy counts them."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

POLICY = "spec.replicatedJobs.0.template.spec.podFailurePolicy"
REASONS = ("EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager", "TerminationByKubelet")


def policy(action: str) -> dict[str, Any]:
    """Return a podFailurePolicy with one rule for disruptions."""
    return {"rules": [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def limited(action: str = "", **fields: Any) -> KubeObject:
    """Return a JobSet that may restart twice, with a podFailurePolicy or without."""
    manifest = changed(jobset(**fields), "spec.failurePolicy.maxRestarts", 2)
    return changed(manifest, POLICY, policy(action)) if action else manifest


async def lose(rig: Rig, crew: Crew, epoch: int, reason: str = "") -> None:
    """Let the first Pod go, with the condition of a disruption or without, and the group come back."""
    lost = crew.pod_at(0)
    if reason:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "evicted"}
        await crew.set_pod(lost, conditions=[condition])
    await crew.remove(lost)
    await rig.settle(1.0)
    await crew.replace("train-workers-0", 0)
    await crew.announce_all(epoch)
    await rig.settle(1.0)


@pytest.mark.parametrize("action", ["", "Ignore"])
async def test_disruptions_use_up_no_restart(rig: Rig, action: str) -> None:
    """Whatever the kind, and however many: the JobSet goes on, and each one is told and counted as exempt."""
    crew = await rig.started(limited(action))
    for epoch, reason in enumerate(REASONS, 2):
        await lose(rig, crew, epoch, reason)
    status = await crew.status()
    assert await crew.epochs() == (5, 4)
    assert "terminalState" not in status
    assert status[wire.EXEMPT_EPOCHS] == 4
    assert [one["trigger"] for one in status["restartHistory"]] == ["disrupted"] * 4
    assert status[wire.LAST_GROUP_RESTART]["firstFailure"]["reason"] == REASONS[-1]
    notes = [event["note"] for event in await rig.events("GroupRestartStarted")]
    assert all("not counted as a restart, 0 of 2 used" in note and "evicted (not counted)" in note for note in notes)


async def test_a_policy_that_counts_disruptions_is_obeyed(rig: Rig) -> None:
    """Under the action Count they are losses as any other, and the third one fails the JobSet."""
    crew = await rig.started(limited("Count"))
    for epoch in (2, 3, 4):
        await lose(rig, crew, epoch, REASONS[0])
    status = await crew.status()
    assert status["terminalState"] == "Failed"
    assert status[wire.LAST_GROUP_RESTART]["trigger"] == "pod_lost"


async def test_a_pod_that_a_person_deletes_counts(rig: Rig) -> None:
    """Kubernetes marks no disruption then."""
    crew = await rig.started(limited())
    for epoch in (2, 3, 4):
        await lose(rig, crew, epoch)
    assert (await crew.status())["terminalState"] == "Failed"


async def test_an_eviction_that_shows_with_its_replacement_is_no_restart_too_many(rig: Rig) -> None:
    """The exemption is written BEFORE the budget is judged, also where the controller sees both at once."""
    crew = await rig.started(changed(jobset(), "spec.failurePolicy.maxRestarts", 0))
    lost = crew.pod_at(0)
    await crew.set_pod(lost, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": REASONS[0]}])
    await crew.remove(lost)
    await crew.replace("train-workers-0", 0)
    await crew.announce_all(2)
    await rig.settle(1.0)
    assert "terminalState" not in await crew.status()
    assert (await crew.epochs())[0] == 2


async def test_a_request_that_is_long_over_is_not_taken_for_a_lost_one(rig: Rig) -> None:
    """Its annotation stays; the epoch that a later eviction exempts is not the one that the request had exempted."""
    crew = await rig.started(limited())
    await rig.annotate({wire.RESTART_REQUESTED: "a,save=5"})
    await rig.settle(6.0)
    await crew.announce_all(2)
    await rig.settle(1.0)
    assert await crew.epochs() == (2, 1)
    lost = crew.pod_at(0)
    await crew.set_pod(lost, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": REASONS[0]}])
    await crew.remove(lost)
    await rig.settle(1.0)
    assert (await crew.status())[wire.EXEMPT_EPOCHS] == 2, "at once, for a controller that comes after this one"
    assert await rig.events("SavingNotStored") == []
    assert await crew.epochs() == (2, 1)
