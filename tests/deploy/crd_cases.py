"""
Manifests that the CRD accepts or refuses: cases that run on the embedded API server and on a real one.

A refusal's `words` must all be in the server's message: the path, the value needed, and how to fix it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inplace.common.jobset.furthest_behind import NAMED_MAX, FurthestBehind
from inplace.common.jobset.goodput import FIELD, Goodput, Run
from inplace.common.jobset.notices import ENTRIES_MAX, GroupNotice
from inplace.common.jobset.slow_ranks import NAMED_MAX as SLOW_MAX
from inplace.common.jobset.slow_ranks import SlowRank, SlowRanks
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import STEP_MAX
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire.notice import KINDS, VALUE_MAX
from inplace.common.wire.phases import MILLISECONDS_MAX
from inplace.simulator.cluster.manifests import custom_resource_definitions
from tests.controller.manifests import changed, jobset, replicated_job

CRD_FILE: Final = Path(__file__).parents[2] / "deploy" / "crd" / "jobsets.yaml"
SPEC: Final = "spec.replicatedJobs.0.template.spec"
LAST_MOMENT: Final = "2286-11-20T17:46:39.999000Z"  # that a notice can have
INDEXED_PODS_MAX: Final = 100_000
"""Parallelism of an Indexed Job. Source: k8s.io/kubernetes pkg/apis/batch/validation, maxParallelismForIndexedJob."""


def crd() -> KubeObject:
    """Return the CRD, a copy that the caller may change."""
    (document,) = custom_resource_definitions()
    return deepcopy(document)


def with_opaque_templates(crd: KubeObject) -> KubeObject:
    """Return the CRD without what `deploy.template_schema` writes, as it was before."""
    found = deepcopy(crd)
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    job = spec["properties"]["replicatedJobs"]["items"]["properties"]["template"]["properties"]["spec"]["properties"]
    pod = job["template"]["properties"]["spec"]
    for name in ("podFailurePolicy", "selector"):
        del job[name]
    pod["properties"] = {"restartPolicy": pod["properties"]["restartPolicy"]}
    return found


def without_rules(schema: Any) -> Any:
    """Return a schema that leaves every value to the controller: no CEL, no pattern, no default, no bound."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key not in _RULES or not isinstance(value, _RULES[key])}
        return {key: without_rules(value) for key, value in kept.items()}
    return [without_rules(item) for item in schema] if isinstance(schema, list) else schema


_RULES: Final[dict[str, type | tuple[type, ...]]] = {
    "x-kubernetes-validations": list,
    "pattern": str,
    "default": (str, int, dict),
    "maxLength": int,
    "maximum": int,
}


def crd_without_rules() -> KubeObject:
    """Return the CRD without rules and with opaque templates, as an older version could be."""
    document: KubeObject = without_rules(with_opaque_templates(crd()))
    return document


