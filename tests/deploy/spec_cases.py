"""
Cases of upstream's webhook, on create and on update (V2 to V24 and its update rules), and of the CRD's defaults.

The admission policy's part is in policy_cases.py. Source: jobset pkg/webhooks/jobset_webhook.go, and the gaps of
upstream's that are closed here: docs/adr/0012.
"""

from __future__ import annotations

from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from tests.controller.manifests import jobset, replicated_job
from tests.deploy import scheduling_cases
from tests.deploy.crd_cases import SPEC, SUSPENDED, Create, Update

COORDINATOR: Final = {"replicatedJob": "workers", "jobIndex": 0, "podIndex": 1}


def plain(*jobs: KubeObject, **spec: Any) -> KubeObject:
    """Return a JobSet that restarts by recreation."""
    return jobset(strategy=None, jobs=list(jobs) or [replicated_job(backoffLimit=0)], **spec)


def depending(name: str, *others: str) -> KubeObject:
    """Return a replicatedJob that waits for others."""
    return replicated_job(name) | {"dependsOn": [{"name": other, "status": "Ready"} for other in others]}


def with_rules(*rules: KubeObject, jobs: tuple[KubeObject, ...] = ()) -> KubeObject:
    """Return a JobSet with these failure policy rules."""
    return plain(*jobs, failurePolicy={"maxRestarts": 1, "rules": list(rules)})


def rule(name: str = "first", action: str = "FailJobSet", **more: Any) -> KubeObject:
    """Return a rule of a failure policy."""
    return {"name": name, "action": action} | more


def claim(name: str, **metadata: Any) -> KubeObject:
    """Return a template of volumeClaimPolicies."""
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name} | metadata, "spec": storage}


def claims(*templates: KubeObject) -> list[KubeObject]:
    """Return volumeClaimPolicies with these templates."""
    return [{"templates": list(templates)}]


