"""Install the CRD of deploy/crd on an API server, and wait until it is served."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from pathlib import Path

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import AlreadyExists, NotFound, Throttled
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS, KubeObject
from inplace.simulator.cluster.manifests import custom_resource_definitions

CRD = Path(__file__).parents[1] / "deploy" / "crd" / "jobsets.yaml"
SERVED_S_MAX = 30.0  # a real server takes about a second, longer on a busy machine
POLL_S = 0.1


def with_opaque_templates(crd: KubeObject) -> KubeObject:
    """Return the CRD without what `deploy.template_schema` writes, as it was before."""
    found = deepcopy(crd)
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    job = spec["properties"]["replicatedJobs"]["items"]["properties"]["template"]["properties"]["spec"]["properties"]
    pod = job["template"]["properties"]["spec"]
    for name in ("podFailurePolicy", "selector"):
        del job[name]
    pod["properties"] = {"restartPolicy": pod["properties"]["restartPolicy"]}
    return found


async def install_crd(client: KubeClient) -> None:
    """Create the CRD, if it is not there, and return when JobSets can be listed."""
    with suppress(AlreadyExists):
        for document in custom_resource_definitions():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, document)
    served = AsyncRetrying(
        retry=retry_if_exception_type((NotFound, Throttled)),  # 404 until established, 429 while its storage starts
        stop=stop_after_delay(SERVED_S_MAX),
        wait=wait_fixed(POLL_S),
        reraise=True,
    )
    await served(client.list, JOBSETS)
