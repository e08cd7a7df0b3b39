"""
Read the objects of Kubeflow Trainer: runtimes, which hold a JobSet's template, and TrainJobs, which name a runtime.

Makes of both the JobSet that Trainer 2.2 makes, as far as it decides about restarts: the launch variables of torchrun
and MPI are left out. Pure.
Source: trainer pkg/runtime/core/trainingruntime.go, pkg/runtime/framework/plugins/jobset/builder.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

GROUP: Final = "trainer.kubeflow.org"
RUNTIMES: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
TRAIN_JOB: Final = "TrainJob"
ANCESTOR: Final = f"{GROUP}/trainjob-ancestor-step"  # label of Job templates
TRAINER: Final = "trainer"  # its value where a TrainJob's `trainer` goes
CONTAINER: Final = "node"  # its container that trains; also the name of MPI's workers
PATCH_MANAGER: Final = "inplace.dev/inject"
# Of lists that a patch merges entry by entry: what tells their entries apart. It replaces all others.
_KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env"), "name"),
    "volumeMounts": "mountPath",
}


def is_runtime(document: KubeObject) -> bool:
    """Say whether an object is a runtime: a JobSet's template."""
    return document["kind"] in RUNTIMES and document["apiVersion"].partition("/")[0] == GROUP


def is_train_job(document: KubeObject) -> bool:
    """Say whether an object is a TrainJob, which names a runtime."""
    return bool(document["kind"] == TRAIN_JOB) and document["apiVersion"].partition("/")[0] == GROUP


def jobset_in(runtime: KubeObject) -> KubeObject:
    """Return the JobSet that Trainer makes of a runtime; a change of its spec changes the runtime."""
    held = _dict(_dict(runtime.get("spec")).get("template"))
    name = (runtime.get("metadata") or {}).get("name", "")
    metadata = {"name": name, "annotations": dict((held.get("metadata") or {}).get("annotations") or {})}
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": metadata, "spec": held.get("spec")}


def runtime_named(train_job: KubeObject) -> tuple[str, str]:
    """Return kind and name of a TrainJob's runtime."""
    named = (train_job.get("spec") or {}).get("runtimeRef") or {}
    return str(named.get("kind") or RUNTIMES[0]), str(named.get("name") or "")


def runtime_of(train_job: KubeObject, objects: Sequence[KubeObject]) -> KubeObject | None:
    """Return the runtime of a TrainJob; None where it is not among these objects."""
    return next((one for one in objects if is_runtime(one) and _is_named_by(train_job, one)), None)


def annotations_of(train_job: KubeObject) -> dict[str, Any]:
    """Return the annotations that a TrainJob gives to its JobSet: not its own, but those of its patches of the runtime.

    Before 2.2 Trainer had `spec.annotations` for it.
    """
    found = dict((train_job.get("spec") or {}).get("annotations") or {})
    for template in _patches(train_job):
        found |= (template.get("metadata") or {}).get("annotations") or {}
    return found


def jobset_of(train_job: KubeObject, runtime: KubeObject) -> KubeObject:
    """Return the JobSet that Trainer makes of a TrainJob and its runtime."""
    jobset = deepcopy(jobset_in(runtime))
    own = train_job.get("metadata") or {}
    jobset["metadata"]["annotations"] |= annotations_of(train_job)
    jobset["metadata"] |= {key: own[key] for key in ("name", "namespace") if own.get(key)}
    policy = _dict((runtime.get("spec") or {}).get("mlPolicy"))
    jobs = (jobset["spec"] or {}).get("replicatedJobs") or ()
    for template in _patches(train_job):
        for patch in (template.get("spec") or {}).get("replicatedJobs") or ():
            for job in jobs:
                if job.get("name") == patch.get("name"):
                    job["template"] = _merged(job.get("template") or {}, patch.get("template") or {})
    for job in jobs:
        _train(job, _dict((train_job.get("spec") or {}).get("trainer")), policy)
    return jobset