SPEC_CREATES: Final = (
    *scheduling_cases.CRD_CREATES,
    Create("depends_on_in_order", plain(replicated_job("a"), depending("b", "a"), depending("c", "a", "b"))),
    Create(
        "v2_first_depends",
        plain(depending("a", "b"), replicated_job("b")),
        ("spec.replicatedJobs[0].dependsOn: found", "DependsOn can't be set for the first ReplicatedJob", "remove it"),
    ),
    Create("v3_subdomain_with_dots", plain(network={"subdomain": "a.b"}), ("spec.network.subdomain", "a.b")),
    Create("v3_subdomain_too_long", plain(network={"subdomain": "s" * 64}), ("spec.network.subdomain", "63")),
    Create("v4_managed_by", plain(managedBy="acme.io/foo")),
    Create(
        "v4_managed_by_without_domain",
        plain(managedBy="nobody"),
        ("spec.managedBy", '"nobody"', "must be a domain-prefixed path", "remove managedBy"),
    ),
    Create("v4_managed_by_too_long", plain(managedBy="acme.io/" + "f" * 60), ("spec.managedBy", "63")),
    Create(
        "v6_group_name",
        plain(replicated_job("a") | {"groupName": "A_b"}),
        ("spec.replicatedJobs[0].groupName", '"A_b"', "rename the group"),
    ),
    Create("v6_group_name_too_long", plain(replicated_job("a") | {"groupName": "g" * 64}), ("groupName", "63")),
    Create(
        "v8_names_of_pods_without_index_are_cut",
        jobset("j" * 40, strategy=None, jobs=[replicated_job("w" * 18, completionMode="NonIndexed")]),
    ),
    Create(
        "v9_depends_on_nobody",
        plain(replicated_job("a"), depending("b", "x")),
        (
            'spec.replicatedJobs[name="b"].dependsOn',
            "replicatedJob: b cannot depend on replicatedJob: x",
            "correct the name",
        ),
    ),
    Create(
        "v9_depends_on_later",
        plain(replicated_job("a"), depending("b", "a", "c"), replicated_job("c")),
        ("replicatedJob: b cannot depend on replicatedJob: c",),
    ),
    Create(
        "v9_depends_on_itself",
        plain(replicated_job("a"), depending("b", "b")),
        ("replicatedJob: b cannot depend on replicatedJob: b",),
    ),
    Create("v13_success_target", plain(successPolicy={"operator": "Any", "targetReplicatedJobs": ["workers"]})),
    Create(
        "v13_success_target_unknown",
        plain(successPolicy={"operator": "Any", "targetReplicatedJobs": ["workers", "x"]}),
        ("spec.successPolicy", "invalid replicatedJob name 'x' does not appear in .spec.ReplicatedJobs", "correct"),
    ),
    Create("v14_restart_job", with_rules(rule(action="RestartJob"))),
    Create(
        "v15_restart_job_of_too_many",
        with_rules(rule(action="RestartJob"), jobs=(replicated_job("a"), replicated_job("b", replicas=1025))),
        ("a replicated job with replicas > 1024", 'found 1025 in spec.replicatedJobs[name="b"]', "lower replicas"),
    ),
    Create(
        "v15_restart_replicated_job_of_too_many",
        with_rules(rule(action="RestartReplicatedJobAndIgnoreMaxRestarts"), jobs=(replicated_job("b", replicas=1025),)),
        ("a replicated job with replicas > 1024", 'found 1025 in spec.replicatedJobs[name="b"]', "lower replicas"),
    ),
    Create(
        "kep_262_actions",
        with_rules(
            rule("a", "RestartReplicatedJob", targetReplicatedJobs=["workers"]),
            rule("b", "RestartReplicatedJobAndIgnoreMaxRestarts"),
            rule("c", "FailJob", setConditionReason="InvalidResult"),
        ),
    ),
    Create("action_unknown", with_rules(rule(action="Retry")), ("spec.failurePolicy.rules[0].action", "FailJob")),
    Create("condition_reason", with_rules(rule(setConditionReason="Out_of:Memory"))),
    Create(
        "condition_reason_is_no_reason",
        with_rules(rule(setConditionReason="out of memory")),
        ("spec.failurePolicy.rules[0].setConditionReason",),
    ),
    Create(
        "condition_reason_without_a_condition",
        with_rules(rule(action="RestartJob", setConditionReason="Oom")),
        ("spec.failurePolicy.rules[0]", "found action RestartJob, expected FailJobSet", "remove setConditionReason"),
    ),
    Create("v15_other_actions_of_many", with_rules(rule(), jobs=(replicated_job("b", replicas=1025),))),
    Create("v16_name_empty_is_defaulted", with_rules(rule(""), rule(""))),
    Create("v16_name_too_long", with_rules(rule("n" * 129)), ("spec.failurePolicy.rules[0].name", "128")),
    Create(
        "v17_name",
        with_rules(rule(), rule("1st")),
        ("spec.failurePolicy.rules[1].name", "invalid failure policy rule name '1st'", "rename it"),
    ),
    Create(
        "v18_rule_target_unknown",
        with_rules(rule(targetReplicatedJobs=["workers"]), rule("second", targetReplicatedJobs=["x"])),
        ('found "x"', "invalid replicatedJob name", "does not appear in .spec.ReplicatedJobs", "correct or remove"),
    ),
    Create("v19_reason", with_rules(rule(onJobFailureReasons=["PodFailurePolicy", "DeadlineExceeded"]))),
    Create(
        "v19_reason_unknown",
        with_rules(rule(onJobFailureReasons=["PodFailurePolicy", "Tired"])),
        (
            "spec.failurePolicy.rules[0].onJobFailureReasons[1]",
            "invalid job failure reason 'Tired' in failure policy is not a recognized job failure reason",
            "expected BackoffLimitExceeded",
        ),
    ),
    Create(
        "v20_names_repeat",
        with_rules(rule(), rule("b"), rule()),
        ("rule names are not unique", "the same name 'first'", "rename one"),
    ),
    Create("v21_pattern", with_rules(rule(onJobFailureMessagePatterns=["exit code (42|43)"]))),
    Create(
        "v21_pattern_does_not_compile",
        with_rules(rule(onJobFailureMessagePatterns=["fine", "exit code (42"])),
        ("spec.failurePolicy", "exit code (42"),
    ),
    Create("v22_coordinator", plain(coordinator=COORDINATOR)),
    Create(
        "v22_coordinator_of_nobody",
        plain(coordinator=COORDINATOR | {"replicatedJob": "x"}),
        ("spec.coordinator.replicatedJob", "coordinator replicatedJob x does not exist"),
    ),
    Create(
        "v22_coordinator_job_index",
        plain(coordinator=COORDINATOR | {"jobIndex": 1}),
        ("spec.coordinator.jobIndex", "coordinator job index 1 is invalid", "less than its 1 replicas"),
    ),
    Create(
        "v22_coordinator_pod_index",
        plain(coordinator=COORDINATOR | {"podIndex": 2}),
        ("spec.coordinator.podIndex", "coordinator pod index 2 is invalid", "lower it"),
    ),
    Create("coordinator_of_pods_without_completions", plain(replicated_job(completions=None), coordinator=COORDINATOR)),
    Create(
        "coordinator_beyond_pods_without_completions",
        plain(replicated_job(completions=None), coordinator=COORDINATOR | {"podIndex": 2}),
        ("spec.coordinator.podIndex", "coordinator pod index 2 is invalid", "lower it"),
    ),
    Create(
        "v22_coordinator_non_indexed",
        plain(replicated_job(completionMode="NonIndexed"), coordinator=COORDINATOR),
        ("job for coordinator pod must be indexed completion mode, and completions number must be set",),
    ),
    Create(
        "v23_coordinator_label",
        plain(coordinator=COORDINATOR, network={"subdomain": "s" * 50}),
        (
            f'spec will lead to invalid label value "train-workers-0-1.{"s" * 50}" for coordinator label',
            "shorten one of the names",
        ),
    ),
    Create(
        "v24_claim_name",
        plain(volumeClaimPolicies=claims(claim("A"))),
        ("spec.volumeClaimPolicies[0].templates[0].metadata.name",),
    ),
    Create(
        "v24_claim_name_too_long",
        plain(volumeClaimPolicies=claims(claim("c" * 58))),
        ("VolumeClaimPolicies template name is too long", "shorten"),
    ),
    Create(
        "claim_namespace",
        plain(volumeClaimPolicies=claims(claim("data", namespace="other"))),
        ("namespace cannot be set for VolumeClaimPolicies templates", "remove it"),
    ),
    Create("spec_absent", {key: value for key, value in plain().items() if key != "spec"}),
)

