"""The product's own client, opened with a kubeconfig: for what acts on a cluster, not for what judges that client."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import AlreadyExists
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import KubeObject
from testbed.api_client import collection


@asynccontextmanager
async def kube_client(kubeconfig: Path, name: str = "inplace-test") -> AsyncIterator[KubeClient]:
    """Open a client as the kubeconfig's user; `name` is its user agent and its field manager."""
    transport = Http1Transport(read_kubeconfig(str(kubeconfig)), clock=LoopClock())
    try:
        yield KubeClient(transport, user_agent=name, field_manager=name)
    finally:
        await transport.close()


async def create(client: KubeClient, documents: Iterable[KubeObject]) -> None:
    """Create what manifests describe, in their order; what is there already stays."""
    for document in documents:
        with suppress(AlreadyExists):
            await client.raw("POST", collection(document), body=document)
