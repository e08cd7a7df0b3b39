"""Apply manifests to a control plane as `kubectl apply --server-side` does, and wait until their CRDs are served."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any, Final

from testbed.api_client import ApiClient, UnexpectedStatus

APPLY_PATCH: Final = "application/apply-patch+yaml"
CRD: Final = "CustomResourceDefinition"
FIRST: Final = ("Namespace", CRD, "ServiceAccount")
"""Kinds that others need; the rest is applied in the order of the manifest."""

SERVED_S_MAX: Final = 30.0
"""From a CRD's creation until the API server serves it: a second on a quiet machine."""

POLL_S: Final = 0.05


class Applier:
    """Apply documents with one client; it learns the API server's resources once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    async def apply(self, documents: Iterable[dict[str, Any]]) -> None:
        """
        Create or change what the documents describe, Namespaces and CRDs first.

        Raises:
            UnexpectedStatus: the API server refused a document.
            TimeoutError: a CRD is not served in SERVED_S_MAX seconds.
        """
        ordered = sorted(documents, key=lambda each: FIRST.index(each["kind"]) if each["kind"] in FIRST else len(FIRST))
        definitions = [each for each in ordered if each["kind"] == CRD]
        for document in ordered:
            await self.apply_one(document)
        for document in definitions:
            await self._served(document)

    async def apply_one(self, document: dict[str, Any]) -> dict[str, Any]:
        """Create or change one object, and return what is stored."""
        path = await self.path(document)
        query = {"fieldManager": "testbed", "force": "true"}
        answer = await self._client.text("PATCH", path, body=document, query=query, content_type=APPLY_PATCH)
        stored: dict[str, Any] = json.loads(answer)
        return stored

    async def path(self, document: dict[str, Any]) -> str:
        """Return the path of the object that a document describes."""
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._resources:
            for each in (await self._discovered(root))["resources"]:
                if "/" not in each["name"]:
                    self._resources[version, each["kind"]] = (each["name"], each["namespaced"])
        plural, namespaced = self._resources[version, kind]
        metadata = document["metadata"]
        within = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{within}/{plural}/{metadata['name']}"

    async def _discovered(self, root: str) -> Any:
        """Return a group's resources; wait for a group that is new."""
        until_s = time.monotonic() + SERVED_S_MAX
        while True:
            try:
                return await self._client.get(root)
            except UnexpectedStatus as error:
                if error.status != 404 or time.monotonic() > until_s:
                    raise
            await asyncio.sleep(POLL_S)

    async def _served(self, definition: dict[str, Any]) -> None:
        """Wait until the storage of a CRD answers."""
        spec = definition["spec"]
        version = next(each["name"] for each in spec["versions"] if each["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        until_s = time.monotonic() + SERVED_S_MAX
        while True:
            try:
                await self._client.get(path, limit="1")
                return
            except UnexpectedStatus as error:
                if error.status not in (404, 429) or time.monotonic() > until_s:
                    raise
            await asyncio.sleep(POLL_S)