SPEC_UPDATES: Final = (
    Update("coordinator", "spec.coordinator", COORDINATOR),
    Update("coordinator_removed", "spec.coordinator", None, (), plain(coordinator=COORDINATOR)),
    Update(
        "coordinator_of_nobody",
        "spec.coordinator",
        COORDINATOR | {"replicatedJob": "x"},
        ("coordinator replicatedJob x does not exist",),
    ),
    Update(
        "coordinator_beyond_the_pods",
        "spec.coordinator",
        COORDINATOR | {"podIndex": 9},
        ("coordinator pod index 9 is invalid",),
    ),
    Update(
        "coordinator_shrunk_away",
        SPEC,
        replicated_job(pods=1)["template"]["spec"],
        ("coordinator pod index 1 is invalid",),
        jobset(coordinator=COORDINATOR),
    ),
    Update("network_removed", "spec.network", None, ("spec.network",), plain(network={"subdomain": "mesh"})),
    Update("default_network_removed", "spec.network", None, (), plain()),
    Update(
        "success_policy_removed",
        "spec.successPolicy",
        None,
        ("spec.successPolicy", "immutable"),
        plain(successPolicy={"operator": "Any"}),
    ),
    Update(
        "startup_policy_removed",
        "spec.startupPolicy",
        None,
        ("spec.startupPolicy", "immutable"),
        plain(startupPolicy={"startupPolicyOrder": "InOrder"}),
    ),
    Update("spec_removed", "spec", None, ("spec.replicatedJobs", "immutable"), plain()),
    Update("managed_by_removed", "spec.managedBy", None, ("managedBy",), plain(managedBy="acme.io/foo")),
    Update(
        "claims_added", "spec.volumeClaimPolicies", claims(claim("data")), ("spec.volumeClaimPolicies", "immutable")
    ),
    Update(
        "order",
        "spec.replicatedJobs",
        [replicated_job("b"), replicated_job("a")],
        ("spec.replicatedJobs: field is immutable", "order"),
        plain(replicated_job("a"), replicated_job("b")),
    ),
    Update(
        "order_while_suspended",
        "spec.replicatedJobs",
        [replicated_job("b"), replicated_job("a")],
        ("spec.replicatedJobs: field is immutable", "order"),
        plain(replicated_job("a"), replicated_job("b"), suspend=True),
    ),
    Update(
        "depends_on_while_suspended",
        "spec.replicatedJobs.1.dependsOn",
        [{"name": "a", "status": "Ready"}],
        ("spec.replicatedJobs: field is immutable", "dependsOn"),
        plain(replicated_job("a"), replicated_job("b"), suspend=True),
    ),
    Update(
        "backoff_limit_while_suspended",
        f"{SPEC}.backoffLimit",
        0,
        ("spec.replicatedJobs: field is immutable", "backoffLimit"),
        SUSPENDED,
    ),
    Update(
        "opting_out_while_suspended",
        "spec.replicatedJobs.0.template.metadata",
        {"annotations": {"jobset.sigs.k8s.io/disable-in-place-restart": ""}},
        ("spec.replicatedJobs: field is immutable", "annotations"),
        SUSPENDED,
    ),
    Update("finalizer", "metadata.finalizers", ["example.com/hold"]),
)
