"""
A small client: raw dictionaries in and out, one tree of ApiErrors for refusals.

Objects stay raw so that fields which this code does not know survive a round trip.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inplace.common.kube.answers import decoded, object_of
from inplace.common.kube.errors import check_answer
from inplace.common.kube.http.request import Request, Response, Transport
from inplace.common.kube.resources import KubeObject, Resource

REQUEST_TIMEOUT_S = 30.0  # half of the API server's own 60 s limit for short requests
LIST_TIMEOUT_S = 60.0  # a list of 10,000 Pods is some 100 MB of JSON

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_MAY_BE_GZIP = {"accept-encoding": "gzip"}  # kube-apiserver compresses 128 KiB and more; no watch asks for that


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


_VERSION = msgspec.json.Decoder(_Version)


class KubeClient:
    """Verbs of the API server over one transport.

    Every method raises ApiError (the server refused) or TransportError (no answer; a write may have happened).

    Attributes:
        transport: also for watches.
        headers: those that every request carries.
    """

    def __init__(self, transport: Transport, *, user_agent: str, field_manager: str) -> None:
        self.transport = transport
        self.headers = {"accept": "application/json", "user-agent": user_agent}
        self._field_manager = field_manager

    async def get(self, resource: Resource, namespace: str | None, name: str) -> KubeObject:
        """Read one object."""
        return object_of((await self.raw("GET", resource.path(namespace, name))).body)

    async def list(
        self, resource: Resource, namespace: str | None = None, *, query: dict[str, str] | None = None
    ) -> KubeObject:
        """Read a collection: the whole List object, so that its resourceVersion can be used."""
        path = resource.path(namespace, query=query)
        return object_of((await self.raw("GET", path, timeout_s=LIST_TIMEOUT_S)).body)

    async def create(
        self, resource: Resource, namespace: str | None, obj: KubeObject, *, dry_run: bool = False
    ) -> KubeObject:
        """Create an object and return it as stored."""
        path = resource.path(namespace, query=self._write_query(dry_run))
        return object_of((await self.raw("POST", path, body=obj)).body)

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, obj: KubeObject, *, subresource: str | None = None
    ) -> KubeObject:
        """Replace an object (PUT); a resourceVersion in it makes the write conditional."""
        path = resource.path(namespace, name, subresource=subresource, query=self._write_query(False))
        return object_of((await self.raw("PUT", path, body=obj)).body)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        kind: str = MERGE_PATCH,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> KubeObject:
        """Patch an object; `kind` is the patch's media type; `force` is server-side apply's."""
        query = self._write_query(dry_run) | ({"force": "true"} if force else {})
        path = resource.path(namespace, name, subresource=subresource, query=query)
        return object_of((await self.raw("PATCH", path, body=patch, content_type=kind)).body)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        propagation: str = "Background",
        uid: str | None = None,
        grace_period_s: int | None = None,
    ) -> KubeObject:
        """Delete an object; with `uid`, only that very object."""
        options: KubeObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        return object_of((await self.raw("DELETE", resource.path(namespace, name), body=options)).body)

    async def server_version(self) -> str:
        """Return the API server's gitVersion, such as v1.36.3; "" where it has none."""
        return decoded(_VERSION.decode, (await self.raw("GET", "/version")).body, "a version").git_version

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_TIMEOUT_S,
        expects_json: bool = True,
    ) -> Response:
        """Send any request; an error status raises like everywhere else."""
        headers = self.headers
        payload = b""
        if body is not None:
            headers = headers | {"content-type": content_type}
            payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.send(Request(method, path, headers, payload), timeout_s=timeout_s, expects_json=expects_json)

    async def send(self, request: Request, *, timeout_s: float, expects_json: bool = True) -> Response:
        """Send a request whose answer may come compressed; an error status raises like everywhere else."""
        request = Request(request.method, request.path, {**request.headers, **_MAY_BE_GZIP}, request.body)
        response = await self.transport.request(request, timeout_s=timeout_s)
        check_answer(response, expects_json=expects_json)
        return response

    def _write_query(self, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": self._field_manager} | ({"dryRun": "All"} if dry_run else {})
