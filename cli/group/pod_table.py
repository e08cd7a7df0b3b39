"""
Read Pods from a Table, as `kubectl get pods` does: 160 bytes each instead of 14,000.

A Table without objects has no annotations, so no epochs. It is used only while an epoch runs (S > D): every slot has
announced S then, and the question is only which Pods are gone, new or in trouble. Source:
k8s.io/kubernetes/pkg/printers/internalversion/printers.go, printPod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from inplace.cli.group.pod_facts import (
    Annotations,
    Container,
    ListMeta,
    Meta,
    PodCondition,
    PodFact,
    PodSpec,
    PodsRead,
    PodStatus,
    Running,
    State,
)
from inplace.common.jobset.blocked import BLOCKING
from inplace.common.jobset.containers import Waiting
from inplace.common.jobset.kinds import Gate, PodLabels
from inplace.common.kube.answers import UNREADABLE
from inplace.common.kube.http.request import GarbledError
from inplace.common.protocol.members import Members

ACCEPT: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"
_NO_NODE: Final = "<none>"
_ENDED: Final = {"Completed": "Succeeded", "Succeeded": "Succeeded", "Error": "Failed", "Failed": "Failed"}
_FAILURES: Final = ("Evicted", "OOMKilled", "Preempting", "DeadlineExceeded", "UnexpectedAdmissionError")
_NODE_LOST: Final = ("NodeLost", "Unknown")  # a Pod that is being deleted, on a node that does not answer
# Its containers were never started, so that it cannot have announced anything.
_NEW: Final = ("ContainerCreating", "Pending", *BLOCKING)
_NAME: Final = re.compile(r"(?P<job>.+)-(?P<job_index>\d+)-(?P<index>\d+)-[a-z0-9]+")


class _Column(msgspec.Struct):
    name: str


class _Row(msgspec.Struct):
    cells: list[Any]


class _Table(msgspec.Struct, rename="camel"):
    metadata: ListMeta = ListMeta()
    column_definitions: list[_Column] | None = None
    rows: list[_Row] | None = None


_TABLE: Final = msgspec.json.Decoder(_Table)


def decode_table(body: bytes, jobset: str, synced: int, members: Members | None = None) -> PodsRead:
    """Return the Pods of a Table, as far as its cells tell.

    Args:
        body: the answer.
        jobset: its name, which the Pods' names begin with.
        synced: S of the epoch that runs.
        members: who runs in it, in a group with spares; the others wait at the next barrier.

    Raises:
        GarbledError: it is no Table of Pods.
    """
    try:
        table = _TABLE.decode(body)
        names = [column.name for column in table.column_definitions or ()]
        places = [names.index(name) for name in ("Name", "Ready", "Status", "Node")]
        rows = [tuple(str(row.cells[place]) for place in places) for row in table.rows or ()]
    except (*UNREADABLE, IndexError) as error:
        raise GarbledError(f"expected a Table of Pods with Name, Ready, Status and Node, saw {error}") from error
    return PodsRead(list(_pods(rows, jobset, synced, members)), table.metadata.resource_version)


def _pods(rows: Iterable[tuple[str, ...]], jobset: str, synced: int, members: Members | None) -> Iterable[PodFact]:
    playing = None if members is None else set(members.slots())
    for name, ready, printed, node in rows:
        blocked = printed.removeprefix("Init:")
        status = blocked if blocked in BLOCKING else printed
        found = _NAME.fullmatch(name.removeprefix(f"{jobset}-"))
        labels = None
        if found is not None:
            labels = PodLabels(
                replicated_job=found["job"], job_index=found["job_index"], completion_index=found["index"]
            )
        leaving = "deleted" if status == "Terminating" or status in _NODE_LOST else None
        spec = PodSpec(
            node_name=None if node == _NO_NODE else node,
            scheduling_gates=(Gate("scheduling gate"),) if status == "SchedulingGated" else None,
        )
        facts = _status(ready, status)
        announced = spec.node_name is not None and facts.phase != "Failed" and not leaving
        is_spare = False
        if members is not None and playing is not None and found is not None:
            is_spare = members.unit_of(int(found["job_index"]), int(found["index"])) not in playing
        meta = Meta(
            name=name,
            uid="",
            resource_version="",
            labels=labels,
            annotations=Annotations(epoch=str(synced + is_spare)) if announced and status not in _NEW else None,
            deletion_timestamp=leaving,
        )
        yield PodFact(meta, spec, facts)


def _status(ready: str, status: str) -> PodStatus:
    """Return a status that says what the cells say."""
    if status in _NODE_LOST:
        return PodStatus(phase="Running", reason="NodeLost")
    runs = ready.partition("/")[0] != "0"  # kubectl prints one container's end, and others are ready
    if (status in _ENDED or status in _FAILURES) and not runs:
        return PodStatus(phase=_ENDED.get(status, "Failed"), reason=status)
    if status == "Pending":
        unscheduled = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")
        return PodStatus(phase="Pending", conditions=(unscheduled,))
    count, _, of = ready.partition("/")
    if status == "Running" and count == of:
        return PodStatus(
            phase="Running", container_statuses=(Container("worker", ready=True, state=State(running=Running())),)
        )
    return PodStatus(phase="Pending", container_statuses=(Container("?", state=State(waiting=Waiting(status))),))
