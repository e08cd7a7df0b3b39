"""
Answer a request for a log as kubelet does: the last lines, since a time, with time stamps, so many bytes, on and on.

Source: k8s.io/kubernetes pkg/kubelet/kuberuntime/logs/logs.go, ReadLogs: the last lines are cut out first, then those
before the time are left out, then bytes are counted. Memory holds the last lines only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime

from inplace.common.kube.clock import Clock
from inplace.simulator.apiserver.options import LogRequest
from inplace.simulator.cluster.container_log import NS, LogPiece, OpenLog

CHUNK_BYTES = 65536
FOLLOW_S = 0.1


def stamp(at_ns: int) -> str:
    """Return a time as kubelet writes it before a line: RFC 3339 with nine digits."""
    seconds, nanoseconds = divmod(at_ns, NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


async def read_log(log: OpenLog, request: LogRequest, clock: Clock) -> AsyncIterator[bytes]:
    """Yield the answer in chunks; with `follow`, until the container has ended. Closes the log."""
    left = request.limit_bytes
    shown = _Shown(request, int(clock.wall_s() * NS))
    try:
        pieces: Iterable[LogPiece] = log.pieces()
        if request.tail_lines is not None:
            pieces = deque(pieces, maxlen=request.tail_lines)
        while True:
            is_over = log.is_over  # BEFORE the reading
            for chunk in _joined(shown.texts(pieces)):
                cut = chunk if left is None else chunk[:left]
                yield cut
                if left is not None and (left := left - len(cut)) <= 0:
                    return
            if not request.follow or is_over:
                return
            await clock.sleep(FOLLOW_S)
            pieces = log.pieces()
    finally:
        log.close()


class _Shown:
    """What a request wants to see of each piece."""

    def __init__(self, request: LogRequest, now_ns: int) -> None:
        self._timestamps = request.timestamps
        self._since_ns = request.since_ns
        if request.since_seconds is not None:
            self._since_ns = now_ns - request.since_seconds * NS

    def texts(self, pieces: Iterable[LogPiece]) -> Iterator[bytes]:
        for piece in pieces:
            if self._since_ns is not None and piece.at_ns < self._since_ns:
                continue
            if self._timestamps and piece.begins:
                yield f"{stamp(piece.at_ns)} ".encode()
            yield piece.text


def _joined(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield texts in larger chunks."""
    chunk = bytearray()
    for text in texts:
        chunk += text
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
