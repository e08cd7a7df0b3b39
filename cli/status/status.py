"""`inplace status`: show one JobSet, once or live, or all JobSets of a namespace, one line each."""

from __future__ import annotations

import sys
import time

from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_group, read_jobsets
from inplace.cli.group.state import group_state
from inplace.cli.group.steps_told import with_steps
from inplace.cli.terminal.screen import Output, console, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.headline import GroupPhase, Pulse


@command
async def run_status(
    connection: Connection, name: str | None, *, output: Output, watch: bool, everywhere: bool = False
) -> None:
    """Show one JobSet or a list of them.

    Args:
        connection: to the cluster, with the namespace.
        name: of the JobSet; None for a list.
        output: the format.
        watch: go on with every change.
        everywhere: list the JobSets of all namespaces.
    """
    if name is None and watch:
        from inplace.cli.status.watch import watch_list

        await watch_list(connection, output, everywhere=everywhere)
    elif name is None:
        await _show_all(connection, output, everywhere=everywhere)
    elif watch:
        from inplace.cli.status.watch import watch_status

        await watch_status(connection, name, output)
    else:
        await _show_one(connection, name, output)


async def _show_one(connection: Connection, name: str, output: Output) -> None:
    raw, pods = await read_group(connection, name)
    unread: list[str] = []
    state, pulse = group_state(raw, pods), Pulse.UNKNOWN
    if state.phase is GroupPhase.RUNNING:  # one object more, the one that decides
        state = await with_steps(connection, raw, pods, state, unread)
    elif state.needs_controller:
        from inplace.cli.group.read import read_controller

        pulse = (await read_controller(connection, unread)).pulse
    line, now_s = state.headline(pulse).text, time.time()
    if output != "table":
        from inplace.cli.status.document import status_data

        print_data(status_data(state, now_s, line), output)
        return
    from inplace.cli.status.view import status_picture

    show(status_picture(state, now_s=now_s, columns=console().width, line=line))
    for problem in unread:
        print(one_line(f"not read: {problem}"), file=sys.stderr)


async def _show_all(connection: Connection, output: Output, *, everywhere: bool) -> None:
    jobsets = await read_jobsets(connection, everywhere=everywhere)
    if output != "table":
        from inplace.cli.status.document import list_data

        print_data([list_data(one) for one in jobsets], output)
    elif not jobsets:
        print(f"no JobSets in {'any namespace' if everywhere else connection.place}", file=sys.stderr)
    else:
        from inplace.cli.status.view import list_picture

        show(list_picture(jobsets, now_s=time.time(), everywhere=everywhere))
