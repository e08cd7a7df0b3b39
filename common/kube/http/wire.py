"""
One HTTP/1.1 client connection as bytes in and bytes out, with no I/O of its own.

The owner of the socket drives it: call `send` with a request and write the returned bytes; then call `poll`, and
whenever it says NEED_BYTES, call `receive` with the bytes that were read (b"" at the end of the stream).

Why not h11: importing it takes as long as starting the interpreter, 5,000 times, and this client needs only one request
at a time to one kind of server. It reads strictly: it refuses everything that two readers could understand differently
(two lengths, a length beside chunks, a bare line feed, obsolete folding). The tests compare it with h11. Source: RFC
9112, sections 2.2, 4, 5, 6 and 7.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.kube.http.request import Request, TransportError

HEAD_BYTES_MAX: Final = 64 * 1024  # of one answer's head; the API server's are some 500 bytes
CHUNK_LINE_BYTES_MAX: Final = 256  # a chunk's size and extensions; the API server sends no extensions
_LENGTH_DIGITS_MAX: Final = 15
_BODILESS: Final = (204, 304)  # whatever their headers say of the body that another answer would have
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_TOKEN: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BAD_IN_VALUE: Final = frozenset((*range(9), *range(10, 32), 127))  # control characters but the tab


@record
class Head:
    """The first part of an answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class Poll(Enum):
    """What `Http1Wire.poll` says when it has neither a head nor bytes."""

    NEED_BYTES = "need bytes"  # read from the socket, call `receive`, poll again
    END = "end"  # the answer is complete


class _Reading(Enum):
    """What the next bytes are."""

    NOTHING = "nothing"  # no request is out
    HEAD = "head"
    LENGTH = "length"  # a body of a known length
    CHUNK_SIZE = "chunk size"
    CHUNK = "chunk"
    CHUNK_END = "chunk end"  # the line end after a chunk
    TRAILER = "trailer"
    TO_CLOSE = "to close"  # a body that ends with the connection


