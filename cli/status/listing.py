"""Show all JobSets of a namespace, one line each, from their statuses: one request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from inplace.cli.group.status_state import state_of_status
from inplace.cli.status.view import STYLES
from inplace.cli.terminal.moments import duration_text
from inplace.cli.terminal.screen import plain_table
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import GroupPhase
from inplace.common.kube.resources import KubeObject

if TYPE_CHECKING:
    from inplace.cli.documents import JobSetRow


def list_picture(jobsets: Iterable[KubeObject], *, now_s: float, everywhere: bool = False) -> Table:
    """Return the table; of several namespaces, with their names."""
    places = ("NAMESPACE",) if everywhere else ()
    table = plain_table(*places, "JOBSET", "PHASE", "EPOCH", "JOBS READY", "RESTARTS", "AGE", "WAITS FOR")
    for raw in sorted(jobsets, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])):
        row = list_data(raw)
        age_s = unix_time(raw["metadata"].get("creationTimestamp"))
        table.add_row(
            *((row["namespace"],) if everywhere else ()),
            row["name"],
            Text(row["phase"], STYLES.get(GroupPhase(row["phase"]), "")),
            "/".join(str(epoch) for epoch in row["epochs"]) or "-",
            f"{row['jobsReady']}/{row['jobs']}",
            "-" if row["restarts"]["used"] is None else f"{row['restarts']['used']}/{row['restarts']['max']}",
            "-" if age_s is None else duration_text(now_s - age_s),
            one_line(row["waitsFor"] or ""),
        )
    return table


def list_data(raw: KubeObject) -> JobSetRow:
    """Return one line for programs."""
    state = state_of_status(raw)
    counters = state.jobset.status.get("replicatedJobsStatus") or () if state.jobset is not None else ()
    specs = state.jobset.replicated_jobs if state.jobset is not None else ()
    return {
        "namespace": state.namespace,
        "name": state.name,
        "phase": state.phase.value,
        "epochs": [scope.synced for scope in state.scopes],
        "jobs": sum(job.replicas for job in specs),
        "jobsReady": sum(int(one.get("ready") or 0) + int(one.get("succeeded") or 0) for one in counters),
        "restarts": {"used": state.used, "max": state.allowed},
        "waitsFor": state.stuck or (state.conditions or {}).get("SpecProblem", {}).get("message"),
    }
