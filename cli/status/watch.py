"""
`inplace status --watch`: watch one JobSet and its Pods, or the JobSets of a namespace from their statuses alone.

On a terminal the picture is drawn again after a change, at most four times a second. A pipe gets one line, or one JSON
object, for each change of that line; for each JobSet of a list the first lines say how it stands.

The first read is the slim one of `inplace status`. The watch then sends whole objects, which the server has already
encoded for the controller (docs/adr/0041). A Pod that announces between the read and the watch is shown one epoch back
until its next event.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rich.console import RenderableType
from rich.live import Live

from inplace.cli.beside import beside
from inplace.cli.connection import Connection
from inplace.cli.group.notices import notice_lines
from inplace.cli.group.pod_facts import POD_CODEC, PodFact, PodsRead
from inplace.cli.group.read import pods_selector, read_jobset, read_jobsets, read_pods_of
from inplace.cli.group.scope_state import members_text
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.status.document import list_data, status_data
from inplace.cli.status.view import list_picture, status_picture
from inplace.cli.terminal.moments import clock_text, count_text
from inplace.cli.terminal.screen import Output, console
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.headline import ENDED, GroupPhase
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.codec import RAW, Meta
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire.notice import BUSY

if TYPE_CHECKING:
    from inplace.cli.documents import JobSetRow

REFRESH_S = 0.25  # 5,000 Pods announce within a second or two; more pictures than that nobody sees
TICK_S = 1.0  # durations in the picture grow although nothing happens
REST = 4  # times as long as the last picture took: 5,000 Pods in 0.1 s, so a fifth of a core while they all change
WATCHED_PODS = replace(POD_CODEC, meta=lambda pod: Meta("", pod.name, pod.name, pod.metadata.resource_version))
"""Known by their names, which no two Pods of Jobs share; a row of a Table has no UID."""
DELETED: Final = "Deleted"  # the phase of the last line about a JobSet of a list

Rows: TypeAlias = "dict[tuple[str, str], JobSetRow]"


class WatchLog:
    """What the informers log: a refusal that waiting does not cure is kept, because it ends the command."""

    def __init__(self) -> None:
        self.denied = ""

    def info(self, event: str, **keys: Any) -> None:
        """Drop what needs nothing."""

    def warning(self, event: str, **keys: Any) -> None:
        """Drop what cures itself."""

    def error(self, event: str, **keys: Any) -> None:
        """Note what does not."""
        self.denied = f"not allowed any more ({event.replace('_', ' ')}): {keys.get('message', '')}"


class JobSetWatch:
    """The JobSets of a namespace, None for all, as a watch shows them.

    Attributes:
        changed: set by each change.
    """

    def __init__(self, connection: Connection, namespace: str | None, field_selector: str | None = None) -> None:
        self.log = WatchLog()
        self.changed = asyncio.Event()
        self._common: dict[str, Any] = {"clock": LoopClock(), "rng": Random(), "log": self.log, "namespace": namespace}
        self._common |= {"handlers": (lambda _old, _new: self.changed.set(),)}
        self.jobsets: Informer[KubeObject] = Informer(
            connection.client, JOBSETS, RAW, field_selector=field_selector, **self._common
        )


class StatusWatch(JobSetWatch):
    """The JobSet of a name and its Pods, as the watches show them."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, connection.namespace, f"metadata.name={name}")
        self._name = name
        self._connection = connection
        self._state: GroupState | None = None
        self.pods: Informer[PodFact] = Informer(
            connection.client,
            PODS,
            WATCHED_PODS,
            label_selector=pods_selector(name),
            read_all=self._read_pods,
            **self._common,
        )

    @property
    def is_filled(self) -> bool:
        """Say whether both caches are."""
        return self.jobsets.has_synced and self.pods.has_synced

    def jobset(self) -> KubeObject | None:
        """Return the JobSet, raw; None while it was not seen yet.

        Raises:
            RefusalError: it is gone.
        """
        raw = self.jobsets.get(self._connection.namespace, self._name)
        if raw is None and self.jobsets.has_synced:
            raise RefusalError(f"JobSet {self._name} was deleted", CliExit.NOT_FOUND)
        return raw

    def state(self) -> GroupState:
        """Return how the JobSet stands now.

        Raises:
            RefusalError: it is gone.
        """
        if self._state is None or self.changed.is_set():
            self.changed.clear()
            raw = self.jobset()
            assert raw is not None, "asked for once the caches are filled"
            self._state = group_state(raw, self.pods)
        return self._state

    @property
    def has_ended(self) -> bool:
        """Say whether the JobSet ended, once both caches are filled."""
        return self.state().phase in ENDED

    async def _read_pods(self) -> PodsRead:
        await self.jobsets.wait_synced()  # the later S and D are read, the fewer Pods have passed them
        raw = self.jobsets.get(self._connection.namespace, self._name)
        return PodsRead([], "0") if raw is None else await read_pods_of(self._connection, raw)  # gone: `state` says so


