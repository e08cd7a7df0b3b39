"""
The agent's end of the link to its guards: it lets workers start, and hears how they end.

The socket lies in the folder that the Pod's containers share. Any process of the Pod may connect, and can harm its own
Pod only, as it can by ending the worker. So what it may cost is bounded, and nonsense closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

from inplace.agent.link_address import reachable
from inplace.agent.log import Log
from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.kube.clock import Clock
from inplace.common.link import Ended, Ending, Failed, Hello, Leaving, Lifted, LineReader, Message, Started, line_of

GUARDS_MAX: Final = 16  # containers of a Pod with a guard; the next connection is closed at once
HELLO_S_MAX: Final = 5.0  # a guard says who it is at once
READ_BYTES_MAX: Final = 4096

OnFailure = Callable[[int, int | None], object]  # epoch; exit code, None if the container ended without a word


class Link(Protocol):
    """Lets guarded workers start, and hears of their deaths."""

    async def start(self, on_failure: OnFailure) -> None:
        """Begin to listen; each death is reported once."""

    def lift(self, epoch: int | None) -> None:
        """Let the workers start; `epoch` is None when in-place restart is off."""

    def runs(self) -> bool:
        """Say whether some guard's worker runs; one whose Pod ends does not count."""

    def leave(self) -> None:
        """Let the guards end their workers: this process ends."""

    async def stop(self) -> None:
        """Close every connection; idempotent."""


class NoLink:
    """Serves no guard."""

    async def start(self, on_failure: OnFailure) -> None:
        """Do nothing."""

    def lift(self, epoch: int | None) -> None:
        """Do nothing."""

    def runs(self) -> bool:
        """Say that no guard's worker runs."""
        return False

    def leave(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


class SocketLink:
    """Serve the guards of this Pod on a Unix socket.

    Args:
        path: where; what lay there before is replaced.
    """

    def __init__(self, path: str, *, clock: Clock, log: Log) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._greeted: set[asyncio.StreamWriter] = set()
        self._running: set[asyncio.StreamWriter] = set()
        self._lifted: Lifted | None = None
        self._on_failure: OnFailure

    async def start(self, on_failure: OnFailure) -> None:
        """Listen; a folder that cannot be written costs the guard its agent, and is told."""
        self._on_failure = on_failure
        try:
            listener = _listen(self._path)
        except OSError as error:
            problem = f"LINK_FILE: cannot listen on {self._path}: {error.strerror or error}"
            self._log.error("link_unavailable", message=problem, then="a guarded worker does not start")
            return
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=READ_BYTES_MAX)

    def lift(self, epoch: int | None) -> None:
        """Tell every guard, also those that connect later."""
        self._lifted = Lifted(epoch or 0)
        self._tell(self._lifted)

    def runs(self) -> bool:
        """Say whether some guard's worker was started, and neither it nor its Pod has begun to end."""
        return bool(self._running)

    def leave(self) -> None:
        """Tell every guard; the end of the connection says the same, and comes later. What ends now is no news."""
        self._tell(Leaving())
        self._on_failure = _ignore

    async def stop(self) -> None:
        """Close the socket and every connection."""
        if self._server is None:
            return
        self._on_failure = _ignore
        server, self._server = self._server, None
        server.close()
        for writer in self._talks.values():
            writer.transport.abort()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await server.wait_closed()

    def _tell(self, message: Message) -> None:
        for writer in self._greeted:
            writer.write(line_of(message))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or len(self._talks) >= GUARDS_MAX:
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
        """Listen to one guard until its end; what it did not say by then says that its container is gone."""
        lines, runs = LineReader(), 0
        try:
            async with self._clock.timeout(HELLO_S_MAX):
                messages = await _messages(reader, lines)
            if messages is not None:
                self._greet(writer)
                messages.pop(0)
            while messages is not None:
                for message in messages:
                    runs = self._hear(message)
                    (self._running.add if runs else self._running.discard)(writer)
                messages = await _messages(reader, lines)
        except RemoteProtocolError as error:
            self._log.warning("link_refused", message=str(error), then="the connection is closed")
        except (OSError, TimeoutError):
            pass  # gone, or not a guard
        finally:
            self._greeted.discard(writer)
            self._running.discard(writer)
            writer.transport.abort()
            if runs:
                self._on_failure(runs, None)

    def _greet(self, writer: asyncio.StreamWriter) -> None:
        self._greeted.add(writer)
        writer.write(line_of(Hello()))
        if self._lifted is not None:
            writer.write(line_of(self._lifted))

    def _hear(self, message: Message) -> int:
        """Take in one message; return the epoch in which the guard's worker runs now, 0 when its end is no news."""
        match message:
            case Started(epoch):
                return epoch
            case Failed(epoch, code):
                self._on_failure(epoch, code)
                return 0
            case Ended() | Ending():
                return 0
        raise RemoteProtocolError(f"expected a guard's line, saw {message!r}")


def _ignore(_epoch: int, _code: int | None) -> None:
    """Take no note of a death."""


async def _messages(reader: asyncio.StreamReader, lines: LineReader) -> list[Message] | None:
    """Return the next messages, at least one; None at the end of the connection."""
    while received := await reader.read(READ_BYTES_MAX):
        if messages := lines.feed(received):
            return messages
    return None


def _listen(path: str) -> socket.socket:
    """Return a socket that every user of the Pod may connect to, in place of one that an earlier agent left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = f"{path}.new"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)  # noqa: PTH108 - as elsewhere on this path
        with reachable(new) as address:
            listener.bind(address)
        os.chmod(new, 0o666)  # noqa: PTH101, S103 - the worker may be another user
        listener.listen(GUARDS_MAX)
        os.replace(new, path)  # noqa: PTH105
    except OSError:
        listener.close()
        raise
    return listener
