"""
One watch: its lines, and every way in which it can end, by name.

The agent and the controller's informers share this file, so that both react to a 410 in the same way. Decoding is left
to the caller: the agent reads a Table cell, the informer a whole object.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

from inplace.common.bare.record import record
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Expired, ServerError, Throttled, Unauthorized, check_answer
from inplace.common.kube.http.request import (
    GarbledError,
    Request,
    Response,
    Transport,
    TransportError,
    TransportTimeoutError,
)

LINE_BYTES_MAX = 16 * 1024 * 1024  # ten times the largest object etcd stores by default (1.5 MiB)
ERROR_BYTES_MAX = 64 * 1024  # of a refusal's body
HEADERS_TIMEOUT_S = 30.0  # a consistent watch may wait 3 s for the cache, and APF may queue it for 15 s
INACTIVITY_S = 150.0  # bookmarks come about once a minute; two and a half without a byte is a dead connection


@record
class Closed:
    """The server ended the watch in good order; resume from the last resourceVersion at once."""


@record
class Gone:
    """410: our resourceVersion is no longer in its history; read fresh state."""


@record
class Busy:
    """429 or 5xx: come back after `after_s` seconds plus backoff."""

    after_s: float
    error: ApiError


@record
class Broken:
    """Refused, reset, silent or garbled; resume after backoff."""

    error: TransportError


@record
class Unauthenticated:
    """401: the credentials ran out; read them again, then resume after backoff."""

    error: Unauthorized


@record
class Denied:
    """403, 404, 400 or another answer that waiting may cure but retrying fast will not."""

    error: ApiError


WatchEnding = Closed | Gone | Busy | Broken | Unauthenticated | Denied


def ending_of(error: ApiError | TransportError) -> WatchEnding:
    """Name the ending that an exception of `watch_lines`, or an ERROR event, stands for."""
    match error:
        case Expired():
            return Gone()
        case Throttled() | ServerError():
            return Busy(error.after_s, error)
        case Unauthorized():
            return Unauthenticated(error)
        case ApiError():
            return Denied(error)
        case _:
            return Broken(error)


async def watch_lines(
    transport: Transport,
    request: Request,
    *,
    clock: Clock,
    inactivity_s: float = INACTIVITY_S,
    on_open: Callable[[], None] = lambda: None,
    rest_s: Callable[[int], float] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield each line of a watch; return when the server ends it in good order.

    Close the iterator (`contextlib.aclosing`) when you leave early: it holds a connection.
    `on_open` is called when the server took the watch, BEFORE any line. `rest_s` is asked when lines that came together
    were yielded, with the size of that read: for so many seconds nothing is read, so that more come together.

    Raises:
        ApiError: the server refused the watch.
        TransportError: the connection broke, or nothing came for `inactivity_s` seconds.
        GarbledError: a line is too long, or the stream ended inside one.
    """
    async with transport.stream(request, timeout_s=HEADERS_TIMEOUT_S) as stream:
        chunks = stream.chunks()
        if stream.status >= 300 or "html" in stream.headers.get("content-type", ""):
            body = await _error_body(chunks, clock)
            check_answer(Response(stream.status, stream.headers, body))
        on_open()
        rest = bytearray()  # of a line whose end has not arrived; appended to, so that a long line costs no copies
        while (chunk := await _next(chunks, clock, inactivity_s)) is not None:
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines = (bytes(rest + head) if rest else head).split(b"\n")
                rest.clear()
                for line in lines:
                    if line and not line.isspace():
                        yield line
                if rest_s is not None:  # never after a piece of a line: its rest follows at once
                    await clock.sleep(rest_s(len(chunk)))
            rest += tail
            if len(rest) > LINE_BYTES_MAX:
                raise GarbledError(f"a watch line passed {LINE_BYTES_MAX} bytes without an end")
        if rest.strip():
            raise GarbledError(f"the watch ended inside a line: {bytes(rest[:80])!r}")


async def _error_body(chunks: AsyncIterator[bytes], clock: Clock) -> bytes:
    """Return the body of a refusal, cut off where no Status is longer."""
    body = bytearray()
    while len(body) < ERROR_BYTES_MAX and (chunk := await _next(chunks, clock, HEADERS_TIMEOUT_S)) is not None:
        body += chunk
    return bytes(body[:ERROR_BYTES_MAX])


async def _next(chunks: AsyncIterator[bytes], clock: Clock, inactivity_s: float) -> bytes | None:
    """Return the next chunk, None at the end."""
    try:
        async with clock.timeout(inactivity_s):
            return await anext(chunks, None)
    except TimeoutError as error:
        raise TransportTimeoutError(f"the watch was silent for {inactivity_s:g} s") from error