def trains(template: KubeObject) -> bool:
    """Say whether a Job template of a runtime gets what its TrainJobs say of their trainer."""
    return bool(((template.get("metadata") or {}).get("labels") or {}).get(ANCESTOR) == TRAINER)


def annotate_jobset(train_job: KubeObject, name: str, text: str) -> None:
    """Let a TrainJob give its JobSet an annotation, by a patch of its runtime."""
    patches = train_job["spec"].get("runtimePatches") or []
    annotations = {"template": {"metadata": {"annotations": {name: text}}}}
    train_job["spec"]["runtimePatches"] = [*patches, {"manager": PATCH_MANAGER, "trainingRuntimeSpec": annotations}]


def _is_named_by(train_job: KubeObject, runtime: KubeObject) -> bool:
    metadata, own = runtime.get("metadata") or {}, train_job.get("metadata") or {}
    kind, name = runtime_named(train_job)
    is_near = kind == RUNTIMES[0] or metadata.get("namespace") == own.get("namespace")
    return (runtime["kind"], metadata.get("name")) == (kind, name) and is_near


def _patches(train_job: KubeObject) -> Iterator[KubeObject]:
    """Yield the templates with which a TrainJob patches its runtime's."""
    for patch in (train_job.get("spec") or {}).get("runtimePatches") or ():
        if template := (patch.get("trainingRuntimeSpec") or {}).get("template"):
            yield template


def _train(job: KubeObject, trainer: KubeObject, policy: KubeObject) -> None:
    """Give a replicatedJob what a TrainJob says of its trainer, and its number of Pods."""
    template = job.get("template") or {}
    mpi = policy.get("mpi") if isinstance(policy.get("mpi"), dict) else None
    spec = template.get("spec") or {}
    if trains(template) or (mpi is not None and job.get("name") == CONTAINER):
        pods = _pods(trainer, policy, mpi, is_launcher=job.get("name") != CONTAINER)
        spec |= {"parallelism": pods, "completions": pods}
    for container in (
        ((spec.get("template") or {}).get("spec") or {}).get("containers") or () if trains(template) else ()
    ):
        if container.get("name") == CONTAINER:
            container |= {key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)}
            if resources := trainer.get("resourcesPerNode"):
                container["resources"] = deepcopy(resources)
            if env := trainer.get("env"):
                container["env"] = _merged_list(container.get("env") or [], env, _KEYS["env"])


def _pods(trainer: KubeObject, policy: KubeObject, mpi: KubeObject | None, *, is_launcher: bool) -> int:
    """Return how many Pods a replicatedJob has; of MPI's nodes the launcher may be one."""
    wanted = trainer.get("numNodes") or policy.get("numNodes")
    nodes = wanted if isinstance(wanted, int) else 1
    if mpi is None:
        return nodes
    if is_launcher:
        return 1
    return max(nodes - 1, 1) if mpi.get("runLauncherAsNode") else nodes


def _merged(old: KubeObject, patch: KubeObject) -> KubeObject:
    """Return a strategic merge patch's result, for the fields that a runtimePatch may have."""
    merged = dict(old)
    for key, value in patch.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merged(before, value)
        elif key in _KEYS and isinstance(before, list) and isinstance(value, list):
            merged[key] = _merged_list(before, value, _KEYS[key])
        else:
            merged[key] = value
    return merged


def _merged_list(old: Sequence[Any], patch: Sequence[Any], key: str) -> list[Any]:
    """Return two lists' entries, those with one key merged."""
    changes = {one.get(key): one for one in patch}
    known = {one.get(key) for one in old}
    return [
        *(_merged(one, changes.get(one.get(key), {})) for one in old),
        *(one for one in patch if one.get(key) not in known),
    ]


def _dict(value: object) -> KubeObject:
    return value if isinstance(value, dict) else {}
