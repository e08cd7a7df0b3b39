"""
The guard's end of the link: a socket to the sidecar of its Pod, or to an agent that is its child.

On the guard's start path: no asyncio, and the C module below `socket`.
"""

from __future__ import annotations

import os
import time
from _signal import SIGTERM  # type: ignore[import-not-found]
from _socket import AF_UNIX, SOCK_STREAM, socket

from inplace.agent.report.guard_log import Patience
from inplace.agent.settings.address import reachable
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.link import LineReader, line_of

if TYPE_CHECKING:
    from inplace.common.protocol.link import Message

READ_BYTES_MAX: Final = 4096
_LINK_S: Final = 0.1  # an agent that runs ends some ms after its link; one that still starts does not look at it
_END_S_MAX: Final = 1.5  # `agent.start.loop` needs up to 1 s
_PAUSE_S: Final = 0.001


class OwnAgent:
    """An agent that is the guard's child.

    Args:
        pid: its process id.
        link: the socket to it.

    Attributes:
        code: the exit code, 128 + n after signal n; None while it runs.
        left_first: the link ended, or was about to, while the guard had no reason to leave.
    """

    def __init__(self, pid: int, link: socket) -> None:
        self.pid = pid
        self.link = link
        self.code: int | None = None
        self.left_first = False

    def await_end(self, reap: Callable[[], object]) -> None:
        """Wait until it has ended, for a bounded time; one that did not leave by itself gets SIGTERM soon.

        Args:
            reap: takes in the children that ended; their owner sets `code`.
        """
        signals = ((0, _END_S_MAX),) if self.left_first else ((0, _LINK_S), (SIGTERM, _END_S_MAX))
        for number, wait_s in signals:
            by_s = time.monotonic() + wait_s
            reap()
            if self.code is None:
                os.kill(self.pid, number)  # it is not reaped, so the number is its own
            while self.code is None and time.monotonic() < by_s:
                time.sleep(_PAUSE_S)
                reap()


class LinkClient:
    """One connection at a time.

    Args:
        path: where the sidecar listens.

    Attributes:
        patience: says why there is no lift yet.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._link: socket | None = None
        self._lines = LineReader()
        self.patience = Patience(path)

    @property
    def is_open(self) -> bool:
        """Say whether there is a connection."""
        return self._link is not None

    @property
    def descriptor(self) -> int:
        """Return what can be read when the agent has said something; -1 without a connection."""
        return -1 if self._link is None else self._link.fileno()

    def connect(self) -> socket | None:
        """Return a socket to the sidecar, None while it does not listen."""
        link = socket(AF_UNIX, SOCK_STREAM)
        try:
            with reachable(self._path) as address:
                link.connect(address)
        except OSError as error:
            link.close()
            self.patience.note(f"no agent there yet ({error.strerror})")
            return None
        return link

    def open(self, link: socket, words: list[Message]) -> None:
        """Talk by this socket from now on, beginning with these words; there is no connection if it has ended."""
        try:
            link.sendall(b"".join(map(line_of, words)))
        except OSError:
            link.close()
            return
        link.setblocking(False)
        self._link, self._lines = link, LineReader()

    def read(self) -> tuple[list[Message], bool]:
        """Return what the agent said, and whether it can say more; one that does not keep to the lines cannot."""
        if self._link is None:
            return [], True
        try:
            received = self._link.recv(READ_BYTES_MAX)
            return self._lines.feed(received), bool(received)
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        except RemoteProtocolError as error:
            self.patience.refuse(str(error))
            return [], False

    def tell(self, message: Message) -> None:
        """Say something to the agent, if it is there."""
        if self._link is not None:
            try:  # noqa: SIM105 - contextlib is dear
                self._link.sendall(line_of(message))
            except OSError:
                pass  # gone: the end of the link says so

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None
