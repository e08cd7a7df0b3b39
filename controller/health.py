"""
/healthz, /readyz and /metrics on one port.

Healthy means that the event loop answers. A server that cannot be reached does not make us unhealthy: a
restart would not cure it and would lose the caches. Ready means: leading with full caches, or standing by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

REQUEST_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 10.0

TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    """Answers probes and scrapes; one request per connection.

    Args:
        is_ready: None when ready, else why not.
        metrics: the exposition.
    """

    def __init__(
        self, host: str, port: int, *, is_ready: Callable[[], str | None], metrics: Callable[[], bytes]
    ) -> None:
        self._host = host
        self._port = port
        self._is_ready = is_ready
        self._metrics = metrics
        self.bound_port: int | None = None

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        server = await asyncio.start_server(self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX)
        async with server:
            self.bound_port = server.sockets[0].getsockname()[1]
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b"\r\n", 1)[0].split())
                length = len(body)
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\n"
                    f"content-length: {length}\r\nconnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # the client's connection, the client's problem
        finally:
            writer.close()

    def _answer(self, request_line: list[bytes]) -> tuple[HTTPStatus, str, bytes]:
        match request_line:
            case [b"GET", b"/healthz", _]:
                return HTTPStatus.OK, TEXT, b"ok"
            case [b"GET", b"/readyz", _]:
                why_not = self._is_ready()
                if why_not is None:
                    return HTTPStatus.OK, TEXT, b"ok"
                return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, why_not.encode()
            case [b"GET", b"/metrics", _]:
                return HTTPStatus.OK, METRICS, self._metrics()
            case _:
                return HTTPStatus.NOT_FOUND, TEXT, b"expected GET /healthz, /readyz or /metrics"