@dataclass(frozen=True, slots=True)
class Create:
    """A manifest, and the words of its refusal; none means that it is accepted."""

    claim: str
    manifest: KubeObject
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """A change to an accepted manifest."""

    claim: str
    path: str
    value: Any
    words: tuple[str, ...] = ()
    before: KubeObject | None = None


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A status that follows another."""

    claim: str
    before: dict[str, Any]
    after: dict[str, Any]
    words: tuple[str, ...] = ()


NO_POLICY: Final = jobset(strategy=None, jobs=[replicated_job(backoffLimit=0)])
SUSPENDED: Final = jobset(suspend=True)
POD: Final = f"{SPEC}.template"

OPTED_OUT: Final = replicated_job("monitor", backoffLimit=3, podReplacementPolicy="TerminatingOrFailed", completions=5)
OPTED_OUT["template"]["metadata"] = {"annotations": {"jobset.sigs.k8s.io/disable-in-place-restart": ""}}


def generated(prefix: str, manifest: KubeObject) -> KubeObject:
    """Return a manifest whose name the server makes of a prefix and five characters."""
    return manifest | {"metadata": {"namespace": "default", "generateName": prefix}}


CREATES: Final = (
    Create("generated_name", generated("train-", jobset())),
    Create("generated_name_at_the_limit", generated("a" * 40, jobset())),
    Create(
        "generated_job_name_too_long",
        generated("a" * 49, jobset(jobs=[replicated_job(completionMode="NonIndexed", backoffLimit=0)], strategy=None)),
        ("JobSet name is too long, job names generated for this JobSet will exceed 63 characters",),
    ),
    Create(
        "generated_pod_name_too_long",
        generated("a" * 41, jobset()),
        ("JobSet name is too long, pod names generated for this JobSet will exceed 63 characters",),
    ),
    Create(
        "generated_coordinator_label_too_long",
        generated("a" * 21, jobset(coordinator={"replicatedJob": "workers"})),
        ("spec will lead to invalid label value", "for coordinator label"),
    ),
    Create(
        "generated_claim_name_too_long",
        generated("a" * 38, jobset(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "d" * 20}}]}])),
        ("VolumeClaimPolicies template name is too long",),
    ),
    Create("opted_out_needs_nothing", jobset(jobs=[replicated_job(), OPTED_OUT])),
    Create(
        "other_annotations_opt_nobody_out",
        changed(jobset(), "spec.replicatedJobs.0.template", OPTED_OUT["template"] | {"metadata": {"annotations": {}}}),
        ("must be set to 2147483647", "jobset.sigs.k8s.io/disable-in-place-restart"),
    ),
    Create("active_deadline", jobset(activeDeadlineSeconds=1)),
    Create("the_longest_active_deadline", jobset(activeDeadlineSeconds=2**63 - 1)),
    Create(
        "no_active_deadline",
        jobset(activeDeadlineSeconds=0),
        ("spec.activeDeadlineSeconds", "greater than or equal to 1"),
    ),
    Create("managed_by_us", jobset(managedBy="inplace.dev/jobset-controller")),
    Create("in_place", jobset()),
    Create("without_replicated_jobs", jobset(jobs=[])),
    Create("without_replicated_jobs_at_all", changed(jobset(strategy=None), "spec.replicatedJobs", None)),
    Create("other_strategies_need_nothing", NO_POLICY),
    Create("unknown_fields_of_templates", changed(jobset(), f"{POD}.spec.schedulingGroup", {"podGroupName": "g"})),
    Create(
        "backoff_limit_wrong",
        changed(jobset(), f"{SPEC}.backoffLimit", 6),
        (
            'spec.replicatedJobs[name="workers"].template.spec.backoffLimit: found 6',
            "must be set to 2147483647",
            "set backoffLimit to",
        ),
    ),
    Create("backoff_limit_absent", changed(jobset(), f"{SPEC}.backoffLimit", None)),
    Create(
        "second_replicated_job_wrong",
        jobset(jobs=[replicated_job("a"), replicated_job("b", backoffLimit=0)]),
        ('spec.replicatedJobs[name="b"].template.spec.backoffLimit: found 0', "2147483647"),
    ),
    Create(
        "pod_replacement_policy_wrong",
        changed(jobset(), f"{SPEC}.podReplacementPolicy", "TerminatingOrFailed"),
        (
            'spec.replicatedJobs[name="workers"].template.spec.podReplacementPolicy: found TerminatingOrFailed',
            "must be set to Failed",
        ),
    ),
    Create("pod_replacement_policy_absent", changed(jobset(), f"{SPEC}.podReplacementPolicy", None)),
    Create(
        "completions_differ",
        changed(jobset(), f"{SPEC}.completions", 5),
        ("completions: found 5, and parallelism 2", "must be set and equal to each other", "set both"),
    ),
    Create("completions_absent", changed(jobset(), f"{SPEC}.completions", None)),
    Create("parallelism_absent", changed(jobset(), f"{SPEC}.parallelism", None), ("and parallelism nothing",)),
    Create(
        "non_indexed",
        changed(jobset(), f"{SPEC}.completionMode", "NonIndexed"),
        ("completionMode: found NonIndexed", "completionMode must be Indexed", "remove completionMode"),
    ),
    Create("indexed", changed(jobset(), f"{SPEC}.completionMode", "Indexed")),
    Create("job_name_fits", jobset("j" * 40, jobs=[replicated_job("w" * 10)])),
    Create(
        "job_name_too_long",
        jobset("j" * 40, jobs=[replicated_job("w" * 30, replicas=11)]),
        (
            "metadata.name: JobSet name is too long, job names generated for this JobSet will exceed 63 characters",
            f"found {'j' * 40}-{'w' * 30}-10",
            "shorten",
        ),
    ),
    Create(
        "pod_name_too_long",
        jobset("j" * 40, jobs=[replicated_job("w" * 18)]),
        (
            "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters",
            f"found {'j' * 40}-{'w' * 18}-0-1-xxxxx",
        ),
    ),
    Create("name_with_dots", jobset("a.b"), ('metadata.name: found "a.b"', "rename the JobSet")),
    Create(
        "too_many_pods",
        changed(
            NO_POLICY, "spec.replicatedJobs.0", replicated_job(replicas=2, pods=2**30 + 1, completionMode="NonIndexed")
        ),
        ("found 2 replicas of 1073741825 pods", "product of replicas and parallelism", "lower one"),
    ),
    Create(
        "too_many_pods_of_an_indexed_job",
        changed(NO_POLICY, "spec.replicatedJobs.0", replicated_job(pods=INDEXED_PODS_MAX + 1)),
        (
            "spec.replicatedJobs[0].template.spec.parallelism",
            "must be less than or equal to 100000 when completion mode is Indexed",
            "lower it",
        ),
    ),
    Create("an_indexed_job_of_the_most_pods", jobset(jobs=[replicated_job(pods=INDEXED_PODS_MAX)])),
    Create(
        "an_indexed_job_of_more_completions",
        changed(NO_POLICY, "spec.replicatedJobs.0", replicated_job(pods=10, completions=1_000_000)),
    ),
    Create(
        "too_many_jobs",
        changed(NO_POLICY, "spec.replicatedJobs.0", replicated_job(replicas=100_001)),
        ("spec.replicatedJobs[0].replicas", "less than or equal to 100000"),
    ),
    Create("duplicate_names", jobset(jobs=[replicated_job("a"), replicated_job("a")]), ("Duplicate value",)),
    Create("strategy_unknown", jobset(strategy="Sideways"), ("spec.failurePolicy.restartStrategy", "InPlaceRestart")),
    Create(
        "startup_and_depends_on",
        jobset(
            startupPolicy={"startupPolicyOrder": "InOrder"},
            jobs=[replicated_job("a"), replicated_job("b") | {"dependsOn": [{"name": "a", "status": "Ready"}]}],
        ),
        ("StartupPolicy and DependsOn APIs are mutually exclusive",),
    ),
)

UPDATES: Final = (
    Update("suspend", "spec.suspend", True),
    Update("ttl", "spec.ttlSecondsAfterFinished", 60),
    Update("active_deadline_added", "spec.activeDeadlineSeconds", 60),
    Update("active_deadline_raised", "spec.activeDeadlineSeconds", 90, (), jobset(activeDeadlineSeconds=60)),
    Update("active_deadline_removed", "spec.activeDeadlineSeconds", None, (), jobset(activeDeadlineSeconds=60)),
    Update("labels", "metadata.labels", {"team": "a"}),
    Update("strategy", "spec.failurePolicy.restartStrategy", "Recreate", ("spec.failurePolicy", "immutable")),
    Update("max_restarts", "spec.failurePolicy.maxRestarts", 9, ("spec.failurePolicy", "immutable")),
    Update("failure_policy_removed", "spec.failurePolicy", None, ("spec.failurePolicy", "immutable")),
    Update(
        "in_place_smuggled_in",
        "spec.failurePolicy",
        {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
        ("spec.failurePolicy: Value is immutable",),
        NO_POLICY,
    ),
    Update("network_added", "spec.network", {"subdomain": "net"}, ("spec.network", "immutable")),
    Update("success_policy_added", "spec.successPolicy", {"operator": "Any"}, ("spec.successPolicy", "immutable")),
    Update("managed_by_added", "spec.managedBy", "example.com/other", ("spec.managedBy", "immutable")),
    Update("replicas", "spec.replicatedJobs.0.replicas", 2, ("spec.replicatedJobs", "immutable")),
    Update(
        "parallelism_without_completions",
        f"{SPEC}.parallelism",
        3,
        ("completions must be equal to parallelism for Elastic Indexed Jobs",),
        NO_POLICY,
    ),
    Update("elastic", SPEC, replicated_job(pods=3, backoffLimit=0)["template"]["spec"], (), NO_POLICY),
    Update(
        "elastic_beyond_an_indexed_job",
        SPEC,
        replicated_job(pods=INDEXED_PODS_MAX + 1, backoffLimit=0)["template"]["spec"],
        ("spec.replicatedJobs[0].template.spec.parallelism", "must be less than or equal to 100000"),
        NO_POLICY,
    ),
    Update("elastic_in_place", SPEC, replicated_job(pods=1)["template"]["spec"]),
    Update(
        "elastic_to_nothing",
        SPEC,
        replicated_job(pods=0)["template"]["spec"],
        ("for Elastic Indexed Jobs", "parallelism must be >= 1"),
    ),
    Update(
        "elastic_non_indexed",
        SPEC,
        replicated_job(pods=3, backoffLimit=0, completionMode="NonIndexed")["template"]["spec"],
        ("a replicatedJob that is not Indexed cannot change them",),
        jobset(strategy=None, jobs=[replicated_job(backoffLimit=0, completionMode="NonIndexed")]),
    ),
    Update("added_job", "spec.replicatedJobs", [replicated_job("a"), replicated_job("b")], ("immutable",)),
    Update("pod_labels_while_suspended", f"{POD}.metadata", {"labels": {"a": "b"}}, (), SUSPENDED),
    Update("node_selector_while_suspended", f"{POD}.spec.nodeSelector", {"zone": "a"}, (), SUSPENDED),
    Update("replicas_while_suspended", "spec.replicatedJobs.0.replicas", 2, ("immutable",), SUSPENDED),
    Update("parallelism_while_suspended", f"{SPEC}.parallelism", 3, ("for Elastic Indexed Jobs",), SUSPENDED),
)

STATUSES: Final = (
    StatusChange("first_sync", {}, {"syncedEpoch": 1, "currentInPlaceRestartAttempt": 0}),
    StatusChange(
        "a_trigger_of_a_newer_controller",
        {"syncedEpoch": 1},
        {"syncedEpoch": 1, "deprecatedEpoch": 1}
        | {"lastGroupRestart": {"epoch": 2, "trigger": "new", "startedAt": "2026-01-01T00:00:00.000001Z"}},
    ),
    StatusChange(
        "the_largest_first_silent",
        {"syncedEpoch": 2},
        {"syncedEpoch": 2}
        | {
            "lastGroupRestart": {
                "epoch": 2,
                "trigger": "stalled",
                "startedAt": "2026-01-01T00:00:00.000001Z",
                "firstSilent": FurthestBehind(
                    ("p" * 253,) * NAMED_MAX, 100_000, LastProgress(STEP_MAX, MILLISECONDS_MAX / 1000)
                ).fields(),
            }
            | SlowRanks((SlowRank("p" * 253, "n" * 253, 9_999_999, 999_999),) * SLOW_MAX, 999_999).fields()
        },
    ),
    StatusChange(
        "the_most_notices",
        {"syncedEpoch": 2},
        {"syncedEpoch": 2}
        | {
            "notices": [
                GroupNotice(
                    kind, 2**31 - 1, "s" * 63, VALUE_MAX, "r" * 32, STEP_MAX, f"{number:0253}", "n" * 253, LAST_MOMENT
                ).fields()
                for kind in KINDS
                for number in range(ENTRIES_MAX // len(KINDS))
            ]
        },
    ),
    StatusChange(
        "a_notice_too_many",
        {"syncedEpoch": 2},
        {"syncedEpoch": 2, "notices": [GroupNotice("new", 1).fields()] * (ENTRIES_MAX + 1)},
        ("notices", "64"),
    ),
    StatusChange(
        "the_largest_goodput",
        {"syncedEpoch": 2},
        {"syncedEpoch": 2}
        | {
            FIELD: Goodput(
                2**31 - 1, 1e12, 1e12, 1e12, STEP_MAX, Run(0, STEP_MAX, MILLISECONDS_MAX / 10_000, 1_790_000_000.0)
            ).fields()
        },
    ),
    StatusChange("executions", {}, {"executionAttempts": 2**31 - 1, "startTime": "2026-01-01T00:00:00Z"}),
    StatusChange(
        "executions_below_zero", {}, {"executionAttempts": -1}, ("executionAttempts", "greater than or equal")
    ),
    StatusChange("deprecate", {"syncedEpoch": 1}, {"syncedEpoch": 1, "deprecatedEpoch": 1}),
    StatusChange(
        "synced_decreases",
        {"syncedEpoch": 2},
        {"syncedEpoch": 1},
        ("syncedEpoch", "never decreases", "read the JobSet"),
    ),
    StatusChange(
        "attempt_decreases",
        {"currentInPlaceRestartAttempt": 2},
        {"currentInPlaceRestartAttempt": 1},
        ("never decreases",),
    ),
    StatusChange(
        "deprecated_decreases",
        {"syncedEpoch": 3, "deprecatedEpoch": 2},
        {"syncedEpoch": 3, "deprecatedEpoch": 1},
        ("deprecatedEpoch", "never decreases"),
    ),
    StatusChange(
        "deprecated_ahead", {"syncedEpoch": 1}, {"syncedEpoch": 1, "deprecatedEpoch": 2}, ("must not exceed",)
    ),
    StatusChange(
        "upstream_controller_takes_over",
        {"syncedEpoch": 2, "currentInPlaceRestartAttempt": 1},
        {"currentInPlaceRestartAttempt": 1},
    ),
    StatusChange(
        "upstream_controller_goes_back",
        {"syncedEpoch": 2, "currentInPlaceRestartAttempt": 1},
        {"currentInPlaceRestartAttempt": 0},
        ("never decreases",),
    ),
)
