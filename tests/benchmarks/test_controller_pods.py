"""The controller benchmark's plumbing: Pods as large as real ones, JobSets that fit, a report that names its bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from benchmarks.controller_pods import PODS_PER_JOB, jobset, placed
from benchmarks.controller_report import table
from benchmarks.controller_status import pod_status
from inplace.common.wire import names as wire
from inplace.controller.spec.jobset import parse_jobset
from inplace.controller.spec.kinds import POD_CODEC
from inplace.controller.tracking.pods import worker_of

ROW: dict[str, Any] = {
    "cpu_s": 1.0,
    "cpu_announcements_s": 0.4,
    "deprecate_ms": 20.0,
    "deprecate_ms_max": 30.0,
    "sync_ms": 40.0,
    "sync_ms_max": 50.0,
    "rss_mb": 100.0,
    "rss_peak_mb": 110.0,
}
BURST: dict[str, Any] = {
    "burst_jobsets": 1000,
    "burst_seconds": 30.0,
    "burst_restarts": 100,
    "burst_restart_p50_ms": 100.0,
    "burst_restart_p99_ms": 300.0,
    "burst_announce_p50_ms": 20.0,
    "idle_restart_p50_ms": 40.0,
    "service_ms": {"new": 100.0, "deleted": 50.0},
}


@pytest.mark.parametrize("pods", [1, 4, 200, 5_000])
def test_a_jobset_has_as_many_slots_as_asked_for(pods: int) -> None:
    """Up to a hundred slots are in one Job; more slots are in several Jobs."""
    manifest = jobset("train", pods)
    parsed = parse_jobset({**manifest, "metadata": manifest["metadata"] | {"uid": "u", "resourceVersion": "1"}})
    assert parsed.shape.size == pods
    assert parsed.is_in_place
    assert len(parsed.places) == max(1, pods // PODS_PER_JOB)


def test_a_jobset_that_cannot_be_split_into_equal_jobs_is_refused() -> None:
    """250 Pods are two and a half Jobs."""
    with pytest.raises(AssertionError, match="250"):
        jobset("train", 250)


def test_a_played_pod_is_as_large_as_a_real_one_and_its_worker_is_read() -> None:
    """Spec and status are over 5 kB before managedFields; the worker runs, fails, and runs as another instance."""
    spec = placed(jobset("train", 1)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"])
    workers = []
    for epoch, running in ((1, True), (1, False), (2, True)):
        metadata = {"name": "p", "uid": "u", "resourceVersion": "1", "annotations": wire.epoch_annotations(epoch)}
        body = msgspec.json.encode(
            {"metadata": metadata, "spec": spec, "status": pod_status("p", epoch, running=running)}
        )
        assert len(body) > 5_000
        workers.append(worker_of(POD_CODEC.decode(body)))
    assert [(worker.running, worker.failed) for worker in workers] == [(True, False), (False, True), (True, False)]
    assert workers[0].instance == workers[1].instance != workers[2].instance


def test_the_report_puts_bounds_beside_our_figures() -> None:
    """Every promise of the issue has a line with its bound."""
    rows = [ROW | {"pods": 1_000}, ROW | {"pods": 5_000, "cpu_s": 4.0}]
    text = table({"rows": rows, "memory": ROW | {"pods": 10_000}} | BURST)
    for words in (
        "deprecate 50 ms",
        "sync 100 ms",
        "4.0 s (at most 3)",
        "4.00 (at most 5.5)",
        "(at most 120)",
        "(at most 180)",
        "(at most 60 for 1,000)",
        "(at most 500)",
        "(at most 1000)",
    ):
        assert words in text, words


def test_parts_that_were_skipped_are_not_reported() -> None:
    """Without a burst and without the memory part, only the rows are there."""
    assert "jobsets" not in table({"rows": [ROW | {"pods": 200}]})