async def watch_status(connection: Connection, name: str, output: Output) -> None:
    """Show a JobSet until it ends or the user has seen enough."""
    await read_jobset(connection, name)  # says better than a watch why it cannot be read
    watch, said = StatusWatch(connection, name), ""

    def look(columns: int | None) -> RenderableType | None:
        nonlocal said
        if not watch.is_filled:
            return None
        state, now_s = watch.state(), time.time()
        if columns is not None:
            line = "" if state.phase is GroupPhase.RUNNING else state.headline().text  # a watch sees no steps
            return status_picture(state, now_s=now_s, columns=columns, line=line)
        if (line := watch_line(state, output)) != said:
            said = line
            print(line if output != "table" else f"{clock_text(now_s)} {line}", flush=True)
        return None

    async with beside(watch.jobsets.run, watch.pods.run):
        await follow(watch, output, look, lambda: watch.is_filled and watch.has_ended)


async def follow(
    watch: JobSetWatch,
    output: Output,
    look: Callable[[int | None], RenderableType | None],
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Look after each change until it is over or the user has seen enough.

    Args:
        watch: of what is looked at.
        output: the format.
        look: returns the picture for a terminal of so many columns, if there is one yet; None is a pipe, it prints.
        is_over: says after a look whether it was the last.

    Raises:
        RefusalError: a watch is not allowed any more.
    """
    screen = console()
    is_live = screen.is_terminal and output == "table"
    with Live(console=screen, auto_refresh=False, vertical_overflow="crop") if is_live else nullcontext() as picture:
        while True:
            if watch.log.denied:
                raise RefusalError(watch.log.denied, CliExit.NOT_ALLOWED)
            began_s = time.thread_time()
            drawn = look(screen.width if is_live else None)
            if picture is not None and drawn is not None:
                picture.update(drawn, refresh=True)
            if is_over():
                return
            pause_s = max(REFRESH_S, REST * (time.thread_time() - began_s))
            await asyncio.sleep(pause_s)
            with suppress(TimeoutError):  # the clock in the picture has to move, too
                async with asyncio.timeout(max(0.0, TICK_S - pause_s)):
                    await watch.changed.wait()


def watch_line(state: GroupState, output: Output) -> str:
    """Return the line for a pipe; it is printed again when it differs."""
    if output != "table":
        return json.dumps(status_data(state))
    epochs = ", ".join(
        f"{scope.name + ' ' if scope.name else ''}epoch {scope.target}: {scope.arrived:,} of {scope.expected:,}"
        + members_text(scope)
        for scope in state.scopes
    )
    late = [f"{one.name} ({one.reason})" for one in state.stragglers[:3]]
    waits = f"; waits for {count_text(state.late, 'Pod')}: {', '.join(late)}" if late else ""
    lasting = (one for one in state.notices if one.kind != BUSY)
    told = "".join(f"; {line}" for line in notice_lines(lasting, 0.0)[:3])
    return one_line(f"{state.phase.value} {epochs}{waits}{told}")


async def watch_list(connection: Connection, output: Output, *, everywhere: bool) -> None:
    """Show the JobSets until the user has seen enough."""
    await read_jobsets(connection, everywhere=everywhere)  # says better than a watch why they cannot be read
    watch = JobSetWatch(connection, None if everywhere else connection.namespace)
    jobsets = watch.jobsets
    rows: Rows = {}

    def look(columns: int | None) -> RenderableType | None:
        nonlocal rows
        if not jobsets.has_synced:
            return None
        watch.changed.clear()
        if columns is not None:
            return list_picture(jobsets, now_s=time.time(), everywhere=everywhere)
        rows = _print_changes(rows, jobsets, output)
        return None

    async with beside(jobsets.run):
        await follow(watch, output, look)


def _print_changes(before: Rows, jobsets: Informer[KubeObject], output: Output) -> Rows:
    """Print the lines that changed; return all of them."""
    rows = {(row["namespace"], row["name"]): row for row in map(list_data, jobsets)}
    gone = [before[key] | {"phase": DELETED, "waitsFor": None} for key in before.keys() - rows.keys()]
    fresh = [row for key, row in rows.items() if before.get(key) != row]
    for row in sorted([*fresh, *gone], key=itemgetter("namespace", "name")):
        print(json.dumps(row) if output != "table" else f"{clock_text(time.time())} {list_line(row)}", flush=True)
    return rows


def list_line(row: JobSetRow) -> str:
    """Return the line for a pipe."""
    epochs = "/".join(str(epoch) for epoch in row["epochs"])
    used = row["restarts"]["used"]
    parts = [f"{row['namespace']}/{row['name']} {row['phase']}"]
    parts += [f"epoch {epochs}"] if epochs else []
    parts += [f"{row['jobsReady']} of {row['jobs']} Jobs ready"]
    parts += [f"{used} of {row['restarts']['max']} restarts"] if used is not None else []
    parts += [f"waits for: {row['waitsFor']}"] if row["waitsFor"] else []
    return one_line(", ".join(parts))
