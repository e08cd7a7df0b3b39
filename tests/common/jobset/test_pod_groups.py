"""The Workload and the PodGroups of spec.scheduling: names, templates, sizes, and what counts as a difference."""

import hashlib
from typing import Any

import pytest

from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.jobset.pod_groups import is_replaced, pod_groups, resized, wanted_objects, workload_name
from inplace.common.kube.resources import KubeObject
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import with_identity

TWO = [replicated_job("lead", pods=1), replicated_job("work", replicas=2, pods=4)]


def digest(identity: str) -> str:
    """Return the ten digits that names end in."""
    return hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:10]


def asking(scheduling: KubeObject | None, *, name: str = "train", jobs: list[KubeObject] | None = None) -> JobSet:
    """Return a JobSet with spec.scheduling."""
    spec: dict[str, Any] = {} if scheduling is None else {"scheduling": scheduling}
    return parse_jobset(with_identity(jobset(name, jobs=TWO if jobs is None else jobs, **spec)))


def objects(scheduling: KubeObject, **changes: Any) -> dict[tuple[str, str], KubeObject]:
    """Return the specs of what is made, by kind and name."""
    made = asking(scheduling, **changes)
    return {(kind.kind, name): spec for (kind, name), spec in wanted_objects(made, pod_groups(made)).items()}


def test_without_the_field_there_is_no_group() -> None:
    """A JobSet without spec.scheduling has no group, and its Pods name none."""
    assert pod_groups(asking(None)) == ()


@pytest.mark.parametrize("scheduling", [{}, {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}])
def test_level_1_is_one_gang_of_all_pods(scheduling: KubeObject) -> None:
    """Level 1 makes one Workload and one PodGroup of one name, whose size is that of the whole JobSet."""
    name = f"train-{digest('JobSet/default/train')}"
    gang = {"schedulingPolicy": {"gang": {"minCount": 9}}}
    assert objects(scheduling) == {
        ("Workload", name): {
            "controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": "train"},
            "podGroupTemplates": [{"name": name, **gang}],
        },
        ("PodGroup", name): {"workloadRef": {"workloadName": name, "templateName": name}, **gang},
    }


def test_basic_of_level_1_is_one_group_without_a_size() -> None:
    """`basic` makes one group whose Pods are placed each alone."""
    (group,) = pod_groups(asking({"schedulingPolicy": {"basic": {}}}))
    assert group.spec == {"schedulingPolicy": {"basic": {}}}


@pytest.mark.parametrize(
    "later",
    [
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        {"replicatedJobs": [TWO[0], TWO[1] | {"dependsOn": [{"name": "lead", "status": "Ready"}]}]},
    ],
)
def test_what_starts_in_turn_is_a_gang_for_each_replicated_job(later: KubeObject) -> None:
    """A JobSet whose replicatedJobs start in turn has a gang for each: one of all would wait for ever."""
    manifest = jobset(jobs=TWO, scheduling={})
    found = pod_groups(parse_jobset(with_identity(manifest | {"spec": manifest["spec"] | later})))
    lead = f"lead-{digest('ReplicatedJob/default/train/lead')}"
    assert [(one.template, one.name, one.size) for one in found] == [
        (lead, f"train-{lead}", 1),
        (work := f"work-{digest('ReplicatedJob/default/train/work')}", f"train-{work}", 8),
    ]


def test_level_2_makes_a_group_of_each_entry() -> None:
    """An entry's replicatedJobs are one group, with what the entry says and its Pods' priority class."""
    urgent = replicated_job("work", replicas=2, pods=4, template={"spec": {"priorityClassName": "urgent"}})
    rack = {"topology": [{"key": "rack"}]}
    entries = [
        {"targetReplicatedJobs": ["lead"], "schedulingPolicy": {"basic": {}}},
        {"targetReplicatedJobs": ["work"], "schedulingConstraints": rack, "disruptionMode": {"all": {}}},
    ]
    first, second = pod_groups(asking({"replicatedJobs": entries}, jobs=[TWO[0], urgent]))
    assert first.template == f"lead-{digest('ReplicatedJobGroup/default/train/lead')}"
    assert second.spec == {
        "schedulingPolicy": {"gang": {"minCount": 8}},
        "schedulingConstraints": rack,
        "disruptionMode": {"all": {}},
        "priorityClassName": "urgent",
    }


def test_an_entry_of_several_replicated_jobs_joins_their_names() -> None:
    """The template of several replicatedJobs has their names, and the PodGroup the JobSet's before them."""
    (group,) = pod_groups(asking({"replicatedJobs": [{"targetReplicatedJobs": ["lead", "work"]}]}))
    assert group.template == f"lead-work-{digest('ReplicatedJobGroup/default/train/lead-work')}"
    assert (group.name, group.size) == (f"train-{group.template}", 9)


