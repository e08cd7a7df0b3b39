"""Read manifests, and change how many Pods a JobSet has and what holds their workers back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from inplace import deploy
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PATH

_DEPLOY = Path(deploy.__file__).parent  # the manifests are installed as this package's data
PER_JOB_VARIABLE = "PODS_PER_JOB"
WORLD_VARIABLE = "WORLD_SIZE"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # our CRD takes 0.6 s without libyaml, 0.05 s with it


def read_manifests(path: Path) -> list[KubeObject]:
    """Return the documents of a YAML file."""
    return [document for document in yaml.load_all(path.read_bytes(), _LOADER) if document]


@cache
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


def held_by_probe(jobset: KubeObject) -> KubeObject:
    """Return the JobSet of examples/train.yaml with the agent's startup probe instead of guards.

    This is what `inplace inject --barrier probe` writes; kubelet starts the workers.
    """
    jobset = deepcopy(jobset)
    for job in jobset["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        (agent,), (worker,) = pod["initContainers"], pod["containers"]
        probe = agent.pop("readinessProbe")
        probe["httpGet"]["path"] = OUR_PATH
        agent["startupProbe"] = probe | {"periodSeconds": 1, "failureThreshold": INT32_MAX}
        worker["command"] = worker["command"][worker["command"].index("--") + 1 :]
        for container, gone in ((agent, ("LINK_FILE",)), (worker, ("LINK_FILE", "SAVE_WITHIN_S"))):
            container["env"] = [entry for entry in container["env"] if entry["name"] not in gone]
        epoch = {"fieldRef": {"fieldPath": f"metadata.annotations['{wire.EPOCH}']"}}
        worker["env"].append({"name": "EPOCH", "valueFrom": epoch})
        worker["volumeMounts"] = [
            mount for mount in worker["volumeMounts"] if mount["name"] not in ("agent", "progress")
        ]
    return jobset


def probed_as_upstreams(jobset: KubeObject) -> KubeObject:
    """Return a JobSet of `inplace inject --barrier probe` with the startup probe of upstream's manifest.

    kubelet asks each second, and the agent answers at once; ours holds its answer until the lift.
    """
    jobset = deepcopy(jobset)
    for job in jobset["spec"]["replicatedJobs"]:
        (agent,) = job["template"]["spec"]["template"]["spec"]["initContainers"]
        agent["startupProbe"] = {
            "httpGet": {"path": OUR_PATH, "port": agent["startupProbe"]["httpGet"]["port"]},
            "periodSeconds": 1,
            "failureThreshold": INT32_MAX,
        }
    return jobset


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
