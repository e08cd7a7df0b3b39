"""
`inplace status --watch` without a name: watch the JobSets of one namespace or of all, from their statuses alone.

On a terminal the table is drawn again after a change. A pipe gets one line, or one JSON object, for each JobSet whose
line changed; the first lines say how all of them stand.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import nullcontext, suppress
from random import Random
from typing import Any, Final

from rich.live import Live

from inplace.cli.beside import beside
from inplace.cli.connection import Connection
from inplace.cli.group.read import read_jobsets
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.status.listing import list_data, list_picture
from inplace.cli.status.watch import REFRESH_S, REST, TICK_S, WatchLog
from inplace.cli.terminal.moments import clock_text
from inplace.cli.terminal.screen import Output, console
from inplace.cli.terminal.visible import one_line
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.codec import RAW
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import JOBSETS, KubeObject

DELETED: Final = "Deleted"  # the phase of the last line about a JobSet

Rows = dict[tuple[str, str], dict[str, Any]]


async def watch_list(connection: Connection, output: Output, *, everywhere: bool) -> int:
    """Show the JobSets until the user has seen enough; return the exit code."""
    await read_jobsets(connection, everywhere=everywhere)  # says better than a watch why they cannot be read
    log, changed = WatchLog(), asyncio.Event()
    jobsets: Informer[KubeObject] = Informer(
        connection.client,
        JOBSETS,
        RAW,
        namespace=None if everywhere else connection.namespace,
        clock=LoopClock(),
        rng=Random(),
        log=log,
        handlers=(lambda _old, _new: changed.set(),),
    )
    async with beside(jobsets.run):
        return await _follow(jobsets, log, changed, output, everywhere=everywhere)


async def _follow(
    jobsets: Informer[KubeObject], log: WatchLog, changed: asyncio.Event, output: Output, *, everywhere: bool
) -> int:
    screen, rows = console(), Rows()
    is_live = screen.is_terminal and output == "table"
    with Live(console=screen, auto_refresh=False, vertical_overflow="crop") if is_live else nullcontext() as picture:
        while True:
            if log.denied:
                raise RefusalError(log.denied, CliExit.NOT_ALLOWED)
            began_s = time.thread_time()
            if jobsets.has_synced:
                changed.clear()
                if picture is not None:
                    drawn = list_picture(jobsets, now_s=time.time(), everywhere=everywhere)
                    picture.update(drawn, refresh=True)
                else:
                    rows = _print_changes(rows, jobsets, output)
            await _pause(changed, max(REFRESH_S, REST * (time.thread_time() - began_s)))


def _print_changes(before: Rows, jobsets: Informer[KubeObject], output: Output) -> Rows:
    """Print the lines that changed; return all of them."""
    rows = {(row["namespace"], row["name"]): row for row in map(list_data, jobsets)}
    gone = [before[key] | {"phase": DELETED, "waitsFor": None} for key in before.keys() - rows.keys()]
    for row in sorted((*(row for key, row in rows.items() if before.get(key) != row), *gone), key=_key):
        print(json.dumps(row) if output != "table" else f"{clock_text(time.time())} {list_line(row)}", flush=True)
    return rows


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row["namespace"], row["name"]


def list_line(row: dict[str, Any]) -> str:
    """Return the line for a pipe."""
    epochs = "/".join(str(epoch) for epoch in row["epochs"])
    used = row["restarts"]["used"]
    parts = [f"{row['namespace']}/{row['name']} {row['phase']}"]
    parts += [f"epoch {epochs}"] if epochs else []
    parts += [f"{row['jobsReady']} of {row['jobs']} Jobs ready"]
    parts += [f"{used} of {row['restarts']['max']} restarts"] if used is not None else []
    parts += [f"waits for: {row['waitsFor']}"] if row["waitsFor"] else []
    return one_line(", ".join(parts))


async def _pause(changed: asyncio.Event, pause_s: float) -> None:
    """Return a moment after something changed, or when an age in the table has to move."""
    await asyncio.sleep(pause_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, TICK_S - pause_s)):
            await changed.wait()
