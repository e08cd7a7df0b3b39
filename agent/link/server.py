"""
Serve the guards of this Pod on a Unix socket, and carry the lines of the link.

The socket lies in the folder that the Pod's containers share. Any process of the Pod may connect, and can harm its own
Pod only, as it can by ending the worker. So what it may cost is bounded, and nonsense closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

from inplace.agent.report.line_limit import LimitedLog
from inplace.agent.report.log import Log
from inplace.agent.settings.address import reachable
from inplace.common.kube.clock import Clock
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.link import LINK_CONTAINERS, LINK_PROCESS, Hello, LineReader, Message, line_of
from inplace.common.wire.names import DEPTH_PROCESS

GUARDS_MAX: Final = 16  # containers of a Pod with a guard; the next connection is closed at once
HELLO_S_MAX: Final = 5.0  # a guard says who it is at once
READ_BYTES_MAX: Final = 4096


class Listener(Protocol):
    """Hears what guards say."""

    def greeted(self, peer: int) -> None:
        """Take note of a guard: the number of its connection."""

    def heard(self, peer: int, message: Message) -> None:
        """Take in one message.

        Raises:
            RemoteProtocolError: a guard cannot say this now; its connection is closed.
        """

    def left(self, peer: int) -> None:
        """Take note of the end of a connection that was greeted."""


class GuardServer:
    """Carries messages to and from the guards of this Pod.

    This one serves none and does nothing: only kubelet holds this Pod's workers back.
    """

    async def start(self, listener: Listener) -> None:
        """Begin to listen."""

    def tell(self, peer: int, message: Message) -> None:
        """Say something to one guard, if it is there."""

    def tell_all(self, message: Message) -> None:
        """Say something to every guard that is there."""

    async def stop(self) -> None:
        """Close every connection; what ends by that is no news. Idempotent."""


class LinkServer(GuardServer):
    """Serve the guards of this Pod on a Unix socket.

    Args:
        at: where, and what lay there before is replaced; or the descriptor of a socket to the only guard.

    Attributes:
        over: called when that guard has gone, instead of the listener: its container ends.
        depth: of a restart, `containers` or `process`, which each guard is told.
    """

    def __init__(self, at: str | int, depth: str, *, clock: Clock, log: Log) -> None:
        self._at = at
        self.over: Callable[[], None] | None = None
        self._depth = LINK_PROCESS if depth == DEPTH_PROCESS else LINK_CONTAINERS
        self._clock = clock
        self._log = LimitedLog(log, clock.monotonic_s)
        self._server: asyncio.Server | None = None
        self._is_open = False
        self._numbers = itertools.count()
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._greeted: dict[int, asyncio.StreamWriter] = {}
        self._listener: Listener

    async def start(self, listener: Listener) -> None:
        """Listen; a folder that cannot be written costs the guard its agent, and is told."""
        self._listener, self._is_open = listener, True
        if isinstance(self._at, int):
            guard = socket.socket(fileno=self._at)
            self._accept(*await asyncio.open_unix_connection(sock=guard, limit=READ_BYTES_MAX))
            return
        try:
            bound = _bound(self._at)
        except OSError as error:
            problem = f"LINK_FILE: cannot listen on {self._at}: {error.strerror or error}"
            self._log.error("link_unavailable", message=problem, then="a guarded worker does not start")
            return
        self._server = await asyncio.start_unix_server(self._accept, sock=bound, limit=READ_BYTES_MAX)

    def tell(self, peer: int, message: Message) -> None:
        """Say something to one guard, if it is there."""
        if peer in self._greeted:
            self._greeted[peer].write(line_of(message))

    def tell_all(self, message: Message) -> None:
        """Say something to every guard that is there."""
        for peer in self._greeted:
            self.tell(peer, message)

    async def stop(self) -> None:
        """Close the socket and every connection; what ends by that is no news."""
        if not self._is_open:
            return
        self._is_open = False
        self._log.close()
        if self._server is not None:
            self._server.close()
        for writer in self._talks.values():
            writer.transport.abort()
        await asyncio.gather(*self._talks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open or len(self._talks) >= GUARDS_MAX:
            writer.transport.abort()
            return
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks[talk] = writer
        talk.add_done_callback(self._ended)

    def _ended(self, talk: asyncio.Task[None]) -> None:
        """Forget a talk; what it could not expect is a bug, and told."""
        del self._talks[talk]
        if not talk.cancelled() and (error := talk.exception()) is not None:
            context = {"message": "bug in the link", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listen to one guard until its end."""
        lines, peer = LineReader(), next(self._numbers)
        try:
            async with self._clock.timeout(HELLO_S_MAX):
                messages = await self._messages(reader, lines)
            if messages is not None:
                self._greeted[peer] = writer
                self.tell(peer, Hello(self._depth))
                self._listener.greeted(peer)
                messages.pop(0)
            while messages is not None:
                for message in messages:
                    self._listener.heard(peer, message)
                messages = await self._messages(reader, lines)
        except RemoteProtocolError as error:
            self._log.warning("link_refused", message=str(error), then="the connection is closed")
        except (OSError, TimeoutError):
            pass  # gone, or not a guard
        finally:
            was_greeted = self._greeted.pop(peer, None) is not None
            writer.transport.abort()
            if was_greeted and self._is_open:
                self.over() if self.over is not None else self._listener.left(peer)

    async def _messages(self, reader: asyncio.StreamReader, lines: LineReader) -> list[Message] | None:
        """Return the next messages, at least one; None at the end of the connection, and of this server."""
        while (received := await reader.read(READ_BYTES_MAX)) and self._is_open:
            if messages := lines.feed(received):
                return messages
        return None


def _bound(path: str) -> socket.socket:
    """Return a socket that every user of the Pod may connect to, in place of one that an earlier agent left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = f"{path}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)  # noqa: PTH108 - as elsewhere on this path
        os.fchmod(listener.fileno(), 0o666)  # BEFORE it has a name: chmod would follow a link in its place
        umask = os.umask(0)  # the worker may be another user
        try:
            with reachable(new) as address:
                listener.bind(address)
        finally:
            os.umask(umask)
        listener.listen(GUARDS_MAX)
        os.replace(new, path)  # noqa: PTH105
    except OSError:
        listener.close()
        raise
    return listener
