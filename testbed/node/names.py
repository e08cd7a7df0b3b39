"""
The cluster's DNS, as far as workers need it: HOSTNAME.SUBDOMAIN.NAMESPACE.svc.cluster.local is a Pod's address.

Every question asks the API server, so there is nothing to keep in step. Pods that are not ready are answered too, as
the JobSet's headless Service asks for (publishNotReadyAddresses). A question for IPv6 finds nothing, other names do not
exist.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import PODS

PORT: Final = 53
DOMAIN: Final = "cluster.local"
A: Final = 1
NO_ERROR: Final = 0x8580  # an answer, authoritative, recursion asked for and available
NO_SUCH_NAME: Final = 0x8583
_HEADER: Final = struct.Struct("!6H")


@asynccontextmanager
async def answering(client: KubeClient, address: str) -> AsyncIterator[None]:
    """Answer questions at an address meanwhile."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Names(client), local_addr=(address, PORT))
    try:
        yield
    finally:
        transport.close()


class Names(asyncio.DatagramProtocol):
    """One answer for each question."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._transport: asyncio.DatagramTransport
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what answers are sent with."""
        self._transport = cast("asyncio.DatagramTransport", transport)  # asyncio's own is none by class

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Look the name up beside other questions."""
        task = asyncio.get_running_loop().create_task(self._answer(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer, or say nothing while the API server does not: who asks asks again."""
        name, kind, question = read_question(data)
        with suppress(ApiError, TransportError):
            found = await self._addresses(name)
            self._transport.sendto(answer(data, question, found is not None, (found or []) if kind == A else []), addr)

    async def _addresses(self, name: str) -> list[str] | None:
        """Return the addresses of a name, None when there is no such name."""
        host, _, rest = name.partition(".")
        subdomain, _, rest = rest.partition(".")
        namespace, _, domain = rest.partition(".")
        if domain != f"svc.{DOMAIN}":
            return None
        pods = (await self._client.list(PODS, namespace))["items"]
        asked = [
            pod for pod in pods if (pod["spec"].get("hostname"), pod["spec"].get("subdomain")) == (host, subdomain)
        ]
        return [pod["status"]["podIP"] for pod in asked if pod["status"].get("podIP")] if asked else None


def read_question(data: bytes) -> tuple[str, int, bytes]:
    """Return the name that is asked for in small letters, the type, and the question's own bytes (RFC 1035, 4.1.2)."""
    labels, at = [], _HEADER.size
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    (kind,) = struct.unpack_from("!H", data, at + 1)
    return ".".join(labels), kind, data[_HEADER.size : at + 5]


def answer(data: bytes, question: bytes, exists: bool, addresses: list[str]) -> bytes:
    """Return the whole answer: each address with a lifetime of 0, because Pods come and go."""
    (number,) = struct.unpack_from("!H", data)
    head = _HEADER.pack(number, NO_ERROR if exists else NO_SUCH_NAME, 1, len(addresses), 0, 0)
    records = (struct.pack("!HHHIH", 0xC00C, A, 1, 0, 4) + socket.inet_aton(address) for address in addresses)
    return head + question + b"".join(records)
