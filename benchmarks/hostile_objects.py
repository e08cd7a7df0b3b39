"""The largest and worst objects that an editor of one namespace may create."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.jobset import settings
from inplace.common.jobset.requests import ID_CHARS_MAX
from inplace.common.kube.resources import JOBS, JOBSETS, PODS, KubeObject, Resource
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.lease import LENGTH_S_MAX
from inplace.common.wire import names as wire
from inplace.common.wire.stall_limit import LIMIT_S_MAX

NAMESPACE: Final = "hostile"
INDEXED_PODS_MAX: Final = 100_000  # of one Indexed Job; source: pkg/apis/batch/validation, maxParallelismForIndexedJob
HEAVY_JOBSETS: Final = 20
FAILED_JOBS: Final = 200
FLOOD_JOBSETS: Final = 60
FLOOD_JOBS: Final = 20  # of each
FAILING: Final = f"{wire.JOBSET_NAME}=patterns"
START: Final = "2026-01-01T00:00:00Z"
VARIABLE_BYTES: Final = 36  # of JSON: {"name": "N12345", "value": "12345"}
ANNOTATION_BYTES: Final = (
    256 * 1024 - 64
)  # source: apimachinery TotalAnnotationSizeLimitB, which our keys do not fit beside

POLICIES: Final = {  # the annotations with numbers, each at its maximum
    wire.ESCALATION: ",".join(f"{step}={settings.USES_MAX}" for step in settings.STEP_NAMES)
    + f",window={settings.WINDOW_S_MAX}",
    wire.FAILURES: f"no-progress={settings.EPOCHS_MAX},short={settings.SHORT_S_MAX},same={settings.SAME_MAX}",
    wire.NODES: f"failures={settings.NODE_FAILURES_MAX},within={settings.WINDOW_S_MAX},percent=100",
    wire.RESTART_REQUESTED: f"{'r' * ID_CHARS_MAX},save={settings.SAVE_S_MAX}",
    wire.FENCE_AFTER: str(LENGTH_S_MAX),
    wire.STALL: f"after={LIMIT_S_MAX:.0f},start={LIMIT_S_MAX:.0f}",
}
DIGITS: Final = "9" * 16_384  # int() takes time in the square of their number, and refuses more than 4,300


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to hurt a controller.

    Args:
        name: of the row.
        kind: of the objects.
        objects: makes them.
        one_by_one: create each after the one before it: some are so large that a server can hardly take two at once.
        fails: how many Jobs to let fail that the controller makes of them.
        floods: how many Jobs the controller makes of them while other users' JobSets wait for theirs.
    """

    name: str
    kind: Resource
    objects: Callable[[], Iterator[KubeObject]]
    one_by_one: bool = False
    fails: int = 0
    floods: int = 0


