"""
Read why a queue keeps a JobSet suspended: Kueue's Workload says it, and Kueue alone resumes what it has suspended.

The Workload of a JobSet bears the UID of the JobSet, or that of the object which owns the JobSet, such as a TrainJob.
Source: sigs.k8s.io/kueue/pkg/controller/constants, JobUIDLabel; apis/kueue/v1beta2, WorkloadStatus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.cli.connection import Connection
from inplace.common.bare.record import record
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import KubeObject, Resource
from inplace.common.wire import names as wire

JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
WORKLOADS: Final = tuple(
    Resource("kueue.x-k8s.io", version, "workloads", "Workload") for version in ("v1beta2", "v1beta1")
)


@record
class Queued:
    """What is known of a suspended JobSet's queue.

    Args:
        queue: the LocalQueue that its label names; "" where only its owner has one.
        workload: the Workload's name; "" for none.
        said: what the Workload waits for, in Kueue's words.
    """

    queue: str
    workload: str = ""
    said: str = ""


async def read_queued(connection: Connection, raw: KubeObject, unread: list[str]) -> Queued | None:
    """Return what Kueue says of a suspended JobSet; None where no queue can have it.

    What cannot be read is added to `unread`.
    """
    meta = raw["metadata"]
    queue = str((meta.get("labels") or {}).get(wire.QUEUE_NAME) or "")
    owners = [str(one.get("uid")) for one in meta.get("ownerReferences") or () if one.get("controller")]
    if not queue and not owners:
        return None
    query = {"labelSelector": f"{JOB_UID_LABEL} in ({','.join((str(meta['uid']), *owners))})"}
    for resource in WORKLOADS:
        try:
            found = (await connection.client.list(resource, connection.namespace, query=query)).get("items") or []
        except NotFound:
            continue
        except (ApiError, TransportError) as error:
            unread.append(f"Kueue's Workload: {error}")
            return Queued(queue) if queue else None
        if found:
            return Queued(queue, str(found[0]["metadata"]["name"]), "; ".join(_words(found[0])))
        return Queued(queue, said="Kueue has no Workload of it") if queue else None
    return Queued(queue, said="this cluster has no Kueue") if queue else None


def _words(workload: KubeObject) -> Iterator[str]:
    """Yield what keeps a Workload from being admitted."""
    status = workload.get("status") or {}
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    if (workload.get("spec") or {}).get("active") is False:
        yield "Kueue or a person deactivated it (spec.active is false)"
    if (conditions.get("Evicted") or {}).get("status") == "True":
        yield _said(conditions["Evicted"])
    if (conditions.get("QuotaReserved") or {}).get("status") != "True":
        yield _said(conditions["QuotaReserved"]) if "QuotaReserved" in conditions else "Kueue has not looked at it yet"
        return
    for check in status.get("admissionChecks") or ():
        if check.get("state") != "Ready":
            yield f"admission check {check.get('name')} is {check.get('state')}: {check.get('message') or 'no message'}"


def _said(condition: KubeObject) -> str:
    reason, message = condition.get("reason") or "no reason", condition.get("message") or "no message"
    return f"{condition.get('type')} is {condition.get('status')} ({reason}): {message}"
