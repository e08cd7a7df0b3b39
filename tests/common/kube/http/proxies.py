"""A proxy on loopback for tests: CONNECT and SOCKS5 to whatever is asked for, and no more."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxying:
    """What a proxy was asked.

    Attributes:
        asked: each server's host and port.
        password: "user:password" that a client must have, "" for none.
        refuses: answer that it may not be reached.
        to: where every connection really goes.
    """

    def __init__(self, to: int, *, password: str = "", refuses: bool = False) -> None:
        self.to, self.password, self.refuses = to, password, refuses
        self.asked: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxying]:
        """Serve for the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            first = await reader.readexactly(1)
            is_allowed = await (self._socks5 if first == b"\x05" else self._connect)(reader, writer)
            if is_allowed:
                there = await asyncio.open_connection("127.0.0.1", self.to)
                await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        wanted = f"proxy-authorization: Basic {base64.b64encode(self.password.encode()).decode()}"
        if self.password and wanted not in lines:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            return False
        self.asked.append(lines[0].split()[1])
        if self.refuses:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n<html>no</html>")
            return False
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return True

    async def _socks5(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        offered = await reader.readexactly((await reader.readexactly(1))[0])
        method = 2 if self.password else 0
        if method not in offered:
            writer.write(b"\x05\xff")
            return False
        writer.write(bytes((5, method)))
        if self.password:
            await reader.readexactly(1)
            words = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
            writer.write(b"\x01\x00" if ":".join(words) == self.password else b"\x01\x01")
            if ":".join(words) != self.password:
                return False
        kind = (await reader.readexactly(4))[3]
        size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        host = await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(f"{host.decode() if kind == 3 else '.'.join(map(str, host))}:{port}")
        writer.write(bytes((5, 2 if self.refuses else 0, 0, 1, 127, 0, 0, 1, 0, 80)))
        return not self.refuses


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(65536):
        writer.write(received)
    writer.close()
