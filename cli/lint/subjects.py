"""Find what lint judges in a file: JobSets, and those that Kubeflow Trainer makes of TrainJobs and runtimes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inplace.cli.lint.jobset import PREFIXES
from inplace.cli.manifests.documents import is_jobset, name_of
from inplace.cli.manifests.trainer import (
    ANCESTOR,
    CONTAINER,
    TRAINER,
    annotations_of,
    is_runtime,
    is_train_job,
    jobset_in,
    jobset_of,
    runtime_named,
    runtime_of,
)
from inplace.common.injection.finding import Finding
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

_NAME: Final = "train"  # of a JobSet whose TrainJob is not there; a runtime's own name need not be one
_OF_TRAIN_JOBS: Final = "spec.runtimePatches[].trainingRuntimeSpec.template.metadata.annotations"
_OF_RUNTIMES: Final = "spec.template.metadata.annotations"


@dataclass(frozen=True, slots=True)
class Subject:
    """One JobSet to judge.

    Args:
        name: for people.
        findings: about the objects that it is made of.
        is_whole: all that decides is in the file.
    """

    name: str
    jobset: KubeObject
    findings: tuple[Finding, ...] = ()
    is_whole: bool = True


def subjects(objects: Sequence[KubeObject]) -> Iterator[Subject]:
    """Yield every JobSet, that of every TrainJob, and that of every runtime which no TrainJob of the file names."""
    train_jobs = list(filter(is_train_job, objects))
    used = [id(runtime_of(train_job, objects)) for train_job in train_jobs]
    for obj in objects:
        if is_jobset(obj):
            yield Subject(name_of(obj), obj)
        elif is_train_job(obj):
            yield _of_train_job(obj, runtime_of(obj, objects))
        elif is_runtime(obj) and id(obj) not in used:
            made = jobset_in(obj)
            made["metadata"]["name"] = _NAME
            yield Subject(f"JobSet of {name_of(obj)}", made, tuple(_unread(obj, _OF_RUNTIMES)))


def _of_train_job(train_job: KubeObject, runtime: KubeObject | None) -> Subject:
    """Return the JobSet of a TrainJob; without its runtime as far as the TrainJob tells."""
    name, unread = f"JobSet of {name_of(train_job)}", tuple(_unread(train_job, _OF_TRAIN_JOBS))
    if runtime is not None:
        return Subject(name, jobset_of(train_job, runtime), (*unread, *_unread(runtime, _OF_RUNTIMES)))
    kind, named = runtime_named(train_job)
    found = f"{kind} {named}, which is not in this file"
    fix = f"lint both together, such as with `kubectl get {kind.lower()} {named} -o yaml` behind `---`"
    unknown = Finding("runtime-unknown", "spec.runtimeRef", found, "the runtime, which has the Pods", fix)
    is_whole = wire.RESTART_IN_PLACE in annotations_of(train_job)  # else the runtime alone says what happens
    return Subject(name, jobset_of(train_job, _stand_in(train_job)), (unknown, *unread), is_whole)


def _stand_in(train_job: KubeObject) -> KubeObject:
    """Return a runtime with one container, so that the TrainJob's command is judged; without a command no Pods."""
    trainer = (train_job.get("spec") or {}).get("trainer") or {}
    pod = {"spec": {"containers": [{"name": CONTAINER, "image": "unknown:1"}]}}
    job = {"metadata": {"labels": {ANCESTOR: TRAINER}}, "spec": {"template": pod}}
    jobs = [{"name": CONTAINER, "template": job}] if trainer.get("command") else []
    return {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _unread(obj: KubeObject, place: str) -> Iterator[Finding]:
    """Yield our annotations of an object that Trainer hands to no JobSet."""
    for name in (obj.get("metadata") or {}).get("annotations") or {}:
        if str(name).startswith(PREFIXES):
            path, found = f'metadata.annotations["{name}"]', f"{name} on {name_of(obj)} itself"
            yield Finding("trainer-annotation", path, found, f"it in {place}", "move it there")