@pytest.mark.parametrize(("asked", "size"), [({}, 4), ({"schedulingPolicy": {"gang": {"minCount": 3}}}, 3)])
def test_level_3_makes_a_group_of_each_job(asked: KubeObject, size: int) -> None:
    """With `job` each Job is a group of its own, of all its Pods or of as many as minCount says, with its claims."""
    claims = [{"name": "link", "resourceClaimTemplateName": "links"}]
    entries = [
        {"targetReplicatedJobs": ["lead"]},
        {"targetReplicatedJobs": ["work"], "job": asked | {"resourceClaims": claims}},
    ]
    made = asking({"replicatedJobs": entries})
    lead, *work = pod_groups(made)
    assert [one.template for one in work] == [f"work-{i}-{digest(f'Job/default/train/work/{i}')}" for i in (0, 1)]
    assert {one.size for one in work} == {size}
    assert all(one.spec["resourceClaims"] == claims for one in work)
    job = made.replicated_job("work")
    assert [[one.has(job, index) for index in (0, 1)] for one in (lead, *work)] == [
        [False, False],
        [True, False],
        [False, True],
    ]


def test_long_names_are_cut_and_stay_unique() -> None:
    """All names have at most 63 characters: of a long one the start, and digits of what it stands for."""
    name, other = "t" * 60, "w" * 60
    made = asking(
        {"replicatedJobs": [{"targetReplicatedJobs": [other]}]}, name=name, jobs=[replicated_job(other, replicas=1)]
    )
    (group,) = pod_groups(made)
    assert workload_name(made) == f"{'t' * 52}-{digest(f'JobSet/default/{name}')}"
    assert group.template == f"{'w' * 52}-{digest(f'ReplicatedJobGroup/default/{name}/{other}')}"
    assert group.name == f"{'t' * 52}-{digest(f'{name}/{group.template}')}"


def test_a_gang_has_no_more_pods_than_its_jobs_make() -> None:
    """A Job with fewer completions than parallelism makes fewer Pods, and one with replicas 0 none: the least is 1."""
    few = replicated_job("few", replicas=2, pods=4, completions=3)
    assert pod_groups(asking({}, jobs=[few]))[0].size == 6
    assert pod_groups(asking({}, jobs=[replicated_job(replicas=0)]))[0].size == 1


FILLED = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority", "disruptionMode": {"single": {}}}


@pytest.mark.parametrize(
    ("stored", "wanted", "replaced", "change"),
    [
        ({}, {}, False, {}),
        (FILLED | {"priorityClassName": "default"}, {}, False, {}),
        ({}, {"schedulingConstraints": {"topology": []}, "resourceClaims": [{"name": "a"}]}, False, {}),
        ({"schedulingConstraints": None}, {"schedulingConstraints": {"topology": []}}, False, {}),
        ({"schedulingConstraints": None, "a": 1}, {}, False, {}),
        ({"schedulingPolicy": {"gang": {"minCount": 3}}}, {}, False, {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ({"schedulingPolicy": {"basic": {}}}, {}, True, None),
        (FILLED, {"disruptionMode": {"all": {}}}, True, None),
        ({"schedulingConstraints": {"topology": [{"key": "b"}]}}, {"schedulingConstraints": {}}, True, None),
        ({"schedulingConstraints": {"topology": [{"key": "b"}]}}, {}, True, None),
        ({"workloadRef": {"workloadName": "other", "templateName": "t"}}, {}, True, None),
    ],
)
def test_what_counts_as_a_difference(
    stored: KubeObject, wanted: KubeObject, replaced: bool, change: KubeObject | None
) -> None:
    """What the server fills in or drops is no difference, a size is one that can change, and all else is replaced."""
    base = {"workloadRef": {"workloadName": "w", "templateName": "t"}, "schedulingPolicy": {"gang": {"minCount": 2}}}
    template = {"schedulingPolicy": {"gang": {"minCount": 2}}, "name": "t"}
    assert is_replaced(base | stored, base | wanted) is replaced
    if change is not None:
        assert resized(base | stored, base | wanted) == change
    if "workloadRef" not in stored:
        workload = {"controllerRef": {"name": "a"}, "podGroupTemplates": [template | stored]}
        ours = {"controllerRef": {"name": "a"}, "podGroupTemplates": [template | wanted]}
        assert is_replaced(workload, ours) is replaced
        if change:
            assert resized(workload, ours) == {"podGroupTemplates": [template | stored | change]}


def test_a_template_too_many_replaces_the_workload() -> None:
    """Templates cannot come or go in a Workload that is there."""
    one = {"name": "a", "schedulingPolicy": {"basic": {}}}
    stored = {"controllerRef": {}, "podGroupTemplates": [one]}
    assert is_replaced(stored, stored | {"podGroupTemplates": [one, one | {"name": "b"}]})
