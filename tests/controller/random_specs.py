"""Random JobSets that admission accepts, with every feature of the spec, alone and combined."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import strategies as st

from inplace.common.jobset.rules import ACTIONS
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.manifests import jobset, replicated_job

RACK = "example.com/rack"
REASONS = ("BackoffLimitExceeded", "PodFailurePolicy")
STRATEGIES = (None, "Recreate", "BlockingRecreate", "InPlaceRestart")
JOBS_MAX = 9  # three replicatedJobs of three Jobs: enough for every order, small enough to shrink


@st.composite
def manifests(draw: st.DrawFn, *, strategies: tuple[str | None, ...] = STRATEGIES) -> KubeObject:
    """Draw a JobSet."""
    names = ("a", "b", "c")[: draw(st.integers(0, 3))]
    jobs = [draw(_replicated_jobs(name)) for name in names]
    strategy = draw(st.sampled_from(strategies))
    manifest = jobset(strategy=strategy, jobs=jobs, restarts_max=draw(st.integers(0, 2)))
    manifest["metadata"]["generation"] = draw(st.integers(1, 3))
    if draw(st.integers(0, 4)) == 0:
        manifest["metadata"]["annotations"] = draw(_exclusive())
    if draw(st.integers(0, 2)) == 0:
        manifest["metadata"].setdefault("annotations", {}).update(draw(_policies()))
    spec = manifest["spec"]
    _draw_order(draw, spec, names)
    if strategy is not None:
        spec["failurePolicy"]["rules"] = draw(_rules(names))
    return manifest | {"spec": spec | deepcopy(draw(_optional_fields(names)))}


# Strategies that are made anew for each example cost as much as what they draw. What they share is copied.
@cache
def _optional_fields(names: tuple[str, ...]) -> st.SearchStrategy[KubeObject]:
    targets = _targets(names)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "suspend": st.booleans(),
        "ttlSecondsAfterFinished": st.sampled_from([0, 60]),
        "activeDeadlineSeconds": st.sampled_from([60, 10**6, 2**63 - 1]),
        "network": st.sampled_from([{}, {"enableDNSHostnames": False}, {"subdomain": "net"}]),
        "successPolicy": st.fixed_dictionaries(
            {"operator": st.sampled_from(["All", "Any"])}, optional={"targetReplicatedJobs": targets}
        ),
        "managedBy": st.sampled_from([wire.MANAGED_BY_BUILT_IN, wire.MANAGED_BY_US]),
        "volumeClaimPolicies": _claim_policies(),
    }
    if names:
        optional["coordinator"] = st.fixed_dictionaries(
            {"replicatedJob": st.sampled_from(names)}, optional={"jobIndex": st.integers(0, 2)}
        )
    return st.fixed_dictionaries({}, optional=optional)


@cache
def _targets(names: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=2, unique=True) if names else st.just([])


@cache
def _policies() -> st.SearchStrategy[dict[str, str]]:
    """Draw what comes after which failure."""
    escalations = (
        "InPlace=1,window=60",
        "RecreateJobs=1,window=60",
        "ReplacePod=1,RecreateJobs=2, InPlace=64,window=2592000",
        "InPlace=1,ReplacePod=1,mode=observe",
        "garbage",
    )
    failures = ("no-progress=1,short=60", "2", "same=2", "x", "no-progress=1,mode=observe")
    optional = {
        wire.ESCALATION: st.sampled_from(escalations),
        wire.FAILURES: st.sampled_from(failures),
        wire.NODES: st.sampled_from(("off", "failures=1,mode=observe")),
    }
    return st.fixed_dictionaries({}, optional=optional)


@st.composite
def _replicated_jobs(draw: st.DrawFn, name: str) -> KubeObject:
    job = replicated_job(name, replicas=draw(st.integers(0, 3)), pods=draw(st.integers(1, 3)))
    spec = job["template"]["spec"]
    metadata: dict[str, str] = {}
    if draw(st.integers(0, 4)) == 0:
        metadata[wire.DISABLE] = ""
    if draw(st.integers(0, 4)) == 0:
        metadata |= draw(_exclusive())
    if metadata:
        job["template"]["metadata"] = {"annotations": metadata}
    if draw(st.integers(0, 4)) == 0:
        spec["completionMode"] = draw(st.sampled_from(["Indexed", "NonIndexed"]))
    if draw(st.integers(0, 4)) == 0:
        spec["completions"] += 1
    if draw(st.integers(0, 4)) == 0:
        spec["template"]["spec"]["restartPolicy"] = draw(st.sampled_from(["", "OnFailure"]))
    if draw(st.booleans()):
        job["groupName"] = draw(st.sampled_from(["one", "two"]))
    if draw(st.booleans()):
        container = spec["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
    if draw(st.booleans()):
        spec["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": draw(st.integers(1, 2))}]
    return job


def _draw_order(draw: st.DrawFn, spec: KubeObject, names: tuple[str, ...]) -> None:
    """Let replicatedJobs start at once, in order, or after some of those before them."""
    match draw(st.sampled_from(["at once", "in order", "depends"])):
        case "in order":
            spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        case "depends":
            for position, job in enumerate(spec["replicatedJobs"][1:], start=1):
                before = draw(_targets(names[:position]))
                status = st.sampled_from(["Ready", "Complete"])
                job["dependsOn"] = [{"name": name, "status": draw(status)} for name in before]


@cache
def _rules(names: tuple[str, ...]) -> st.SearchStrategy[list[KubeObject]]:
    rule = st.fixed_dictionaries(
        {"name": st.sampled_from(["r", "s"]), "action": st.sampled_from(ACTIONS)},
        optional={
            "targetReplicatedJobs": _targets(names),
            "setConditionReason": st.sampled_from(["", "Evicted", "too bad"]),
            "onJobFailureReasons": st.lists(st.sampled_from(REASONS), max_size=1),
            "onJobFailureMessagePatterns": st.lists(st.sampled_from(["exit code [0-9]+", "^no$"]), max_size=1),
        },
    )
    return st.lists(rule, max_size=2, unique_by=lambda rule: rule["name"])


def _exclusive() -> st.SearchStrategy[dict[str, str]]:
    return st.sampled_from(
        [{wire.EXCLUSIVE_TOPOLOGY: RACK}, {wire.EXCLUSIVE_TOPOLOGY: RACK, wire.NODE_SELECTOR_STRATEGY: "true"}]
    )


@cache
def _claim_policies() -> st.SearchStrategy[list[KubeObject]]:
    template = {"metadata": {"name": "cache"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    retention = {"retentionPolicy": st.sampled_from([{}, {"whenDeleted": "Retain"}, {"whenDeleted": "Delete"}])}
    return st.lists(st.fixed_dictionaries({"templates": st.just([template])}, optional=retention), max_size=1)


def with_defaults(manifest: KubeObject) -> KubeObject:
    """Return a copy with every default written out that upstream's webhook and CRD fill in."""
    filled = deepcopy(manifest)
    spec = filled["spec"]
    for name, default in (
        ("successPolicy", {"operator": "All"}),
        ("startupPolicy", {"startupPolicyOrder": "AnyOrder"}),
    ):
        spec.setdefault(name, default)
    spec["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True} | spec.get("network", {})
    if "failurePolicy" in spec:
        spec["failurePolicy"] = {"restartStrategy": "Recreate"} | spec["failurePolicy"]
        for index, rule in enumerate(spec["failurePolicy"].get("rules", ())):
            rule["name"] = rule["name"] or f"failurePolicyRule{index}"
    for policy in spec.get("volumeClaimPolicies", ()):
        policy["retentionPolicy"] = {"whenDeleted": "Delete"} | policy.get("retentionPolicy", {})
    for job in spec["replicatedJobs"]:
        job |= {"groupName": "default", "replicas": 1} | job
        template = job["template"]["spec"]
        template.setdefault("completionMode", "Indexed")
        pod_spec = template["template"]["spec"]
        pod_spec["restartPolicy"] = pod_spec.get("restartPolicy") or "OnFailure"
    return filled


def without_defaults(manifest: KubeObject) -> KubeObject:
    """Return a copy without fields of default value, as an object older than the defaults is stored."""
    bare = deepcopy(manifest)
    spec = bare["spec"]
    if "failurePolicy" in spec:
        _drop(spec["failurePolicy"], restartStrategy="Recreate", maxRestarts=0, rules=[])
        for index, rule in enumerate(spec["failurePolicy"].get("rules", ())):
            if rule["name"] == f"failurePolicyRule{index}":
                rule["name"] = ""
    for name, defaults in (
        ("network", {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": ""}),
        ("successPolicy", {"operator": "All", "targetReplicatedJobs": []}),
        ("startupPolicy", {"startupPolicyOrder": "AnyOrder"}),
    ):
        if name in spec:
            _drop(spec[name], **defaults)
            _drop(spec, **{name: {}})
    _drop(spec, suspend=False, volumeClaimPolicies=[])
    for policy in spec.get("volumeClaimPolicies", ()):
        if "retentionPolicy" in policy:
            _drop(policy["retentionPolicy"], whenDeleted="Delete")
            _drop(policy, retentionPolicy={})
    for job in spec["replicatedJobs"]:
        _drop(job, replicas=1, groupName="default", dependsOn=[])
        _drop(job["template"]["spec"], completionMode="Indexed")
        for default in ("OnFailure", ""):
            _drop(job["template"]["spec"]["template"]["spec"], restartPolicy=default)
    return bare


def _drop(obj: KubeObject, **defaults: Any) -> None:
    for name, default in defaults.items():
        if name in obj and obj[name] == default:
            del obj[name]
