"""
A streaming answer on its own connection: what came since the last read is decrypted and split in one go.

A herd's events come one by one, each in a chunk or two and as many TLS records. An event loop's streams and an HTTP
library would hand up each of them. Who reads seldom (`tracking/gathering.py`) gets many at once here. docs/adr/0025
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from inplace.common.kube.http.connection import connect
from inplace.common.kube.http.http1 import Http1Stream
from inplace.common.kube.http.request import Request, Stream
from inplace.controller.api.credentials import Identity

READ_BYTES: Final = 2**20  # 100 Pods' events; what came during one rest is rarely more


@asynccontextmanager
async def open_stream(identity: Identity, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
    """Send a request on a new connection and run the block with its answer.

    Raises:
        TransportError: there is no connection, or it broke.
        TimeoutError: no answer within `timeout_s`; the block is not bounded.
        CredentialsError: a certificate or key cannot be used.
    """
    to = identity.now
    who = to.identity()
    async with asyncio.timeout(timeout_s):
        connection = await connect(to, to.ssl_context(), read_bytes=READ_BYTES)
        try:
            await connection.send(request, who)
            head = await connection.head()
        except BaseException:  # cancellation too: nobody else would close it
            connection.abort()
            raise
    try:
        yield Http1Stream(connection, head)
    finally:
        connection.abort()
