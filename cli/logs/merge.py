"""
Merge many logs into one stream in the order of time, within the bounds of `reading`.

Each log has a share of the memory. It is read until its share is full, and its stream is closed; when its lines are
used up it is read on. So 5,000 logs need no more streams than 32.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from inplace.cli.logs.container_log import ContainerLog
from inplace.cli.logs.instances import Instance
from inplace.cli.logs.lines import LogLine
from inplace.cli.logs.reading import BUFFER_BYTES, STREAMS_MAX, Reader, Wanted


@dataclass(slots=True)
class _Share:
    """The lines of one log that wait."""

    log: ContainerLog
    lines: deque[LogLine] = field(default_factory=deque)
    bytes: int = 0
    is_done: bool = False


async def merged(
    logs: Sequence[ContainerLog], wanted: Wanted, reader: Reader, *, buffer_bytes: int = BUFFER_BYTES
) -> AsyncGenerator[tuple[Instance, LogLine], None]:
    """Yield the lines of logs, the oldest first."""
    room = buffer_bytes // max(1, len(logs))
    shares = {id(log): _Share(log) for log in logs}

    async def fill(log: ContainerLog) -> None:
        share = shares[id(log)]
        async with reader.open(log) as lines:
            async for line in lines:
                if wanted.is_past(line):
                    break
                if wanted.has(line):
                    share.lines.append(line)
                    share.bytes += line.cost
                    if share.bytes >= room:
                        return
        share.is_done = True

    await reader.each(logs, fill)
    order = list(shares.values())
    heap = [(share.lines[0].at_ns, place) for place, share in enumerate(order) if share.lines]
    heapq.heapify(heap)
    while heap:
        _, place = heap[0]
        share = order[place]
        line = share.lines.popleft()
        share.bytes -= line.cost
        yield share.log.instance, line
        if not share.lines and not share.is_done:
            low = [one.log for one in order if not one.is_done and one is not share and one.bytes < room // 2]
            await reader.each([share.log, *low[: STREAMS_MAX - 1]], fill, is_told=False)
        if share.lines:
            heapq.heapreplace(heap, (share.lines[0].at_ns, place))
        else:
            heapq.heappop(heap)
