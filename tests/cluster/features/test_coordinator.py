"""spec.coordinator: the coordinator's address on every Pod."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.kube.resources import KubeObject
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY: Final = "jobset.sigs.k8s.io/coordinator"
DRIVER: Final = {"replicatedJob": "driver"}
COORDINATORS: Final[dict[str, tuple[KubeObject, KubeObject, str]]] = {
    "defaults": (DRIVER, {}, "train-driver-0-0.train"),
    "another_pod": (DRIVER | {"jobIndex": 1, "podIndex": 1}, {}, "train-driver-1-1.train"),
    "in_a_subdomain": (DRIVER, {"subdomain": "mesh"}, "train-driver-0-0.mesh"),
    "without_hostnames": (DRIVER, {"enableDNSHostnames": False}, "train-driver-0-0.train"),
}


@pytest.mark.parametrize("name", COORDINATORS)
async def test_address(stage: Stage, name: str) -> None:
    """The address is a label and an annotation on every Job and Pod of every replicatedJob."""
    coordinator, network, address = COORDINATORS[name]
    jobs = [replicated_job("driver", replicas=2), replicated_job("workers")]
    for job in (await stage.start(jobset(strategy=None, jobs=jobs, coordinator=coordinator, network=network))).values():
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            assert (metadata["labels"][KEY], metadata["annotations"][KEY]) == (address, address)


async def test_no_coordinator(stage: Stage) -> None:
    """Without a coordinator neither label nor annotation is set."""
    (job,) = (await stage.start(jobset(strategy=None))).values()
    assert KEY not in job["metadata"]["labels"]
