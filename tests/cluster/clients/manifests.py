"""JobSets for queues: plain ones, and ones that restart in place, as `inplace inject` makes them."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, Final

from inplace.cli.inject.inject import inject
from inplace.common.injection.pod import InjectOptions
from inplace.common.wire import names as wire

Object = dict[str, Any]

PORT: Final = {"containerPort": 29500}  # without a protocol, as people write it


def replicated_job(name: str = "workers", *, replicas: int = 1, pods: int = 2, cpu: str = "1", **spec: Any) -> Object:
    """Return a replicatedJob whose Pods ask for some CPU."""
    container = {
        "name": "worker",
        "image": "worker:1",
        "command": ["python3", "train.py"],
        "resources": {"requests": {"cpu": cpu}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    sizes = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return {"name": name, "replicas": replicas, "template": {"spec": {**sizes, "template": {"spec": pod}, **spec}}}


def jobset(*jobs: Object, name: str = "train", **spec: Any) -> Object:
    """Return a JobSet; without jobs it has one of two Pods."""
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": name},
        "spec": {"replicatedJobs": list(jobs or (replicated_job(),)), **spec},
    }


def in_place(manifest: Object, namespace: str, **options: Any) -> tuple[Object, list[Object]]:
    """Return the JobSet with the agent in it, and what its agents' account needs."""
    placed = deepcopy(manifest)
    placed["metadata"]["namespace"] = namespace
    documents, others = inject([placed], InjectOptions(**options))
    (injected,) = (each for each in documents if each["kind"] == wire.KIND)
    return json.loads(json.dumps(injected)), json.loads(json.dumps(others))