class Http1Wire:
    """Turn requests into bytes and bytes into answers, one exchange at a time.

    Args:
        authority: the Host header.
        path_prefix: put in front of every request's path.
    """

    def __init__(self, authority: str, path_prefix: str = "") -> None:
        self._authority = authority
        self._path_prefix = path_prefix
        self._bytes = bytearray()
        self._ended = False  # the peer sends no more
        self._reading = _Reading.NOTHING
        self._left = 0  # bytes that have not come of the body or the chunk, or that the trailer may still have
        self._closes = False  # the server will close after this answer

    @property
    def is_reusable(self) -> bool:
        """Say whether no exchange is under way and another may begin."""
        return self._reading is _Reading.NOTHING and not (self._closes or self._ended or self._bytes)

    def send(self, request: Request, identity: Sequence[tuple[str, str]] = ()) -> bytes:
        """Begin an exchange; return the bytes of the whole request, with the headers that say who we are.

        Raises:
            TransportError: a header or the path would break the request apart (our mistake; nothing is sent).
        """
        assert self._reading is _Reading.NOTHING, f"a request while {self._reading.value} of the last is expected"
        headers = {"host": self._authority, **request.headers}
        if request.body:
            headers["content-length"] = str(len(request.body))
        lines = [f"{request.method} {self._path_prefix}{request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (*headers.items(), *identity)]
        if lines[0].count(" ") != 2 or not all(line.isascii() and line.isprintable() for line in lines):
            raise TransportError(
                f"cannot send {request.method} {request.path}: expected printable ASCII without line ends", sent=False
            )
        self._reading = _Reading.HEAD
        return "\r\n".join((*lines, "\r\n")).encode("ascii") + request.body

    def receive(self, received: bytes) -> None:
        """Take bytes from the socket, b"" at its end."""
        self._bytes += received
        self._ended = self._ended or not received

    def poll(self) -> Head | bytes | Poll:
        """Return the next part of the answer.

        Raises:
            TransportError: the bytes are no HTTP/1.1 answer, or end too early (not our fault).
        """
        while True:
            before = self._reading
            part = self._next()
            if part is not None:
                return part
            if self._reading is before:  # nothing more can be read from these bytes
                if self._ended:
                    raise _unexpected(f"the connection's end instead of the answer's {before.value}")
                return Poll.NEED_BYTES

    def _next(self) -> Head | bytes | Poll | None:
        """Read one part; None when it is no part of the answer, or has not come whole."""
        match self._reading:
            case _Reading.NOTHING:
                raise _unexpected("an answer without a request")
            case _Reading.HEAD:
                return self._read_head()
            case _Reading.LENGTH | _Reading.CHUNK | _Reading.TO_CLOSE:
                return self._read_body()
            case _Reading.CHUNK_SIZE:
                if (chunks := self._read_whole_chunks()) is not None:
                    return chunks
                self._read_chunk_size()
            case _Reading.CHUNK_END:
                if (line := self._line(0)) is not None:
                    self._reading = _Reading.CHUNK_SIZE
            case _Reading.TRAILER:
                while (line := self._line(self._left)) is not None:
                    self._left -= len(line)
                    if not line:
                        return self._end()
                    _headers_of([line])  # a trailer that is none is a sign that the two ends count differently
        return None

    def _read_head(self) -> Head | None:
        while (end := self._bytes.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)) >= 0:
            first, *lines = bytes(self._bytes[:end]).split(b"\r\n")
            del self._bytes[: end + 4]
            status, old = _status_of(first)
            headers = _headers_of(lines)
            self._frame(status, headers, old)
            if status >= 200:
                return Head(status, headers)
            self._reading = _Reading.HEAD  # 100 Continue and its like are no answer
        if len(self._bytes) >= HEAD_BYTES_MAX or not b"HTTP/1.".startswith(self._bytes[:7]):
            raise _unexpected(f"{bytes(self._bytes[:80])!r}")
        return None

    def _frame(self, status: int, headers: dict[str, str], old: bool) -> None:
        """Find out how the body ends (RFC 9112, 6.3)."""
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        self._closes = old or "close" in _words(headers.get("connection", ""))
        if coding is not None:
            if coding.lower() != "chunked" or length is not None or old:
                raise _unexpected(f"transfer-encoding {coding!r}, content-length {length!r}")
            self._reading = _Reading.CHUNK_SIZE
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
                raise _unexpected(f"content-length {length!r}")
            self._reading, self._left = _Reading.LENGTH, int(length)
        elif status not in _BODILESS:
            self._reading, self._closes = _Reading.TO_CLOSE, True
        if status in _BODILESS:
            self._reading, self._left = _Reading.LENGTH, 0

    def _read_body(self) -> bytes | Poll | None:
        """Return what came of the body, or go on to what follows it."""
        if self._reading is _Reading.TO_CLOSE:
            self._left = len(self._bytes)
            if not self._left:
                return self._end() if self._ended else None
        if self._left == 0:
            if self._reading is _Reading.LENGTH:
                return self._end()
            self._reading = _Reading.CHUNK_END
            return None
        part = bytes(self._bytes[: self._left])
        del self._bytes[: self._left]
        self._left -= len(part)
        return part or None

    def _read_whole_chunks(self) -> bytes | None:
        """Take all whole chunks off the front together, as a herd's events come; None when there is none.

        Whatever is not plainly a chunk is left to the reading step by step, which judges it.
        """
        received, at, parts = bytes(self._bytes), 0, []
        while (size_end := received.find(b"\r\n", at, at + _LENGTH_DIGITS_MAX + 2)) - at > 0:
            digits, begin = received[at:size_end], size_end + 2
            end = begin + int(digits, 16) if _HEX.issuperset(digits) else begin
            if end == begin or received[end : end + 2] != b"\r\n":
                break
            parts.append(received[begin:end])
            at = end + 2
        del self._bytes[:at]
        return b"".join(parts) or None

    def _read_chunk_size(self) -> None:
        if (line := self._line(CHUNK_LINE_BYTES_MAX)) is None:
            return
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not digits or not set(digits) <= _HEX or len(digits) > _LENGTH_DIGITS_MAX:
            raise _unexpected(f"a chunk's size {line[:40]!r}")
        self._left = int(digits, 16)
        self._reading = _Reading.CHUNK
        if self._left == 0:
            self._reading, self._left = _Reading.TRAILER, HEAD_BYTES_MAX

    def _line(self, bytes_max: int) -> bytes | None:
        """Take one line of at most `bytes_max` bytes off the front; None when it has not come whole."""
        end = self._bytes.find(b"\r\n", 0, bytes_max + 2)
        if end < 0:
            if len(self._bytes) >= bytes_max + 2 or not b"\r\n".startswith(self._bytes[bytes_max:]):
                raise _unexpected(f"{bytes(self._bytes[:40])!r} where a line of at most {bytes_max} bytes is due")
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 2]
        return line

    def _end(self) -> Poll:
        self._reading = _Reading.NOTHING
        return Poll.END


def _status_of(line: bytes) -> tuple[int, bool]:
    """Return the status, and whether the server is an HTTP/1.0 one, which closes after each answer."""
    version, _, rest = line.partition(b" ")
    digits = rest[:3]
    is_known = version in (b"HTTP/1.1", b"HTTP/1.0") and not set(line) & _BAD_IN_VALUE
    if not is_known or not digits.isdigit() or len(digits) < 3 or rest[3:4] not in b" ":
        raise _unexpected(f"{line[:80]!r}")
    status = int(digits)
    if not 100 <= status <= 599 or status == 101:
        raise _unexpected(f"status {status}")
    return status, version == b"HTTP/1.0"


def _headers_of(lines: list[bytes]) -> dict[str, str]:
    """Return the header fields; a name that comes again is joined with a comma, a length may not."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or not name or not set(name) <= _TOKEN or set(value) & _BAD_IN_VALUE:
            raise _unexpected(f"the header line {line[:80]!r}")
        key, text = name.decode("ascii").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]


def _unexpected(seen: str) -> TransportError:
    return TransportError(f"expected an HTTP/1.1 answer, saw {seen}")
