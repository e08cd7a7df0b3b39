"""
`inplace status --watch` without a name: watch the JobSets of one namespace or of all, from their statuses alone.

On a terminal the table is drawn again after a change. A pipe gets one line, or one JSON object, for each JobSet whose
line changed; the first lines say how all of them stand.
"""

from __future__ import annotations

import json
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import RenderableType

from inplace.cli.beside import beside
from inplace.cli.connection import Connection
from inplace.cli.group.read import read_jobsets
from inplace.cli.status.document import list_data
from inplace.cli.status.view import list_picture
from inplace.cli.status.watch import JobSetWatch, follow
from inplace.cli.terminal.moments import clock_text
from inplace.cli.terminal.screen import Output
from inplace.cli.terminal.visible import one_line
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import KubeObject

if TYPE_CHECKING:
    from inplace.cli.documents import JobSetRow

DELETED: Final = "Deleted"  # the phase of the last line about a JobSet

Rows: TypeAlias = "dict[tuple[str, str], JobSetRow]"


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
