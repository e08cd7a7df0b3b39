"""The product's own client, opened with a kubeconfig: for what acts on a cluster, not for what judges that client.

It also installs the CRD of deploy/crd.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import yaml

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import AlreadyExists, NotFound, Throttled
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS, KubeObject
from inplace.simulator.cluster.manifests import custom_resource_definitions
from testbed.api_client import collection
from testbed.waiting import until

CRD = Path(__file__).parents[1] / "deploy" / "crd" / "jobsets.yaml"
SERVED_S_MAX = 30.0  # a real server takes about a second, longer on a busy machine


@asynccontextmanager
async def kube_client(kubeconfig: Path, name: str = "inplace-test") -> AsyncIterator[KubeClient]:
    """Open a client as the kubeconfig's user; `name` is its user agent and its field manager."""
    transport = Http1Transport(read_kubeconfig(str(kubeconfig)), clock=LoopClock())
    try:
        yield KubeClient(transport, user_agent=name, field_manager=name)
    finally:
        await transport.close()


def moved_to(namespace: str, text: str) -> list[KubeObject]:
    """Return the documents of a manifest, moved to a namespace."""
    documents: list[KubeObject] = list(yaml.safe_load_all(text))
    for placed in (*documents, *(subject for document in documents for subject in document.get("subjects", ()))):
        placed.get("metadata", placed)["namespace"] = namespace
    return documents


async def create(client: KubeClient, documents: Iterable[KubeObject]) -> None:
    """Create what manifests describe, in their order; what is there already stays."""
    for document in documents:
        with suppress(AlreadyExists):
            await client.raw("POST", collection(document), body=document)


async def install_crd(client: KubeClient) -> None:
    """Create the CRD, if it is not there, and return when JobSets can be listed."""
    with suppress(AlreadyExists):
        for document in custom_resource_definitions():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, document)

    async def is_served() -> bool:
        with suppress(NotFound, Throttled):  # 404 until established, 429 while its storage starts
            await client.list(JOBSETS)
            return True
        return False

    await until(is_served, "JobSets are served", timeout_s=SERVED_S_MAX)
