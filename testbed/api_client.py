"""Talk to a control plane of a kubeconfig, without the product's code.

Deliberately thin: JSON in, JSON out, an exception with the server's own words for everything but a 2xx.
Tests that judge the product's client must not use the product's client to look at the result.
"""

import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
"""A loopback API server answers in milliseconds; half its own limit (60 s) means that it hangs."""

WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
"""For a watch, which the API server ends after half an hour or more."""

EVENT_BYTES_MAX = 2**21
"""Etcd stores at most 1.5 MiB in one object, which is one line of a watch."""

MERGE_PATCH = "application/merge-patch+json"
CONFLICT = 409  # of a POST: AlreadyExists
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class UnexpectedStatus(Exception):
    """The API server's answer was not 2xx; `status` and `body` hold it."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: expected a 2xx, saw {status}: {body}")
        self.status = status
        self.body = body


class ApiClient:
    """Send single requests; a path is what follows the server's address, such as /api/v1/namespaces."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str, **query: str) -> Any:
        """Return the object at `path`."""
        return json.loads(await self.text("GET", path, query=query))

    async def post(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        """Create the object of `body` and return the stored object."""
        return json.loads(await self.text("POST", path, body=body, query=query))

    async def create(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Create what manifests describe, in their order; what is there already stays."""
        for document in documents:
            try:
                await self.post(collection(document), document)
            except UnexpectedStatus as error:
                if error.status != CONFLICT:
                    raise

    async def patch(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        """Merge `body` into the object at `path` (RFC 7386) and return the result."""
        return json.loads(await self.text("PATCH", path, body=body, query=query, content_type=MERGE_PATCH))

    async def delete(self, path: str, **query: str) -> Any:
        """Delete the object at `path` and return its last state or a Status."""
        return json.loads(await self.text("DELETE", path, query=query))

    async def watch(self, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of one watch until the API server ends it.

        Raises:
            UnexpectedStatus: the answer is not a 2xx.
        """
        asked = {"watch": "true", **query}
        async with self._session.get(path, params=asked, timeout=WATCH_TIMEOUT, read_bufsize=EVENT_BYTES_MAX) as answer:
            if not answer.ok:
                raise UnexpectedStatus("WATCH", path, answer.status, await answer.text())
            async for line in answer.content:
                yield json.loads(line)

    async def text(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> str:
        """Send one request and return the body of its answer.

        Raises:
            UnexpectedStatus: the answer is not a 2xx.
        """
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        async with self._session.request(method, path, data=data, params=query, headers=headers) as answer:
            text = await answer.text()
            if not answer.ok:
                raise UnexpectedStatus(method, path, answer.status, text)
            return text


def collection(document: Mapping[str, Any]) -> str:
    """Return the path of the collection that the object of a manifest belongs to."""
    version, plural = document["apiVersion"], document["kind"].lower()
    plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}es" if plural.endswith("s") else f"{plural}s"
    namespace = document["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


@asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[ApiClient]:
    """Open a client for the cluster and the user of a kubeconfig written by `Credentials`."""
    cluster, user = _cluster_and_user(kubeconfig)
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    async with aiohttp.ClientSession(
        base_url=cluster["server"], headers=headers, connector=aiohttp.TCPConnector(ssl=tls), timeout=REQUEST_TIMEOUT
    ) as session:
        yield ApiClient(session)


def _cluster_and_user(kubeconfig: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the only cluster and the only user of the file."""
    config = json.loads(kubeconfig.read_text())
    return config["clusters"][0]["cluster"], config["users"][0]["user"]
