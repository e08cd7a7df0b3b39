"""Lines of a watch, and the name of each of its endings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import (
    RETRY_AFTER_S_MAX,
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    error_from_response,
    error_from_status,
)
from inplace.common.kube.http.request import (
    CertificateError,
    GarbledError,
    Request,
    Response,
    Stream,
    TransportError,
    TransportTimeoutError,
)
from inplace.common.kube.watch import (
    LINE_BYTES_MAX,
    Broken,
    Busy,
    Denied,
    Gone,
    Unauthenticated,
    WatchEnding,
    ending_of,
    watch_lines,
)


@dataclass
class Canned:
    """A transport and stream in one: yields prepared chunks, then ends, breaks or hangs."""

    parts: Sequence[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    breaks: bool = False
    open: bool = False

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Refuse: a watch is a stream."""
        raise NotImplementedError

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open the canned answer."""
        self.open = True
        try:
            yield self
        finally:
            self.open = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the parts."""
        for part in self.parts:
            yield part
        if self.breaks:
            raise TransportError("reset")
        if self.hangs:
            await asyncio.Event().wait()


def lines_of(canned: Canned, inactivity_s: float = 5.0) -> list[bytes]:
    """Return all lines of a watch, with no loop left running."""

    async def read() -> list[bytes]:
        watching = watch_lines(canned, Request("GET", "/"), clock=LoopClock(), inactivity_s=inactivity_s)
        async with aclosing(watching) as lines:
            return [line async for line in lines]

    found = asyncio.run(read())
    assert not canned.open
    return found


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip()), max_size=8),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_lines_are_the_same_wherever_the_chunks_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    """Cutting the stream anywhere, also inside a line and around empty ones, changes no line."""
    whole = b"".join(line + b"\n\n" for line in lines)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[start:end] for start, end in pairwise(edges)]
    assert lines_of(Canned(parts)) == lines


def test_a_watch_rests_after_lines_and_not_after_a_piece_of_one() -> None:
    """Between a read that ended a line and the next read the rest is slept; after a piece of a line there is none."""
    slept: list[float] = []

    class Clock(LoopClock):
        async def sleep(self, delay_s: float) -> None:
            slept.append(delay_s)

    async def read() -> list[bytes]:
        canned = Canned([b"one\ntw", b"o", b"\nthree\n"])
        watching = watch_lines(canned, Request("GET", "/"), clock=Clock(), rest_s=float)
        async with aclosing(watching) as lines:
            return [line async for line in lines]

    assert asyncio.run(read()) == [b"one", b"two", b"three"]
    assert slept == [6.0, 7.0]  # of chunks of so many bytes


def test_half_a_line_at_the_end_is_garbled() -> None:
    """A stream that ends inside a line was cut."""
    with pytest.raises(GarbledError, match="inside a line: b'tail'"):
        lines_of(Canned([b"one\ntail"]))


def test_an_endless_line_is_garbled() -> None:
    """A line beyond the bound ends the watch as garbled."""
    with pytest.raises(GarbledError, match=f"passed {LINE_BYTES_MAX} bytes"):
        lines_of(Canned([b"x" * (LINE_BYTES_MAX // 4)] * 5, hangs=True))


def test_silence_is_a_timeout() -> None:
    """A watch without a byte for the inactivity bound ends with a timeout."""
    with pytest.raises(TransportTimeoutError, match=r"silent for 0\.01 s"):
        lines_of(Canned([b"one\n"], hangs=True), inactivity_s=0.01)


def test_a_break_is_a_transport_error() -> None:
    """The transport's error is raised unchanged."""
    with pytest.raises(TransportError, match="reset"):
        lines_of(Canned([b"one\n"], breaks=True))


def test_a_refusal_is_an_api_error_with_the_servers_words() -> None:
    """A status of 400 or more raises the error its body names."""
    body = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'
    with pytest.raises(Forbidden, match="no"):
        lines_of(Canned([body], status=403))


def test_an_endless_refusal_is_cut_off() -> None:
    """A refusal whose body never ends is read up to a bound."""
    with pytest.raises(ServerError):
        lines_of(Canned([b"x" * 1024] * 65, status=500, hangs=True))


def test_leaving_early_closes_the_stream() -> None:
    """Closing the iterator gives the connection back."""
    canned = Canned([b"one\ntwo\n"], hangs=True)

    async def first() -> bytes:
        async with aclosing(watch_lines(canned, Request("GET", "/"), clock=LoopClock())) as lines:
            return await anext(lines)

    assert asyncio.run(first()) == b"one"
    assert not canned.open


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (Expired(410, "Expired", ""), Gone),
        (Throttled(429, "", ""), Busy),
        (ServerError(503, "", ""), Busy),
        (Unauthorized(401, "", ""), Unauthenticated),
        (Forbidden(403, "", ""), Denied),
        (NotFound(404, "", ""), Denied),
        (BadRequest(400, "", ""), Denied),
        (Invalid(422, "", ""), Denied),
        (ApiError(418, "", ""), Denied),
        (TransportError("reset"), Broken),
        (TransportTimeoutError("silent"), Broken),
        (CertificateError("whose?"), Broken),
        (GarbledError("what?"), Broken),
    ],
)
def test_every_error_has_an_ending(error: ApiError | TransportError, ending: type[WatchEnding]) -> None:
    """Every error has its ending, as in this table."""
    assert type(ending_of(error)) is ending


@pytest.mark.parametrize(
    ("headers", "body", "after_s"),
    [
        ({"retry-after": "7"}, b"{}", 7.0),
        ({}, b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}', 3.0),
        ({"retry-after": "1"}, b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}', 3.0),
        ({"retry-after": "Fri, 01 Jan 2027 00:00:00 GMT"}, b"", 0.0),
        ({"retry-after": "99999999999"}, b"", RETRY_AFTER_S_MAX),
        ({}, b'{"kind":"Status","code":429,"details":"soon"}', 0.0),
        ({}, b'{"kind":"Status","code":429,"details":{"retryAfterSeconds":"soon"}}', 0.0),
    ],
)
def test_retry_after_is_read_from_header_and_status(headers: dict[str, str], body: bytes, after_s: float) -> None:
    """The larger of header and Status is the floor, bounded; garbage counts as none."""
    error = error_from_response(Response(429, headers, body))
    assert isinstance(error, Throttled)
    assert error.after_s == after_s


@pytest.mark.parametrize("code", ["410", None, -1, [], {}])
def test_a_malformed_status_still_makes_an_error(code: object) -> None:
    """A Status whose code is nonsense falls back on the HTTP status, then on 500."""
    assert isinstance(error_from_status({"code": code}, 404), NotFound)
    assert isinstance(error_from_status({"code": code}), ServerError)
