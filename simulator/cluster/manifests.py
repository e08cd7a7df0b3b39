"""Read manifests, and change how many Pods a JobSet has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inplace import deploy
from inplace.common.kube.resources import KubeObject

_DEPLOY = Path(deploy.__file__).parent  # the manifests are installed as this package's data
PER_JOB_VARIABLE = "PODS_PER_JOB"
WORLD_VARIABLE = "WORLD_SIZE"


def read_manifests(path: Path) -> list[KubeObject]:
    """Return the documents of a YAML file."""
    with path.open(encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


@cache  # parsing these files took half of a small simulation's time
def custom_resource_definitions() -> tuple[KubeObject, ...]:
    """Return the definitions that deploy/crd holds; every caller gets the same ones, so do not modify them."""
    documents = [doc for path in sorted((_DEPLOY / "crd").glob("*.yaml")) for doc in read_manifests(path)]
    return tuple(doc for doc in documents if doc.get("kind") == "CustomResourceDefinition")


@cache
def admission_policies() -> tuple[KubeObject, ...]:
    """Return the admission policies of deploy/admission that apply to JobSets.

    Two files are left out: agents.yaml needs tokens that are bound to a Pod, and tokens here are not;
    defaults.yaml holds a MutatingAdmissionPolicy, and the controller does the same without it. As with the
    definitions, do not modify them.
    """
    folder = _DEPLOY / "admission"
    return tuple(doc for name in ("jobsets.yaml", "immutable.yaml") for doc in read_manifests(folder / name))


def with_pods(documents: Iterable[KubeObject], pods: int) -> list[KubeObject]:
    """Return the documents with the parallelism of each JobSet's Jobs changed to make `pods` Pods in all.

    The variables that tell the workers how many they are (PODS_PER_JOB, WORLD_SIZE) change with them.

    Raises:
        ValueError: `pods` cannot be divided by the number of Jobs.
    """
    return [_resized(doc, pods) if doc.get("kind") == "JobSet" else doc for doc in documents]


def _resized(jobset: KubeObject, pods: int) -> KubeObject:
    jobset = deepcopy(jobset)
    replicated = jobset["spec"]["replicatedJobs"]
    jobs = sum(int(job.get("replicas", 1)) for job in replicated)
    per_job, rest = divmod(pods, jobs)
    if rest or per_job < 1:
        raise ValueError(f"expected a number of Pods that {jobs} Jobs can share evenly, saw {pods}")
    for job in replicated:
        job["template"]["spec"] |= {"parallelism": per_job, "completions": per_job}
        values = {PER_JOB_VARIABLE: str(per_job), WORLD_VARIABLE: str(pods)}
        _set_variables(job["template"]["spec"]["template"]["spec"].get("containers") or (), values)
    return jobset


def _set_variables(containers: Sequence[dict[str, Any]], values: dict[str, str]) -> None:
    for container in containers:
        for entry in container.get("env") or ():
            if entry["name"] in values:
                entry["value"] = values[entry["name"]]
