"""What a simulated cluster does not answer by itself: every field of a JobSet's status, logs, and other controllers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any, Final

from inplace.agent.report.log_line import log_line
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import custom_resource_definitions
from tests.cli.logs.room import START_S, at
from tests.cli.stacks.room import stack, taken

ANNOTATIONS: Final[Mapping[str, str]] = {
    wire.NODES: "2",
    wire.ESCALATION: "1",
    wire.RESTART_ON: "loss+slow",
    wire.STALL: "after=600,start=900",
    wire.FENCE_AFTER: "60",
    wire.BARRIER: "600",
    wire.FAILURES: "no-progress=3,short=600,same=4,backoff=10",
    wire.RESTART: "depth=process,save-within=60",
    wire.RESTART_SCOPE: "ReplicatedJob",
    wire.MEMBERS: "max=1",
    wire.DISABLE: "",
    wire.STACKS_REQUESTED: str(int(START_S * 1000)),
}


def _line(second: float, text: str) -> bytes:
    return f"{at(second).removesuffix('Z')}.000000001Z {text}\n".encode()


LOG: Final = b"".join(
    (
        _line(1, log_line(START_S + 1, "info", "worker_started", {"epoch": 2})),
        _line(2, "step 1 loss 0.5"),
        *(_line(3, log_line(START_S + 3, "info", event, fields)) for event, fields in (stack(), stack(pid=8), taken())),
        _line(4, "RuntimeError: no"),
        _line(5, log_line(START_S + 5, "info", "worker_ended", {"epoch": 2, "exit_code": 1})),
    )
)
SHORT_TEXTS: Final = {
    "status": "True",
    "type": "SpecProblem",
    "trigger": "worker_exit",
    "kind": "loss",
    "rank": "rank-0",
    "members": "v1,epoch=2,size=1,seen=1",
}


def _of_schema(schema: Mapping[str, Any], name: str) -> Any:
    """Return a value that a schema accepts, with each of its fields."""
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {key: _of_schema(inner, key) for key, inner in (schema.get("properties") or {}).items()}
        case "array":
            return [_of_schema(schema.get("items") or {}, name) for _ in range(2)]
        case "integer":
            return 2
        case "boolean":
            return True
    is_moment = name.endswith(("At", "Time", "since", "until")) or schema.get("format") == "date-time"
    return at(1) if is_moment else SHORT_TEXTS.get(name, "workers")


@cache
def _status() -> KubeObject:
    (crd,) = (one for one in custom_resource_definitions() if one["spec"]["names"]["kind"] == wire.KIND)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    found: KubeObject = _of_schema(schema, "status")
    return found


def enriched(rng: Random, jobset: KubeObject) -> None:
    """Give a JobSet some annotations, and some of the fields that a status may have."""
    metadata = jobset["metadata"]
    metadata["annotations"] = dict(metadata.get("annotations") or {})
    for name in rng.sample(sorted(ANNOTATIONS), rng.choice((0, 0, 1, 4))):
        metadata["annotations"][name] = ANNOTATIONS[name]
    more = deepcopy(_status())
    for name in rng.sample(sorted(more), rng.choice((0, 1, 3, len(more)))):
        jobset.setdefault("status", {})[name] = more[name]


def _list(kind: str, *items: KubeObject) -> bytes:
    found = [{"metadata": {"name": f"{kind.lower()}-{place}", "uid": "u"}} | item for place, item in enumerate(items)]
    return json.dumps({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": found}).encode()


_RULE: Final = {"apiGroups": [""], "operations": ["UPDATE"], "resources": ["pods"]}
_CONDITION: Final = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}
_ARGS: Final = ["--agent-image=i", "--agent-opt-in"]
OTHERS: Final[Mapping[str, bytes]] = {
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads": _list(
        "Workload",
        {
            "spec": {"active": True},
            "status": {"conditions": [_CONDITION], "admissionChecks": [{"name": "c", "state": "Pending"}]},
        },
    ),
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": _list(
        "ValidatingWebhookConfiguration",
        {
            "webhooks": [
                {"name": "w", "rules": [_RULE], "namespaceSelector": {"matchExpressions": [{"operator": "In"}]}}
            ]
        },
    ),
    "/apis/apps/v1/deployments": _list(
        "Deployment", {"spec": {"template": {"spec": {"containers": [{"name": "controller", "args": _ARGS}]}}}}
    ),
    "/apis/coordination.k8s.io/v1/namespaces/inplace-system/leases/inplace-controller": json.dumps(
        {"kind": "Lease", "metadata": {"name": "l", "uid": "u"}, "spec": {"holderIdentity": "c"}}
    ).encode(),
}
