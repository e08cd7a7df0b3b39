"""The controller's HTTP to the API server: the agent's transport, for large lists, a herd's events and a long life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from inplace.common.kube.http.http1 import Http1Transport
from inplace.controller.api.credentials import Identity

READ_BYTES: Final = 2**20  # 100 Pods' events; what came during one rest is rarely more. docs/adr/0025
ANSWER_BYTES_MAX: Final = 32 * 2**20  # 500 Pods are 5 MB; 500 of 1.5 MB, as anybody may make, would be all our memory


@asynccontextmanager
async def open_transport(identity: Identity) -> AsyncIterator[Http1Transport]:
    """Run the block with a transport whose credentials are renewed.

    Raises:
        CredentialsError: a certificate or key cannot be loaded.
    """
    transport = Http1Transport(
        identity.now, renew=identity.renew, read_bytes=READ_BYTES, answer_bytes_max=ANSWER_BYTES_MAX
    )
    try:
        yield transport
    finally:
        await transport.close()
