"""
Send the requests of benchmarks/baseline_agent.py without its CPU cost.

A thousand kubernetes_asyncio clients on the server's own cores take a minute of CPU and so spread their requests; on a
cluster each has its own node's cores. The requests are the same, byte for byte where the server cares
(tests/benchmarks/test_obvious_client.py compares them). So is the reaction to a refusal: the process ends, and kubelet
starts its containers again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing, suppress

from inplace.common.bare.typed import Protocol
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, error_from_response
from inplace.common.kube.http.request import Request, Transport, TransportError
from inplace.common.kube.watch import HEADERS_TIMEOUT_S, watch_lines
from inplace.common.wire import names as wire

POD_RESTART_S = 1.0  # RestartAllContainers brings an agent that exited back after about this long
_PLAIN = {"accept": "application/json", "user-agent": "OpenAPI-Generator/python"}


class ClosableTransport(Transport, Protocol):
    """A process's own transport, which ends with it."""

    async def close(self) -> None:
        """Close every connection."""


async def follow_for_ever(
    connect: Callable[[], ClosableTransport], clock: Clock, namespace: str, jobset: str, pod: str
) -> None:
    """Start again after every failure, until cancelled; `connect` makes each process's transport."""
    while True:
        transport = connect()
        try:
            with suppress(ApiError, TransportError):
                await follow(transport, clock, namespace, jobset, pod)
        finally:
            await transport.close()
        await clock.sleep(POD_RESTART_S)


async def follow(transport: Transport, clock: Clock, namespace: str, jobset: str, pod: str) -> None:
    """Read the JobSet, announce, watch; return when the watch ends."""
    jobsets = f"/apis/{wire.API_VERSION}/namespaces/{namespace}/jobsets"
    parent = await _send(transport, Request("GET", f"{jobsets}/{jobset}", _PLAIN))
    epoch = json.loads(parent).get("status", {}).get(wire.SYNCED_EPOCH, 0) + 1
    body = json.dumps({"metadata": {"annotations": {wire.EPOCH: str(epoch)}}}).encode()
    headers = _PLAIN | {"content-type": "application/strategic-merge-patch+json"}
    await _send(transport, Request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod}", headers, body))
    watch = Request("GET", f"{jobsets}?fieldSelector=metadata.name%3D{jobset}&watch=True", _PLAIN)
    async with aclosing(watch_lines(transport, watch, clock=clock)) as lines:
        async for line in lines:
            json.loads(line)


async def _send(transport: Transport, request: Request) -> bytes:
    response = await transport.request(request, timeout_s=HEADERS_TIMEOUT_S)
    if response.status >= 400:
        raise error_from_response(response)
    return response.body
