"""spec.managedBy: which controller reconciles a JobSet."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import EVENTS, JOBSETS, SERVICES
from testbed.waiting import eventually
from tests.cluster.features.stage import START, Stage
from tests.controller.manifests import jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", [None, "jobset.sigs.k8s.io/jobset-controller", "inplace.dev/jobset-controller"])
async def test_ours(stage: Stage, name: str | None) -> None:
    """A JobSet without managedBy, with upstream's reserved name or with ours is reconciled by this controller."""
    given: dict[str, Any] = {} if name is None else {"managedBy": name}
    await stage.start(jobset(strategy=None, **given))
    await stage.shows(restarts=0)


@pytest.mark.parametrize("name", ["kueue.x-k8s.io/multikueue", "example.com/other"])
async def test_anothers(stage: Stage, name: str) -> None:
    """A JobSet of another controller gets no Job, Service, Event or status from us."""
    await stage.submit(jobset(managedBy=name, suspend=True))
    status = {"restarts": 7, "terminalState": "", "replicatedJobsStatus": []}
    await stage.client.patch(JOBSETS, stage.namespace, "train", {"status": status}, subresource="status")
    await stage.edit({"spec": {"suspend": False}})
    version = (await stage.jobset())["metadata"]["resourceVersion"]
    other = Stage(stage.client, stage.namespace, "ours")  # the other JobSet was seen BEFORE these Jobs were made
    await other.start(jobset("ours", strategy=None))
    await other.be_ready("ours-workers-0")
    await other.counts_are("workers", ready=1, active=1)
    assert await stage.jobs() == {}
    assert (await stage.jobset())["metadata"]["resourceVersion"] == version
    kept = await stage.status()
    assert {name: kept[name] for name in status} == status
    services = (await stage.client.list(SERVICES, stage.namespace))["items"]
    assert [service["metadata"]["name"] for service in services] == ["ours"]
    about = {event["regarding"]["name"] for event in (await stage.client.list(EVENTS, stage.namespace))["items"]}
    assert "train" not in about


@pytest.mark.parametrize("kind", ["Completed", "Failed"])
async def test_anothers_end_and_our_ttl(stage: Stage, kind: str) -> None:
    """A JobSet that another controller finished is deleted at its TTL."""
    await stage.submit(jobset(managedBy="kueue.x-k8s.io/multikueue", ttlSecondsAfterFinished=0))
    ended = {"type": kind, "status": "True", "reason": "Theirs", "message": "theirs", "lastTransitionTime": START}
    await stage.client.patch(
        JOBSETS, stage.namespace, "train", {"status": {"conditions": [ended]}}, subresource="status"
    )

    async def is_leaving() -> bool:
        return "deletionTimestamp" in (await stage.jobset())["metadata"]

    await eventually(is_leaving, True)
