"""
Serve a few pages over HTTP at almost no cost for the program, however many clients there are.

Any Pod may be able to connect. So a port has a fixed number of seats (`common.connection_limiter`: a new connection
pushes out the oldest one of the source that has most). It accepts a bounded number of connections a second and leaves
the others in the kernel's queue, answers one request per connection, and ends an exchange that takes long. Memory is
bounded: a file descriptor and a request of 8 KiB for each seat; an answer is sent without copying it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup

from inplace.common.connection_limiter import ConnectionLimiter
from inplace.common.kube.clock import Clock

REQUEST_BYTES_MAX: Final = 8192  # kubelet's probe is 150 bytes, a scraper's request some 500
REQUEST_S_MAX: Final = 5.0  # until the request is there; kubelet and Prometheus send it at once
ANSWER_S_MAX: Final = 10.0  # Prometheus' own default for a scrape; rendering is part of it
SEATS: Final = 16  # a kubelet has one, a scraper two; two Prometheus and a curious person
SEATS_PER_SOURCE: Final = 8
ACCEPT_S: Final = 0.005  # between two looks for newcomers
ACCEPT_MAX: Final = SEATS_PER_SOURCE  # newcomers of one look: each has its turn before the next push it out
BACKLOG: Final = 128  # these wait in the kernel, without a descriptor of ours; 80 ms at the pace above
NO_DESCRIPTORS_S: Final = 0.5  # when accepting fails, before the next try

TEXT: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What a page says."""

    status: HTTPStatus
    body: bytes
    kind: str = TEXT


Page = Callable[[], Awaitable[Answer]]


class PageServer:
    """Answers GET of some paths on one port; everything else is 404.

    Args:
        port: 0 picks one.
        pages: by path.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page], clock: Clock) -> None:
        self._host = host
        self._port = port
        self._pages = {path.encode(): page for path, page in pages.items()}
        self._clock = clock
        self._seats: ConnectionLimiter[CancelScope] = ConnectionLimiter(SEATS, SEATS_PER_SOURCE)
        self.bound_port: int | None = None

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with socket.create_server((self._host, self._port), family=family, backlog=BACKLOG) as listener:
            listener.setblocking(False)
            self.bound_port = listener.getsockname()[1]
            async with create_task_group() as exchanges:
                while True:
                    await self._accept(listener, exchanges)
                    await self._clock.sleep(ACCEPT_S)

    async def _accept(self, listener: socket.socket, exchanges: TaskGroup) -> None:
        """Wait for a newcomer; seat it, and those who wait behind it."""
        try:
            self._seat(await asyncio.get_running_loop().sock_accept(listener), exchanges)
            for _ in range(ACCEPT_MAX - 1):
                self._seat(listener.accept(), exchanges)
        except BlockingIOError:
            return  # nobody else waits
        except OSError:  # the client left, or the process has no descriptor free
            await self._clock.sleep(NO_DESCRIPTORS_S)

    def _seat(self, newcomer: tuple[socket.socket, Any], exchanges: TaskGroup) -> None:
        connection, address = newcomer
        connection.setblocking(False)
        seat = CancelScope()
        leaver = self._seats.take(seat, address[0])
        if leaver is not None:
            leaver.cancel()
        exchanges.start_soon(self._sit, seat, connection, name="exchange")

    async def _sit(self, seat: CancelScope, connection: socket.socket) -> None:
        """Answer one request, unless somebody else needs the seat."""
        with connection, seat:
            await self._exchange(connection)
        self._seats.leave(seat)

    async def _exchange(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with self._clock.timeout(REQUEST_S_MAX):
                request = await _request_line(connection)
            async with self._clock.timeout(ANSWER_S_MAX):
                status, body, kind = await self._answer(request)
                head = (
                    f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                await loop.sock_sendall(connection, head.encode())
                await loop.sock_sendall(connection, body)
        except (OSError, TimeoutError):
            return  # the client's connection, the client's problem

    async def _answer(self, request: list[bytes]) -> Answer:
        match request:
            case [b"GET", path, _] if (page := self._pages.get(path.partition(b"?")[0])) is not None:
                return await page()
            case _:
                paths = " or ".join(sorted(path.decode() for path in self._pages))
                return Answer(HTTPStatus.NOT_FOUND, f"expected GET {paths}".encode())


async def _request_line(connection: socket.socket) -> list[bytes]:
    """Return the words of the first line, once the whole head is there.

    Raises:
        OSError: the client went away, or sends more than a request.
    """
    loop, head = asyncio.get_running_loop(), b""
    while b"\r\n\r\n" not in head:
        more = await loop.sock_recv(connection, REQUEST_BYTES_MAX - len(head))
        if not more:  # also asked for none: the head is as long as it may be
            raise OSError(f"expected a request of at most {REQUEST_BYTES_MAX} bytes, saw {len(head)}")
        head += more
    return head.split(b"\r\n", 1)[0].split()


def probes(is_ready: Callable[[], str | None]) -> Mapping[str, Page]:
    """Return the pages that kubelet asks for, /healthz and /readyz; `is_ready` says None when ready, else why not.

    Healthy means that the event loop answers. An unreachable API server does not make the controller unhealthy: a
    restart would not help and would lose the caches. Ready means leading with full caches, or standing by.
    """

    async def healthz() -> Answer:
        return Answer(HTTPStatus.OK, b"ok")

    async def readyz() -> Answer:
        why_not = is_ready()
        if why_not is None:
            return Answer(HTTPStatus.OK, b"ok")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, why_not.encode())

    return {"/healthz": healthz, "/readyz": readyz}
