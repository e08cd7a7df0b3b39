"""Read a JobSet and its Pods: two requests, side by side, however many Pods there are."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from cli.connection import Connection, did_you_mean
from cli.group_state import GroupState, group_state
from cli.pod_facts import POD_LIST, PodFact
from cli.refusal import CliExit, RefusalError
from common import wire
from common.kube.client import LIST_TIMEOUT_S, KubeObject
from common.kube.errors import ApiError, NotFound
from common.kube.http import GarbledError, Request, TransportError
from common.kube.resources import JOBSETS, PODS, Resource


async def read_group(connection: Connection, name: str) -> tuple[KubeObject, list[PodFact]]:
    """Return a JobSet, raw, and its Pods.

    Raises:
        RefusalError: there is no such JobSet.
        ApiError, TransportError: the cluster refused, or did not answer.
    """
    reading = asyncio.gather(read_jobset(connection, name), read_pods(connection, name), return_exceptions=True)
    jobset, pods = await reading
    for outcome in (jobset, pods):  # both are awaited BEFORE one is raised: nothing is left running
        if isinstance(outcome, BaseException):
            raise outcome
    assert isinstance(jobset, dict)
    assert isinstance(pods, list)
    return jobset, pods


async def read_state(connection: Connection, name: str) -> GroupState:
    """Return how a JobSet stands."""
    return group_state(*await read_group(connection, name))


async def read_jobset(connection: Connection, name: str) -> KubeObject:
    """Return a JobSet, raw.

    Raises:
        RefusalError: there is none of this name; the message says which there are.
    """
    try:
        return await connection.client.get(JOBSETS, connection.namespace, name)
    except NotFound as error:
        if not error.status.get("details", {}).get("name"):
            raise  # the path itself is unknown: no CRD
    raise await _not_found(connection, name)


async def read_pods(connection: Connection, name: str) -> list[PodFact]:
    """Return the Pods of a JobSet in one request; paging costs more, and shows a JobSet of several moments."""
    body = await _get(connection, PODS, {"labelSelector": f"{wire.JOBSET_NAME}={name}"})
    try:
        return POD_LIST.decode(body).items or []
    except msgspec.MsgspecError as error:
        raise GarbledError(f"expected a list of Pods, saw {error}") from error


async def read_jobsets(connection: Connection) -> list[KubeObject]:
    """Return every JobSet of the namespace."""
    return list((await connection.client.list(JOBSETS, connection.namespace))["items"])


async def _get(connection: Connection, resource: Resource, query: dict[str, str]) -> bytes:
    request = Request("GET", resource.path(connection.namespace, query=query), connection.client.headers)
    return (await connection.client.send(request, timeout_s=LIST_TIMEOUT_S)).body


async def _not_found(connection: Connection, name: str) -> RefusalError:
    """Return the refusal, with what was perhaps meant; asking for it costs one more request, in this case alone."""
    namespace = connection.namespace
    message = f"there is no JobSet {name} in namespace {namespace}"
    try:
        jobsets: list[Any] = (await connection.client.list(JOBSETS, None))["items"]
    except (ApiError, TransportError):
        return RefusalError(f"{message}; `inplace status` lists those that you may see", CliExit.NOT_FOUND)
    places = sorted({one["metadata"]["namespace"] for one in jobsets if one["metadata"]["name"] == name})
    here = [one["metadata"]["name"] for one in jobsets if one["metadata"]["namespace"] == namespace]
    if places:
        return RefusalError(f"{message}, but one in {', '.join(places)}: use --namespace", CliExit.NOT_FOUND)
    hint = did_you_mean(name, here) if here else "this namespace has none at all; --namespace, or apply one"
    return RefusalError(f"{message}: {hint}", CliExit.NOT_FOUND)
