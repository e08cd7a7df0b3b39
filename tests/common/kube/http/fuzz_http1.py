"""
Random answers, cut anywhere, read by `common.kube.http.wire` and by h11.

    python -m tests.common.kube.http.fuzz_http1 --cases 450000

For each answer: our reader's result does not depend on the cuts; an answer that it accepts, h11 reads the same; a
connection that it would use again, h11 would too. `make soak` runs it at full size, a test at a small one.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from random import Random
from typing import NamedTuple

import h11

from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.http.wire import Head, Http1Wire, Poll

STATUSES = (b"200 OK", b"200 OK", b"204 No Content", b"304 Not Modified", b"404 Not Found", b"100 Continue", b"101 Up")
LINES = (
    *(b"content-length: 4", b"content-length: 4", b"content-length: 0", b"Content-Length: 4, 4", b"content-length: -1"),
    *(b"transfer-encoding: chunked", b"transfer-encoding: chunked", b"Transfer-Encoding: gzip, chunked"),
    *(b"connection: close", b"connection: keep-alive", b"x: y", b"x : y", b"x:\tz", b" folded", b": empty", b"x"),
)
BODIES = (
    *(b"spam", b"spam", b"", b"4\r\nspam\r\n0\r\n\r\n", b"4\r\nspam\r\n4;a=b\r\neggs\r\n0\r\n\r\n", b"0\r\n\r\n"),
    *(b"4\r\nspam\r\n0\r\nx: y\r\n\r\n", b"4\r\nspam\r\n0\r\nno trailer\r\n\r\n", b"0\r\n folded\r\n\r\n", b"zz\r\n"),
    *(b"4\r\nspam\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n", b"4\r\nspamX\r\n0\r\n\r\n", b"00000004\r\nspam\r\n0\r\n\r\n"),
)
NOISE = (b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b";", b"0", b"4", b"\xff", b"HTTP/1.1 200 OK\r\n\r\n")


class Reading(NamedTuple):
    """A reader's result for an answer."""

    status: int
    body: bytes
    reusable: bool


def random_answer(rng: Random) -> bytes:
    """Return a nearly valid answer: often whole, sometimes with a few wrong bytes."""
    answer = b""
    for _ in range(rng.choice((1, 1, 1, 2))):
        version = rng.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"))
        head = [version + b" " + rng.choice(STATUSES), *rng.choices(LINES, k=rng.randrange(4))]
        answer += b"\r\n".join(head) + b"\r\n\r\n" + rng.choice(BODIES)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at = rng.randrange(len(answer) + 1)
        answer = answer[:at] + rng.choice(NOISE) + answer[at + rng.randrange(3) :]
    return answer


def cut(rng: Random, answer: bytes) -> list[bytes]:
    """Return the answer in pieces of random sizes."""
    edges = sorted({0, len(answer), *(rng.randrange(len(answer) + 1) for _ in range(rng.randrange(6)))})
    return [answer[start:end] for start, end in pairwise(edges)]


def read_by_us(pieces: list[bytes]) -> Reading | None:
    """Return our wire's reading of an answer, None when it is refused or incomplete."""
    wire = Http1Wire("h")
    wire.send(Request("GET", "/"))
    status, body, waiting = 0, b"", [*pieces, b""]
    try:
        while (part := wire.poll()) is not Poll.END:
            if part is Poll.NEED_BYTES:
                wire.receive(waiting.pop(0))
            elif isinstance(part, Head):
                status = part.status
            else:
                assert isinstance(part, bytes)
                body += part
    except TransportError:
        return None
    for piece in filter(None, waiting):
        wire.receive(piece)
    return Reading(status, body, wire.is_reusable)


def read_by_h11(pieces: list[bytes]) -> Reading | None:
    """Return h11's reading of an answer."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    status, body, waiting = 0, b"", [*pieces, b""]
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(waiting.pop(0))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None
    left = connection.trailing_data[0] or any(waiting)
    return Reading(status, body, connection.their_state is h11.DONE and not left)


def disagreement(rng: Random, answer: bytes) -> str:
    """Return the error in our reading of an answer, "" when there is none."""
    whole, pieces = read_by_us([answer] if answer else []), cut(rng, answer)
    if (cut_up := read_by_us(pieces)) != whole:
        return f"whole {whole}, in pieces {pieces} {cut_up}"
    theirs = read_by_h11([answer] if answer else [])
    if whole is not None and (theirs is None or (whole.status, whole.body) != (theirs.status, theirs.body)):
        return f"ours {whole}, h11's {theirs}"
    if whole is not None and theirs is not None and whole.reusable and not theirs.reusable:
        return f"ours would use the connection again, h11 would not: {theirs}"
    return ""


def fuzz(cases: int, seed: int) -> tuple[int, list[str]]:
    """Read `cases` answers; return how many we accepted, and each error with its seed."""
    rng, taken, wrong = Random(seed), 0, []
    for case in range(cases):
        answer = random_answer(rng)
        if problem := disagreement(rng, answer):
            wrong.append(f"case {case} of seed {seed}: {answer!r}: {problem}")
        taken += read_by_us([answer]) is not None
    return taken, wrong


def main() -> int:
    """Fuzz from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=450_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    options = parser.parse_args()
    taken, wrong = fuzz(options.cases, options.seed)
    print(f"{options.cases} answers of seed {options.seed}: {taken} taken, {len(wrong)} read differently")
    print(*wrong[:20], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
