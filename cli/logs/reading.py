"""
Read many logs within bounds: so many streams, so many bytes, and a note of each log that cannot be read.

A log that cannot be read never ends the command, except where the right to read logs is missing. `merged` gives each
log a share of the memory: a log is read until its share is full, and its stream is closed; when its lines are used up
it is read on. So 5,000 logs need no more streams than 32.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from anyio import create_task_group

from inplace.cli.connection import Connection
from inplace.cli.logs.container_log import ContainerLog, Instance, UnreadableError
from inplace.cli.logs.lines import NS, LogLine, Tail, Tails
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.terminal.moments import count_text, names_text
from inplace.cli.terminal.visible import one_line
from inplace.common.bare.record import record, replace
from inplace.common.kube.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized
from inplace.common.kube.http.request import TransportError

STREAMS_MAX: Final = 32  # logs that are read at once: each is a connection, and a kubelet's work
BUFFER_BYTES: Final = 64 * 1024 * 1024  # lines that wait to be printed
LOGS_MAX: Final = 16_384  # of one command: with more of them the share of each is below 4 KiB
NAMES_MAX: Final = 3  # Pods in one note
REASON_CHARS_MAX: Final = 200
TOLD: Final = b"announcement_accepted"  # an agent tells tails right behind it
TOLD_S_MAX: Final = 5.0  # a Pod that restarts just now: its new agent has not announced yet
TOLD_PAUSE_S: Final = 0.5
LOST: Final = (
    "kubelet removed the log of its earlier runs with their container, and no agent kept their tails; a log shipper "
    "or `inplace logs -f` keeps them (docs/worker-logs.md)"
)
GONE: Final = "the Pod is gone, and its log with it; `inplace history` has the last line of each failure"


@record
class Wanted:
    """Which lines are wanted.

    Args:
        epoch: None is all.
        pattern: is searched in each line; None is all.
        since_ns: older ones are not, Unix time.
    """

    epoch: int | None = None
    pattern: re.Pattern[str] | None = None
    since_ns: int = 0

    def has(self, line: LogLine) -> bool:
        """Say whether a line is."""
        if self.epoch is not None and line.epoch != self.epoch:
            return False
        return self.pattern is None or self.pattern.search(line.decoded()) is not None

    def may_have(self, instance: Instance) -> bool:
        """Say whether a log may have such a line."""
        return instance.ended_s is None or (instance.ended_s + 1) * NS >= self.since_ns

    def is_past(self, line: LogLine) -> bool:
        """Say whether no line behind this one is."""
        return self.epoch is not None and line.epoch is not None and line.epoch > self.epoch


@dataclass(slots=True)
class Notes:
    """What could not be read: for each reason, of which Pods."""

    _names: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, instance: Instance, error: Exception) -> None:
        """Note why a log could not be read.

        Raises:
            RefusalError: none can.
        """
        match error:
            case Forbidden():
                cure = "ask for the right `get` on `pods/log` in this namespace"
                raise RefusalError(f"not allowed: {error.message}; {cure}", CliExit.NOT_ALLOWED) from error
            case Unauthorized():
                raise error
            case NotFound():
                reason = GONE
            case BadRequest() if instance.is_previous:
                return  # kubelet has removed it, as it may
            case ApiError():
                reason = error.message.replace(f'"{instance.pod}"', "").replace(instance.pod, "…")
            case _:
                reason = str(error)
        self.say(instance.name, reason)

    def say(self, name: str, reason: str) -> None:
        """Note something of a Pod."""
        self._names[one_line(reason)[:REASON_CHARS_MAX]][name] = None

    def lines(self) -> list[str]:
        """Return a line for each reason, those of most Pods first."""
        found = sorted(self._names.items(), key=lambda one: -len(one[1]))
        return [f"not read: {names_text(list(names), NAMES_MAX)}: {reason}" for reason, names in found]


class Reader:
    """Reads logs, at most STREAMS_MAX at once.

    Args:
        connection: to the cluster.
        on_progress: told how many of how many logs have been read.
    """

    def __init__(self, connection: Connection, on_progress: Callable[[int, int], None]) -> None:
        self.connection = connection
        self.notes = Notes()
        self._on_progress = on_progress
        self._gate = asyncio.Semaphore(STREAMS_MAX)

    def log(self, instance: Instance, since_ns: int = 0) -> ContainerLog:
        """Return the log of an instance, which is not read yet; older lines are left out."""
        return ContainerLog(self.connection, instance, since_ns)

    @asynccontextmanager
    async def open(self, log: ContainerLog, *, follow: bool = False) -> AsyncIterator[AsyncGenerator[LogLine, None]]:
        """Wait for a stream, and give its lines; a log that cannot be read is noted, and ends the block."""
        async with self._gate:
            try:
                async with aclosing(log.lines(follow=follow)) as lines:
                    yield lines
            except (ApiError, TransportError, UnreadableError) as error:
                self.notes.add(log.instance, error)

    async def each(
        self, logs: Sequence[ContainerLog], read: Callable[[ContainerLog], Awaitable[None]], *, is_told: bool = True
    ) -> None:
        """Read logs side by side, and tell of the progress.

        Raises:
            RefusalError: none can be read.
        """
        refusals: list[RefusalError | Unauthorized] = []
        done = 0

        async def one(log: ContainerLog) -> None:
            nonlocal done
            try:
                await read(log)
            except (RefusalError, Unauthorized) as refusal:
                refusals.append(refusal)
                group.cancel_scope.cancel()
            done += 1
            if is_told:
                self._on_progress(done, len(logs))

        async with create_task_group() as group:
            for log in logs:
                group.start_soon(one, log)
        if refusals:
            raise refusals[0]

    async def read_agents(self, logs: Sequence[ContainerLog]) -> None:
        """Learn from the agents' own logs which marks of these logs can be true, and the tails of runs.

        An agent does not know whose tail it is where its Pod has several workers: the first container gets all.

        No worker writes there, but for a supervisor's: that tells its tails BEFORE its first mark, and its marks count.
        """

        async def read(of_one: Sequence[ContainerLog]) -> None:
            instance = of_one[-1].instance
            agent = replace(instance, container=instance.agent or instance.container, is_alone=False)
            by_s = asyncio.get_running_loop().time() + TOLD_S_MAX
            while True:
                lifts, tails, has_told = await self._read_agent(agent)
                if has_told or not instance.number or asyncio.get_running_loop().time() >= by_s:
                    break
                await asyncio.sleep(TOLD_PAUSE_S)
            for log in of_one:
                log.lifts, log.has_tails = lifts, bool(tails)
            for tail in tails:
                first = [log for log in of_one if log.instance.container == of_one[0].instance.container]
                began = [log for log in first if (log.instance.began_s or 0.0) * NS <= tail.began_ns]
                (began or first[:1])[-1].tails.append(tail)

        found: dict[str, list[ContainerLog]] = {}
        for log in filter(lambda log: log.instance.has_marks, logs):
            if log.instance.agent or log.instance.number:
                found.setdefault(log.instance.uid, []).append(log)
        present = {id(each[-1]): each for each in found.values()}
        await self.each([each[-1] for each in found.values()], lambda log: read(present[id(log)]), is_told=False)

    async def _read_agent(self, agent: Instance) -> tuple[dict[int, int], list[Tail], bool]:
        """Return when an agent lifted its barrier for each epoch, the tails, and whether it is done with telling."""
        lifts, tails, has_told = dict[int, int](), Tails(), False
        log = ContainerLog(self.connection, agent)
        log.hides_tails = False
        async with self.open(log) as lines:
            async for line in lines:
                if line.epoch is not None and not agent.agent:
                    break  # behind it the log is the worker's
                if tails.take(line.text):
                    continue
                has_told = has_told or TOLD in line.text
                if line.epoch is not None:
                    lifts.setdefault(line.epoch, line.at_ns)
            return lifts, tails.all(), has_told
        return lifts, tails.all(), True  # it cannot be read, which is noted

    def note_lost(self, logs: Sequence[ContainerLog]) -> None:
        """Note the containers that were started again, and of whose earlier runs there is nothing."""
        read = {(log.instance.uid, log.instance.container) for log in logs if log.is_previous and not log.is_lost}
        for log in logs:
            one = log.instance
            if one.number and not log.has_tails and (one.uid, one.container) not in read:
                self.notes.say(one.name, LOST)

    async def find_epochs(self, logs: Sequence[ContainerLog]) -> None:
        """Find the epoch in which each log with marks begins: its first mark says it, or the Pod if it has none."""

        async def find(log: ContainerLog) -> None:
            scan = log.again()
            began_ns: int | None = None  # the worker's first line
            async with self.open(scan) as lines:
                async for line in lines:
                    if line.epoch is not None:
                        # The runtime copies standard output and error on their own: on a busy node the mark of a
                        # container's first worker came behind that worker's first line.
                        is_behind = began_ns is not None and began_ns >= (line.written_ns or line.at_ns)
                        log.epoch = line.epoch if is_behind else line.epoch - 1 or None
                        return
                    if began_ns is None and line.written_ns is None:
                        began_ns = line.at_ns
                log.epoch = log.instance.epoch

        await self.each([log for log in logs if log.instance.has_marks], find)


def bounded(instances: Iterable[Instance]) -> list[Instance]:
    """Return instances whose logs one command can read.

    Raises:
        RefusalError: there are too many.
    """
    found = list(instances)
    if len(found) > LOGS_MAX:
        message = f"expected at most {LOGS_MAX:,} logs, saw {count_text(len(found), 'log')}: choose some with --rank"
        raise RefusalError(message)
    return found


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
