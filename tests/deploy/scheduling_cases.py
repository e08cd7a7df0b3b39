"""Manifests with spec.scheduling: what the CRD refuses, and what only the admission policy can."""

from __future__ import annotations

from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from tests.controller.manifests import jobset, replicated_job
from tests.deploy.crd_cases import Create, Update

LEAD, WORK = replicated_job("lead", pods=1), replicated_job("work", replicas=2, pods=4)
IN_ORDER: Final = {"startupPolicyOrder": "InOrder"}
GANG: Final[KubeObject] = {"schedulingPolicy": {"gang": {}}}


def asking(scheduling: KubeObject, **spec: Any) -> KubeObject:
    """Return a JobSet of two replicatedJobs with spec.scheduling."""
    return jobset(**({"jobs": [LEAD, WORK], "scheduling": scheduling} | spec))


def entry(*targets: str, **fields: Any) -> KubeObject:
    """Return an entry of spec.scheduling.replicatedJobs."""
    return {"targetReplicatedJobs": list(targets), **fields}


def entries(*some: KubeObject) -> KubeObject:
    """Return spec.scheduling with these entries."""
    return {"replicatedJobs": list(some)}


def of_class(name: str, priority: str) -> KubeObject:
    """Return a replicatedJob whose Pods have a priority class."""
    job = replicated_job(name)
    job["template"]["spec"]["template"]["spec"]["priorityClassName"] = priority
    return job


def job(size: int) -> KubeObject:
    """Return what an entry says of each Job: a gang of so many Pods."""
    return {"schedulingPolicy": {"gang": {"minCount": size}}}


def grouped() -> KubeObject:
    """Return a replicatedJob whose Pods name a PodGroup."""
    found = replicated_job("work")
    found["template"]["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "own"}
    return found


TWO_CLASSES: Final = [of_class("a", "x"), of_class("b", "y")]
CRD_CREATES: Final = (
    Create("scheduling_that_says_nothing", asking({})),
    Create("scheduling_basic", asking({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}})),
    Create("scheduling_topology", asking(GANG | {"schedulingConstraints": {"topology": [{"key": "rack"}]}})),
    Create("scheduling_of_each", asking(entries(entry("lead"), entry("work", job=job(4))))),
    Create(
        "scheduling_two_policies",
        asking({"schedulingPolicy": {"gang": {}, "basic": {}}}),
        ("spec.scheduling.schedulingPolicy", "must specify exactly one of: basic, gang"),
    ),
    Create(
        "scheduling_two_modes",
        asking({"disruptionMode": {}}),
        ("spec.scheduling.disruptionMode", "must specify exactly one of: single, all"),
    ),
    Create(
        "scheduling_two_levels",
        asking(GANG | entries(entry("lead"), entry("work"))),
        ("replicatedJobs cannot be set together with schedulingPolicy",),
    ),
    Create(
        "scheduling_job_of_two_targets",
        asking(entries(entry("lead", "work", job={}))),
        ("must have exactly one item when job is set",),
    ),
    Create(
        "scheduling_job_beside_a_policy",
        asking(entries(entry("lead"), entry("work", job={}, **GANG))),
        ("job cannot be set together with schedulingPolicy",),
    ),
    Create("scheduling_no_target", asking(entries(entry())), ("targetReplicatedJobs", "should have at least 1 items")),
    Create("scheduling_target_twice", asking(entries(entry("lead", "lead"))), ("Duplicate value",)),
    Create(
        "scheduling_five_claims",
        asking(
            entries(
                entry("lead"),
                entry("work", job={"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "x"} for n in range(5)]}),
            )
        ),
        ("resourceClaims", "must have at most 4 items"),
    ),
)

POLICY_CREATES: Final = (
    Create("scheduling_level_1", asking(GANG)),
    Create("scheduling_level_2", asking(entries(entry("lead", "work", **GANG)))),
    Create("scheduling_basic_in_order", asking({"schedulingPolicy": {"basic": {}}}, startupPolicy=IN_ORDER)),
    Create("scheduling_default_in_order", asking({}, startupPolicy=IN_ORDER)),
    Create(
        "scheduling_without_jobs",
        asking({}, jobs=[]),
        ("must contain at least one replicatedJob when scheduling is configured",),
    ),
    Create(
        "scheduling_beside_a_group",
        asking({}, jobs=[LEAD, grouped()]),
        ("schedulingGroup: cannot be set directly when spec.scheduling is configured",),
    ),
    *(
        Create(f"scheduling_{name}", asking(entries(*some)), ("target of exactly one entry",))
        for name, some in (
            ("target_missing", [entry("lead")]),
            ("target_invented", [entry("lead"), entry("work"), entry("other")]),
            ("target_of_two", [entry("lead", "work"), entry("work")]),
            ("target_invented_instead", [entry("lead"), entry("wrok")]),
        )
    ),
    Create(
        "scheduling_as_large_as_it_can_be",
        asking(
            entries(*(entry(*(f"{'x' * 250}{at * 50 + n}" for n in range(50))) for at in range(50))),
            jobs=[replicated_job(f"w{n}") for n in range(100)],
        ),
        ("target of exactly one entry",),
    ),
    Create(
        "scheduling_classes_apart",
        asking(entries(entry("a"), entry("b")), jobs=[of_class("a", "x"), of_class("b", "y")]),
    ),
    Create("scheduling_classes_mixed", asking({}, jobs=TWO_CLASSES), ("priorityClassName: must be the same",)),
    Create(
        "scheduling_classes_mixed_in_an_entry",
        asking(entries(entry("a", "b")), jobs=[of_class("a", "x"), replicated_job("b")]),
        ("priorityClassName: must be the same",),
    ),
    Create("scheduling_eight_groups", asking(entries(entry("w", job={})), jobs=[replicated_job("w", replicas=8)])),
    Create(
        "scheduling_nine_groups",
        asking(entries(entry("w", job={})), jobs=[replicated_job("w", replicas=9)]),
        ("spec.scheduling: Too many: 9: must have at most 8 items",),
    ),
    Create(
        "scheduling_nine_in_order",
        asking({}, jobs=[replicated_job(f"w{n}") for n in range(9)], startupPolicy=IN_ORDER),
        ("spec.scheduling: Too many: 9: must have at most 8 items",),
    ),
    Create(
        "scheduling_more_than_its_pods",
        asking(entries(entry("lead"), entry("work", job=job(5)))),
        ("minCount: cannot exceed the parallelism",),
    ),
    Create(
        "scheduling_gang_in_order",
        asking(GANG, startupPolicy=IN_ORDER),
        ("spec.scheduling.schedulingPolicy.gang: Forbidden", "use per-ReplicatedJob gang scheduling instead"),
    ),
    Create(
        "scheduling_gang_with_a_dependency",
        asking(GANG, jobs=[LEAD, WORK | {"dependsOn": [{"name": "lead", "status": "Ready"}]}]),
        ("spec.scheduling.schedulingPolicy.gang: Forbidden",),
    ),
)

IMMUTABLE: Final = ("spec.scheduling: field is immutable unless the JobSet is suspended",)
POLICY_UPDATES: Final = (
    Update("scheduling_stays", "spec.suspend", True, (), asking(GANG)),
    Update("scheduling_appears", "spec.scheduling", GANG, IMMUTABLE, jobset()),
    Update("scheduling_changes", "spec.scheduling", {"schedulingPolicy": {"basic": {}}}, IMMUTABLE, asking(GANG)),
    Update("scheduling_before_it_is_suspended", "spec.scheduling", {}, IMMUTABLE, asking(GANG, suspend=True)),
)
