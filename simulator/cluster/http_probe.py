"""Probe over HTTP as a kubelet does (any status from 200 to 399 within the timeout is success), or only connect."""

from __future__ import annotations

import asyncio

from inplace.common.kube.clock import Clock

_STATUS_LINE_BYTES_MAX = 1024


async def answers(host: str, port: int, path: str, *, timeout_s: float, clock: Clock) -> bool:
    """Return whether a GET succeeds."""
    try:
        async with clock.timeout(timeout_s):
            status = await _status(host, port, path)
    except (OSError, TimeoutError, ValueError, asyncio.LimitOverrunError):
        return False
    return 200 <= status < 400


async def accepts(host: str, port: int, *, timeout_s: float, clock: Clock) -> bool:
    """Return whether a connection succeeds."""
    try:
        async with clock.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _status(host: str, port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(host, port, limit=_STATUS_LINE_BYTES_MAX)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: kube-probe/1.37\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        line = await reader.readline()
        version, code, *_ = line.split(None, 2) if line.count(b" ") else (b"", b"")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"expected an HTTP status line, saw {line[:40]!r}")
        return int(code)
    finally:
        writer.close()
