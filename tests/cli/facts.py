"""JobSets and Pods as an API server would tell them, for commands without a cluster, and the commands' texts."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from inplace.cli.group.pod_facts import POD_CODEC, PodFact
from inplace.cli.group.state import GroupState
from inplace.cli.status.explain import explanation_lines
from inplace.cli.status.explanation import Explanation, Facts, explain
from inplace.cli.status.view import status_picture
from inplace.cli.terminal.console import VisibleConsole
from inplace.common.jobset.scopes import BY_REPLICATED_JOB
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import members_text

NOW = "2026-01-01T00:00:00Z"
JOB = "big-job"
RUNS: KubeObject = {"running": {"startedAt": NOW}}


def jobset(*sizes: int | tuple[int, int], status: KubeObject | None = None, **spec: object) -> KubeObject:
    """Return a JobSet of a replicatedJob for each size: the Pods of one Job, or replicas and the Pods of each."""
    jobs = []
    for number, size in enumerate(sizes):
        replicas, pods = (1, size) if isinstance(size, int) else size
        template = {"spec": {"parallelism": pods, "completions": pods}}
        jobs.append({"name": f"{JOB}-{number}" if number else JOB, "replicas": replicas, "template": template})
    policy = {"maxRestarts": 10, "restartStrategy": wire.IN_PLACE_RESTART}
    meta = {"name": "train", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    body = {"replicatedJobs": jobs, "failurePolicy": policy} | spec
    return {"apiVersion": wire.API_VERSION, "kind": "JobSet", "metadata": meta, "spec": body, "status": status or {}}


def pod(
    index: int = 0,
    epoch: int = 0,
    *,
    job: str = JOB,
    job_index: int = 0,
    name: str = "",
    spec: KubeObject | None = None,
    status: KubeObject | None = None,
    **metadata: Any,
) -> PodFact:
    """Return a Pod of a slot, whose worker runs unless `status` says otherwise; epoch 0 is announced by nobody."""
    name = name or f"train-{job}-{job_index}-{index}"
    labels = {wire.REPLICATED_JOB_NAME: job, wire.JOB_INDEX: str(job_index), wire.JOB_COMPLETION_INDEX: str(index)}
    meta = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
    meta |= {"annotations": wire.epoch_annotations(epoch) if epoch else {}}
    worker = {"name": "worker", "state": RUNS}
    return POD_CODEC.convert(
        {
            "metadata": meta | metadata,
            "spec": {"nodeName": "node-1"} | (spec or {}),
            "status": {"phase": "Running", "containerStatuses": [worker]} | (status or {}),
        }
    )


def spared(
    slots: int | tuple[int, int], setting: str, *, members: Members | None = None, epochs: tuple[int, int] = (0, 0)
) -> KubeObject:
    """Return a JobSet of so many Pods, or Jobs, of which some are spares.

    Args:
        slots: how many Pods; or replicas, and the Pods of each Job.
        setting: the annotation `inplace.dev/members`.
        members: who runs in S; None before the first epoch.
        epochs: S and D.
    """
    text = members_text(members) if members is not None else ""
    entry = {"name": JOB, wire.SYNCED_EPOCH: epochs[0], wire.DEPRECATED_EPOCH: epochs[1], wire.MEMBERS_FIELD: text}
    status = {wire.RESTART_SCOPE_FIELD: BY_REPLICATED_JOB, wire.SCOPED_EPOCHS: [entry], "restarts": 0}
    raw = jobset(slots, status=status)
    raw["metadata"]["annotations"] = {wire.MEMBERS: setting}
    return raw


def table(*rows: tuple[str, str, str, str]) -> bytes:
    """Return a Table as the server prints Pods."""
    columns = [{"name": name} for name in ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")]
    cells = [{"cells": [name, ready, state, "0", "1m", "10.0.0.1", node]} for name, ready, state, node in rows]
    return json.dumps({"columnDefinitions": columns, "rows": cells}).encode()


def explanation_of(state: GroupState, pods: Sequence[PodFact] = (), *more: Any, now_s: float = 0.0) -> Explanation:
    """Return what `inplace explain` finds out; `more` as `Facts` has it."""
    return explain(Facts(state, pods, *more), now_s=now_s)


def text_of(explanation: Explanation) -> str:
    """Return the text that `inplace explain` prints."""
    return "\n".join(text for text, _ in explanation_lines(explanation))


def drawn(state: GroupState, columns: int = 200, now_s: float = 0.0) -> str:
    """Return the text that `inplace status` prints."""
    file = io.StringIO()
    VisibleConsole(file=file, width=columns, highlight=False).print(status_picture(state, now_s=now_s, columns=columns))
    return file.getvalue()
