"""spec.managedBy: which controller reconciles a JobSet."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import EVENTS, JOBSETS, SERVICES
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", [None, "jobset.sigs.k8s.io/jobset-controller", "inplace.dev/jobset-controller"])
async def test_ours(stage: Stage, name: str | None) -> None:
    """No name, upstream's reserved name and our own mean this controller."""
    given: dict[str, Any] = {} if name is None else {"managedBy": name}
    await stage.start(jobset(strategy=None, **given))
    await stage.shows(restarts=0)


@pytest.mark.parametrize("name", ["kueue.x-k8s.io/multikueue", "example.com/other"])
async def test_anothers(stage: Stage, name: str) -> None:
    """A JobSet of another controller gets nothing from us: no Job, no Service, no Event, no word in its status."""
    await stage.submit(jobset(managedBy=name, suspend=True))
    status = {"restarts": 7, "terminalState": "", "replicatedJobsStatus": []}
    await stage.client.patch(JOBSETS, stage.namespace, "train", {"status": status}, subresource="status")
    await stage.edit({"spec": {"suspend": False}})
    version = (await stage.jobset())["metadata"]["resourceVersion"]
    other = Stage(stage.client, stage.namespace, "ours")  # what is made for it is made after the other was seen
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
