"""The controller benchmark's plumbing: Pods as large as real ones, JobSets that fit, a report that names its bounds."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.controller_pods import PODS_PER_JOB, jobset, placed, pod_status
from inplace.common.jobset.jobset import parse_jobset
from inplace.common.jobset.kinds import POD_CODEC
from inplace.common.wire import names as wire
from inplace.controller.tracking.pods import worker_of


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