def attacks(*, jobsets: int, heavy_bytes: int, pods: int, victim: KubeObject) -> tuple[Attack, ...]:
    """Return all attacks.

    Args:
        jobsets: of the attack by number.
        heavy_bytes: JSON of each of the attack by size.
        pods: of the attack by Pods with our labels.
        victim: the well-behaved JobSet, whose labels the Pods carry.
    """
    return (
        Attack("slots: one Job of 2^31-1", JOBSETS, lambda: _one(_slots("slots-max", INT32_MAX))),
        Attack("slots: one Job of 100,000", JOBSETS, lambda: _one(_slots("slots-wide", INDEXED_PODS_MAX))),
        Attack(
            "slots: 1,000 Jobs of 100,000",
            JOBSETS,
            lambda: _one(_slots("slots-many", INDEXED_PODS_MAX, replicas=1_000)),
        ),
        Attack("Jobs: 2^31-1 replicas", JOBSETS, lambda: _one(_slots("jobs-max", 1, replicas=INT32_MAX))),
        Attack("Jobs: 100,000 replicas", JOBSETS, lambda: _one(_slots("jobs-many", 1, replicas=100_000))),
        Attack(
            "Jobs: 10,000 replicas of 32 KB",
            JOBSETS,
            lambda: _one(_slots("jobs-wide", 1, replicas=10_000, padding=32_000)),
        ),
        Attack("Jobs: 100 replicatedJobs of 1,000", JOBSETS, lambda: _one(_many_replicated_jobs(100, 1_000))),
        Attack("numbers: each at its maximum", JOBSETS, _numbers),
        Attack("sizes: annotations of 256 KiB", JOBSETS, lambda: _one(_wide_annotations())),
        Attack(
            f"sizes: {HEAVY_JOBSETS} suspended JobSets of {heavy_bytes // 1_000:,} kB",
            JOBSETS,
            lambda: _heavy(HEAVY_JOBSETS, heavy_bytes),
            one_by_one=True,
        ),
        Attack(
            f"failures: {FAILED_JOBS:,} Jobs and 380 patterns", JOBSETS, lambda: _one(_patterns()), fails=FAILED_JOBS
        ),
        Attack(f"number: {jobsets:,} JobSets", JOBSETS, lambda: _crowd(jobsets)),
        Attack(
            f"number: {FLOOD_JOBSETS} JobSets of {FLOOD_JOBS} Jobs in one namespace",
            JOBSETS,
            _flood,
            floods=FLOOD_JOBSETS * FLOOD_JOBS,
        ),
        Attack("number: 1,000 Jobs that claim another's JobSet", JOBS, lambda: _jobs(1_000, victim)),
        Attack(f"number: {pods:,} Pods with our labels", PODS, lambda: _pods(pods, victim)),
    )


def _one(manifest: KubeObject) -> Iterator[KubeObject]:
    yield manifest


def _jobset(name: str, *replicated_jobs: KubeObject, **spec: Any) -> KubeObject:
    """Return a JobSet that restarts in place, with a barrier deadline of a second."""
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": name, "annotations": {wire.BARRIER: "1"}},
        "spec": {
            "replicatedJobs": list(replicated_jobs),
            "failurePolicy": {"maxRestarts": INT32_MAX, "restartStrategy": "InPlaceRestart"},
        }
        | spec,
    }


def _replicated_job(name: str, slots: int, replicas: int, *, padding: int = 0, **job_spec: Any) -> KubeObject:
    container: KubeObject = {"name": "worker", "image": "train:1", "command": ["train"]}
    if padding:
        container["env"] = [{"name": "PADDING", "value": "x" * padding}]
    pod_spec = {"restartPolicy": "OnFailure", "containers": [container]}
    spec: KubeObject = {"parallelism": slots, "completions": slots, "template": {"spec": pod_spec}}
    spec |= {"backoffLimit": INT32_MAX, "podReplacementPolicy": "Failed"} | job_spec  # as in-place restart asks for
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def _slots(name: str, slots: int, *, replicas: int = 1, padding: int = 0) -> KubeObject:
    return _jobset(name, _replicated_job("workers", slots, replicas, padding=padding))


def _many_replicated_jobs(count: int, replicas: int) -> KubeObject:
    return _jobset("many", *(_replicated_job(f"workers-{number}", 1, replicas) for number in range(count)))


def _numbers() -> Iterator[KubeObject]:
    """Yield a JobSet for each number of the spec and of the annotations that the ones above leave small."""
    yield _jobset("ttl", _replicated_job("workers", 2, 1), ttlSecondsAfterFinished=INT32_MAX)
    yield _jobset("deadline", _replicated_job("workers", 2, 1, activeDeadlineSeconds=2**63 - 1))
    coordinator = {"replicatedJob": "workers", "jobIndex": 2**63 - 1, "podIndex": 2**63 - 1}
    yield _jobset("coordinator", _replicated_job("workers", 2, 1), coordinator=coordinator)
    manifest = _jobset("barrier", _replicated_job("workers", 2, 1))
    manifest["metadata"]["annotations"][wire.BARRIER] = str(INT32_MAX)
    yield manifest
    for name, numbers in (("policies", POLICIES), ("digits", dict.fromkeys(POLICIES, DIGITS))):
        manifest = _jobset(name, _replicated_job("workers", 2, 1))
        manifest["metadata"]["annotations"] |= numbers
        yield manifest


