"""`inplace nodes`: list the nodes on which workers of a JobSet failed first, and which of them its new Pods avoid."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.table import Table

from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_jobset
from inplace.cli.terminal.moments import duration_text
from inplace.cli.terminal.screen import Output, plain_table, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.kube.resources import KubeObject
from inplace.common.kube.timestamps import precise_time
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.spec.bad_nodes import BadNodes, NodeRecord, read_bad_nodes, records_of
from inplace.controller.spec.causes import unix_time

if TYPE_CHECKING:
    from inplace.cli.documents import NodeRow, NodesDocument


@command
async def run_nodes(connection: Connection, name: str, *, output: Output) -> None:
    """Print the nodes on which a JobSet's workers failed first."""
    data = nodes_data(await read_jobset(connection, name), time.time())
    if output != "table":
        print_data(data, output)
        return
    print(data["policy"], file=sys.stderr)
    if data["nodes"]:
        show(nodes_picture(data["nodes"]))


def nodes_data(raw: KubeObject, now_s: float) -> NodesDocument:
    """Return what is known of a JobSet's nodes, for programs: the nodes that are avoided first."""
    annotations = raw["metadata"].get("annotations") or {}
    try:
        policy = read_bad_nodes(annotations)
    except RemoteProtocolError as error:
        return {"policy": str(error), "nodes": []}
    if policy is None:
        return {"policy": f"no node is avoided: the JobSet has no annotation {wire.BAD_NODES}", "nodes": []}
    records = records_of(raw.get("status") or {}, policy, precise_time(now_s))
    rows = [_row(record, policy, now_s) for record in reversed(records)]
    return {"policy": str(policy), "nodes": sorted(rows, key=lambda row: row["avoidedSeconds"] is None)}


def nodes_picture(rows: list[NodeRow]) -> Table:
    """Return the table."""
    table = plain_table("NODE", "FAILURES", "AVOIDED FOR", "LAST")
    for row in rows:
        left_s = row["avoidedSeconds"]
        left = "-" if left_s is None else duration_text(left_s)
        table.add_row(one_line(row["node"]), str(row["failures"]), left, one_line(row["why"]))
    return table


def _row(record: NodeRecord, policy: BadNodes, now_s: float) -> NodeRow:
    since_s = unix_time(record.avoided_since)
    left_s = None if since_s is None else max(0.0, policy.window_s - max(0.0, now_s - since_s))
    return {
        "node": record.node,
        "failures": len(record.failed_at),
        "avoidedSeconds": left_s,
        "pod": record.pod,
        "why": record.why,
    }
