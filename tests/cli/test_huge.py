"""The commands' cost follows the Pods that exist, also for the largest specs that the API accepts."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from inplace.cli.group.pod_facts import POD_CODEC, PodFact
from inplace.cli.group.state import NAMED_MAX, GroupPhase, GroupState, group_state
from inplace.cli.status.document import status_data
from inplace.cli.status.explain import explanation_data, explanation_lines
from inplace.cli.status.explanation import Facts, explain
from inplace.cli.status.listing import list_data
from inplace.cli.status.view import status_picture
from inplace.cli.status.watch import watch_line
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.int32 import INT32_MAX
from inplace.common.wire import names as wire
from inplace.controller.spec.scopes import BY_REPLICATED_JOB

LARGEST = INT32_MAX * INT32_MAX
LABELS = {"name": wire.REPLICATED_JOB_NAME, "job": wire.JOB_INDEX, "index": wire.JOB_COMPLETION_INDEX}


def jobset(*sizes: tuple[int, int], status: KubeObject | None = None) -> KubeObject:
    """Return a JobSet of replicatedJobs j0, j1, ... with these replicas and this parallelism."""
    jobs = [
        {"name": f"j{number}", "replicas": replicas, "template": {"spec": {"parallelism": pods, "completions": pods}}}
        for number, (replicas, pods) in enumerate(sizes)
    ]
    policy = {"maxRestarts": 10, "restartStrategy": wire.IN_PLACE_RESTART}
    meta = {"name": "train", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    spec = {"replicatedJobs": jobs, "failurePolicy": policy}
    return {"apiVersion": wire.API_VERSION, "kind": "JobSet", "metadata": meta, "spec": spec, "status": status or {}}


def pod(job_index: int, index: int, epoch: int, replicated_job: str = "j0") -> PodFact:
    """Return a running Pod of a slot."""
    values = {"name": replicated_job, "job": str(job_index), "index": str(index)}
    meta = {
        "name": f"train-{replicated_job}-{job_index}-{index}-x",
        "uid": f"{job_index}/{index}",
        "resourceVersion": "1",
        "labels": {LABELS[key]: value for key, value in values.items()},
        "annotations": wire.epoch_annotations(epoch),
    }
    started: dict[str, Any] = {"name": "worker", "state": {"running": {"startedAt": "2026-11-22T00:00:00Z"}}}
    return POD_CODEC.convert(
        {
            "metadata": meta,
            "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "containerStatuses": [started]},
        }
    )


def drawn(state: GroupState) -> str:
    """Return the printed text."""
    screen = Console(file=io.StringIO(), width=100)
    screen.print(status_picture(state, now_s=0.0, columns=100))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_a_spec_of_as_many_slots_as_the_types_hold() -> None:
    """For 2**62 slots and two Pods, one of them behind, every view answers at once and counts exactly."""
    pods = [pod(INT32_MAX - 1, INT32_MAX - 1, 2), pod(0, 7, 1)]
    state = group_state(jobset((INT32_MAX, INT32_MAX), status=wire.status_of_epochs(1, 1)), pods)
    assert (state.phase, state.expected, state.arrived, state.late) == (GroupPhase.RESTARTING, LARGEST, 1, LARGEST - 1)
    assert state.stragglers[0].pod == "train-j0-0-7-x"
    assert (len(state.stragglers), state.unnamed) == (1 + NAMED_MAX, LARGEST - 2 - NAMED_MAX)
    text = drawn(state)
    assert f"waiting for {LARGEST - 1:,} Pods" in text
    assert f"{LARGEST - 2:,} no Pod" in text
    assert len(status_data(state)["stragglers"]) == 1 + NAMED_MAX
    assert f"waits for {LARGEST - 1:,} Pods: train-j0-0-7-x" in watch_line(state, "table")
    found = explain(Facts(state, pods), now_s=0.0)
    assert next(cause.text for cause in found.causes) == f"{LARGEST - 2:,} Pods: no Pod"
    assert all(len(line) < 1_000 for line, _ in explanation_lines(found))
    assert explanation_data(found)["causes"]


@pytest.mark.parametrize("size", [(INT32_MAX, 0), (0, INT32_MAX)])
def test_jobs_without_pods_are_not_counted_through(size: tuple[int, int]) -> None:
    """2**31 - 1 replicas of no Pods make no slots and take no time."""
    assert group_state(jobset(size), ()).expected == 0


def test_many_scopes_share_one_bound() -> None:
    """A JobSet of 3,000 scopes names as many slots as one of one scope."""
    raw = jobset(*[(INT32_MAX, 9)] * 3_000, status={wire.RESTART_SCOPE_FIELD: BY_REPLICATED_JOB})
    state = group_state(raw, ())
    assert (len(state.scopes), len(state.stragglers)) == (3_000, NAMED_MAX)
    assert state.unnamed == 3_000 * 9 * INT32_MAX - NAMED_MAX


def test_a_list_names_no_slot() -> None:
    """A list of a thousand such JobSets has a thousand lines and names no slot."""
    raw = jobset((INT32_MAX, INT32_MAX), status=wire.status_of_epochs(1, 1))
    assert {list_data(raw)["jobs"] for _ in range(1_000)} == {INT32_MAX}


@pytest.mark.parametrize("text", ["9" * 5_000, "-1", "0x10", "٣", "1e9", ""])
def test_an_epoch_that_is_none_counts_as_none(text: str) -> None:
    """A JobSet is shown with any text in its Pods' annotations and labels."""
    odd = pod(0, 0, 1)
    raw = {
        "metadata": {
            "name": odd.name,
            "uid": "odd",
            "resourceVersion": "1",
            "labels": {LABELS["name"]: "j0", LABELS["job"]: text[:63], LABELS["index"]: text[:63]},
            "annotations": {wire.EPOCH: text, wire.ATTEMPT: text},
        }
    }
    state = group_state(jobset((1, 1)), [POD_CODEC.convert(raw)])
    assert (state.arrived, state.late) == (0, 1)
