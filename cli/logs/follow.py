"""
Follow the logs of a group over its restarts: new instances of containers, and new Pods.

Watches of the JobSet and its Pods say which instances there are. FOLLOWED_MAX logs are followed, each by a stream. All
others are asked again every second, by the streams that are left. Lines wait half a second, so that those of all Pods
come in the order of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from anyio import create_task_group

from inplace.cli.beside import beside
from inplace.cli.logs.container_log import ContainerLog, Instance, Ranks, instances_of, ranks_of
from inplace.cli.logs.lines import LogLine
from inplace.cli.logs.printer import Printer
from inplace.cli.logs.reading import BUFFER_BYTES, LOGS_MAX, Reader, Wanted, bounded
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.status.watch import StatusWatch
from inplace.common.kube.errors import Unauthorized
from inplace.common.kube.resources import KubeObject

WAIT_S: Final = 0.5  # of a line, for older ones of other Pods
ASK_AGAIN_S: Final = 1.0
FOLLOWED_MAX: Final = 24  # of STREAMS_MAX: the rest is for logs that are asked again
SHOWN_S_MAX: Final = 30.0
"""An end is in the Pod's status by then, also on a busy node; else the stream was cut.

Kubelet's answer names no instance: asked again too early, it gives the log of the next one.
"""


class Follower:
    """Follows the logs of one JobSet.

    Args:
        name: of the JobSet.
        rank: gives a Pod its rank.
        chosen: ranks; empty is all.
        wanted: which lines.
    """

    def __init__(
        self, name: str, rank: Ranks, chosen: Collection[range], wanted: Wanted, reader: Reader, printer: Printer
    ) -> None:
        # Containers' states are read, of every Pod.
        self._watch = StatusWatch(replace(reader.connection, whole_max=LOGS_MAX), name)
        self._rank, self._chosen, self._wanted = rank, chosen, wanted
        self._ranked: KubeObject | None = None  # the JobSet that `_rank` is of, once the watch has one
        self._reader, self._printer = reader, printer
        self._present: dict[tuple[str, str, int], Instance] = {}
        self._followed: set[tuple[str, str, int]] = set()
        self._has_begun = False
        self._streams = 0  # that follow
        self._reading = 0  # logs that are not read to their end
        self._lines: list[tuple[Instance, LogLine]] = []
        self._bytes = 0
        self._printed = asyncio.Event()
        self._refusal: RefusalError | Unauthorized | None = None

    async def run(self) -> int:
        """Follow until the JobSet has ended and all is printed; return the exit code.

        Raises:
            RefusalError: a right is missing, or the JobSet is gone.
        """
        async with beside(self._watch.jobsets.run, self._watch.pods.run, self._start_all):
            while not self._is_over():
                await asyncio.sleep(WAIT_S)
                self._print()
        self._print()
        return CliExit.DONE

    async def _start_all(self) -> None:
        """Follow each log that there is."""
        async with create_task_group() as group:
            while True:
                if self._watch.is_filled:
                    for log in self._new_logs():
                        group.start_soon(self._follow, log)
                    self._has_begun = True
                await asyncio.sleep(WAIT_S)

    def _is_over(self) -> bool:
        """Say whether the JobSet has ended, and all logs were read.

        Raises:
            RefusalError: a right is missing, or the JobSet is gone.
        """
        if self._watch.log.denied:
            raise RefusalError(self._watch.log.denied, CliExit.NOT_ALLOWED)
        if self._refusal is not None:
            raise self._refusal
        return self._has_begun and self._watch.has_ended and not self._reading

    def _new_logs(self) -> list[ContainerLog]:
        """Take note of the instances that there are now; return the logs of those that nobody follows yet."""
        raw = next(iter(self._watch.jobsets), None)
        if raw is not None and raw is not self._ranked:  # a spare takes a lost member's rank
            self._ranked, (self._rank, _) = raw, ranks_of(raw)
        found = bounded(filter(self._wanted.may_have, instances_of(self._watch.pods, self._rank, self._chosen)))
        self._present = {one.key: one for one in found}
        fresh = [one for one in found if one.key not in self._followed]
        self._followed = {one.key for one in found}  # of what is gone, nothing is kept
        self._reading += len(fresh)
        return [self._reader.log(one, self._wanted.since_ns) for one in fresh]

    async def _follow(self, log: ContainerLog) -> None:
        """Read one log until its instance has ended and all of it was read."""
        try:
            while True:
                if not await self._read(log):
                    return
                await asyncio.sleep(ASK_AGAIN_S)
        except (RefusalError, Unauthorized) as refusal:
            self._refusal = refusal
        finally:
            self._reading -= 1

    async def _read(self, log: ContainerLog) -> bool:
        """Read what is there of a log; say whether more may come."""
        present = self._present.get(log.instance.key)
        if present is None:
            return False  # gone with its Pod, or removed by kubelet
        may_grow, log.is_previous = present.ended_s is None, present.is_previous
        follows = may_grow and self._streams < FOLLOWED_MAX
        self._streams += follows
        try:
            async with self._reader.open(log, follow=follows) as lines:
                async for line in lines:
                    if self._wanted.has(line):
                        await self._take(self._present.get(log.instance.key, log.instance), line)
        finally:
            self._streams -= follows
        if follows:
            await self._until_shown(log.instance)
        return may_grow  # one that has ended meanwhile is read once more

    async def _until_shown(self, instance: Instance) -> None:
        """Wait until the status shows the end of an instance whose stream ended, for a while at most."""
        for _ in range(round(SHOWN_S_MAX / WAIT_S)):
            present = self._present.get(instance.key)
            if present is None or present.ended_s is not None:
                return
            await asyncio.sleep(WAIT_S)

    async def _take(self, instance: Instance, line: LogLine) -> None:
        """Let a line wait; where too many wait, wait until they are printed."""
        while self._bytes > BUFFER_BYTES:
            self._printed.clear()
            await self._printed.wait()
        self._lines.append((instance, line))
        self._bytes += line.cost

    def _print(self) -> None:
        lines, self._lines, self._bytes = self._lines, [], 0
        self._printer.lines(sorted(lines, key=lambda one: one[1].at_ns))
        self._printed.set()