def _wide_annotations() -> KubeObject:
    job = _replicated_job("workers", 2, 1)
    job["template"]["spec"]["template"]["metadata"] = {"annotations": {"padding": "x" * ANNOTATION_BYTES}}
    return _jobset("annotations", job)


def _patterns() -> KubeObject:
    """Return a JobSet whose Jobs may fail one by one, with as many patterns as there may be, slow ones.

    RE2 simulates a large automaton for each character of a message. Each pattern differs: none is compiled twice.
    """
    patterns = [
        [f"(?:[ -z]?){{{800 + rule * 10 + number % 10}}}[{number}]!" for number in range(20)] for rule in range(19)
    ]
    rules = [
        {"name": f"rule{index}", "action": "FailJobSet", "onJobFailureMessagePatterns": some}
        for index, some in enumerate(patterns)
    ]
    slow = _jobset("patterns", _replicated_job("workers", 1, FAILED_JOBS))
    slow["spec"]["failurePolicy"] |= {
        "restartStrategy": "Recreate",
        "rules": [*rules, {"name": "else", "action": "FailJob"}],
    }
    return slow


def failed_status(number: int) -> KubeObject:
    """Return the status of a Job that failed, with a message as long as the Job controller's longest, and its own."""
    message = (
        f"Container {'c' * 63} for pod {NAMESPACE}/{'p' * 58}{number:05} failed with exit code 3 matching FailJob rule"
    )
    ended = {"status": "True", "reason": "PodFailurePolicy", "message": message} | dict.fromkeys(
        ("lastProbeTime", "lastTransitionTime"), START
    )
    return {"startTime": START, "conditions": [ended | {"type": kind} for kind in ("FailureTarget", "Failed")]}


def _heavy(count: int, heavy_bytes: int) -> Iterator[KubeObject]:
    """Yield large JobSets of many small strings: parsed, they take ten times their JSON."""
    variables = [{"name": f"N{number}", "value": str(number)} for number in range(heavy_bytes // VARIABLE_BYTES)]
    for number in range(count):
        job = _replicated_job("workers", 2, 1)
        job["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = variables
        yield _jobset(f"heavy-{number}", job, suspend=True)


def _crowd(count: int) -> Iterator[KubeObject]:
    for number in range(count):
        yield _jobset(f"crowd-{number}", _replicated_job("workers", 2, 1))


def _flood() -> Iterator[KubeObject]:
    """Yield JobSets whose Jobs stay: they have the usual barrier deadline."""
    for number in range(FLOOD_JOBSETS):
        manifest = _jobset(f"flood-{number}", _replicated_job("workers", 1, FLOOD_JOBS))
        del manifest["metadata"]["annotations"]
        yield manifest


def _jobs(count: int, victim: KubeObject) -> Iterator[KubeObject]:
    """Yield Jobs that claim to belong to a JobSet of another namespace; one has the name of its only Job."""
    metadata = victim["metadata"]
    owner = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "name": metadata["name"], "uid": metadata["uid"]}
    job_name = f"{metadata['name']}-{victim['spec']['replicatedJobs'][0]['name']}-0"
    for number in range(count):
        job = _replicated_job("workers", 2, 1)["template"]
        names = {"name": f"claims-{number}" if number else job_name, "ownerReferences": [owner | {"controller": True}]}
        yield {"metadata": names, "spec": job["spec"]}


def _pods(count: int, victim: KubeObject) -> Iterator[KubeObject]:
    """Yield Pods that claim to be workers of another user's JobSet, and of a Job that does not exist."""
    metadata = victim["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "none", "uid": "no-such-job", "controller": True}
    labels = {
        wire.JOBSET_NAME: metadata["name"],
        wire.JOBSET_UID: metadata["uid"],
        wire.REPLICATED_JOB_NAME: victim["spec"]["replicatedJobs"][0]["name"],
        wire.JOB_COMPLETION_INDEX: "0",
    }
    for number in range(count):
        yield {
            "metadata": {
                "name": f"pod-{number}",
                "labels": labels,
                "annotations": wire.epoch_annotations(INT32_MAX) | {wire.JOB_COMPLETION_INDEX: "0"},
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": "worker", "image": "train:1"}]},
        }
