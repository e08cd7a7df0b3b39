"""Cut a log to its last lines; memory holds those lines only."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator


async def tail(pieces: AsyncIterator[bytes], lines_max: int | None) -> AsyncIterator[bytes]:
    """Yield the last lines of a finished log, or all lines when no number is given."""
    if lines_max is None:
        async for piece in pieces:
            yield piece
        return
    kept: deque[bytes] = deque(maxlen=lines_max)
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        kept.extend(line + b"\n" for line in lines)
    if rest:
        kept.append(rest)
    for line in kept:
        yield line
