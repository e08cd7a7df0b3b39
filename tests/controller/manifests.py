"""JobSets for tests."""

from copy import deepcopy
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

INT32_MAX = 2**31 - 1


def replicated_job(name: str = "workers", *, replicas: int = 1, pods: int = 2, **spec: Any) -> KubeObject:
    """Return a replicatedJob that fits in-place restart."""
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": INT32_MAX,
                "podReplacementPolicy": "Failed",
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker:1"}]}
                },
            }
            | spec
        },
    }


def jobset(
    name: str = "train",
    *,
    jobs: list[KubeObject] | None = None,
    restarts_max: int = 3,
    strategy: str | None = wire.IN_PLACE_RESTART,
    namespace: str = "default",
    annotations: dict[str, str] | None = None,
    rules: list[KubeObject] | None = None,
    **spec: Any,
) -> KubeObject:
    """Return a JobSet; strategy None leaves the failure policy out, `rules` are those of the policy.

    Restarts in place do not wait where no annotations are given: most tests let a group fail several times in seconds.
    """
    if annotations is None:
        annotations = {wire.FAILURES: "backoff=0"} if strategy == wire.IN_PLACE_RESTART else {}
    policy: KubeObject = {} if strategy is None else {"maxRestarts": restarts_max, "restartStrategy": strategy}
    policy |= {} if rules is None else {"rules": rules}
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": name, "namespace": namespace} | ({"annotations": annotations} if annotations else {}),
        "spec": {"replicatedJobs": [replicated_job()] if jobs is None else jobs}
        | ({"failurePolicy": policy} if policy else {})
        | spec,
    }


def changed(obj: KubeObject, path: str, value: Any) -> KubeObject:
    """Return a copy with the field at `path` (a.b.0.c) set; None removes it."""
    copy = deepcopy(obj)
    *parents, last = path.split(".")
    place: Any = copy
    for part in parents:
        place = place[int(part)] if part.isdigit() else place.setdefault(part, {})
    if value is None:
        place.pop(last, None)
    else:
        place[int(last) if last.isdigit() else last] = value
    return copy
