"""JobSets, Jobs and Pods as a server shows them and a cache keeps them, and a membership to show them to."""

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.note import Note
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.tracking.group import Key
from inplace.controller.tracking.membership import Membership
from tests.controller.manifests import jobset, replicated_job


def make_membership(
    wake: Callable[[Key, float], None] = lambda _key, _delay_s: None,
    warn: Callable[[KubeObject, Note], None] = lambda _object, _note: None,
) -> Membership:
    """Return a membership that knows nothing yet."""
    return Membership(wake, warn, LoopClock(0.0), structlog.get_logger())


def with_identity(manifest: KubeObject, **metadata: Any) -> KubeObject:
    """Return an object as a server stores it."""
    return manifest | {"metadata": manifest["metadata"] | {"uid": "u", "resourceVersion": "1"} | metadata}


def parsed(manifest: KubeObject, **metadata: Any) -> JobSet:
    """Return a JobSet as the controller reads it from a server."""
    return parse_jobset(with_identity(manifest, **metadata))


def make_jobset(name: str = "train", *, uid: str = "js", version: int = 1, pods: int = 2, **status: Any) -> KubeObject:
    """Return a JobSet of one Job."""
    manifest = jobset(name, jobs=[replicated_job(pods=pods)])
    return with_identity(manifest, uid=uid, resourceVersion=str(version)) | {"status": status}


def make_job(uid: str = "job", *, owner: str = "js", attempt: int = 0, **metadata: Any) -> Job:
    """Return a Job."""
    keys = {wire.RESTART_ATTEMPT: str(attempt)}
    owners = [{"kind": "JobSet", "uid": owner, "controller": True}]
    raw = {"name": "train-workers-0", "uid": uid, "resourceVersion": "1", "namespace": "default"}
    raw |= {"labels": keys, "ownerReferences": owners} | metadata
    return msgspec.convert({"metadata": raw}, Job)


def make_pod(
    index: int | str, epoch: int | str | None, *, uid: str | None = None, job: str = "job", **parts: Any
) -> Pod:
    """Return a Pod."""
    raw: dict[str, Any] = {
        "name": f"p{index}",
        "namespace": "default",
        "uid": uid or f"pod-{index}",
        "resourceVersion": "1",
        "labels": {wire.JOBSET_UID: "js", wire.JOB_COMPLETION_INDEX: str(index)},
        "ownerReferences": [{"kind": "Job", "uid": job, "controller": True}],
        "annotations": {} if epoch is None else {wire.EPOCH: str(epoch)},
    }
    return msgspec.convert({"metadata": raw | parts.pop("metadata", {}), "status": parts.pop("status", {})}, Pod)


def pod_manifest(*, metadata: KubeObject | None = None, **parts: Any) -> KubeObject:
    """Return what a test needs of a Pod that belongs to nothing."""
    return with_identity({"metadata": {"name": "p", "namespace": "default"} | (metadata or {})}) | parts


def lone_pod(**parts: Any) -> Pod:
    """Return that Pod as a cache keeps it."""
    return msgspec.convert(pod_manifest(**parts), Pod)
