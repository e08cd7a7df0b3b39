"""Mistakes in a spec that admission accepted: a condition with the cure, an Event, and no silent loop."""

from collections.abc import Mapping
from typing import Any

import pytest

from inplace.common.kube.quantity import parse_quantity
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import parsed, with_identity
from tests.controller.plan.planner_world import PlannerWorld, settled

CONTAINER = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"
JOB = "spec.replicatedJobs.0.template.spec"
STORAGE: KubeObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def templates(*names: str, retain: bool = True) -> list[KubeObject]:
    """Return spec.volumeClaimPolicies of one policy."""
    retention = {"whenDeleted": "Retain" if retain else "Delete"}
    return [{"templates": [{"metadata": {"name": n}, "spec": STORAGE} for n in names], "retentionPolicy": retention}]


def rules(**part: Any) -> list[KubeObject]:
    """Return the rules of a failure policy: a good one, and one with this part."""
    return [{"name": "good", "action": "FailJobSet"}, {"name": "r", "action": "FailJobSet"} | part]


GOOD = changed(
    jobset(jobs=[replicated_job("a"), replicated_job("b")], volumeClaimPolicies=templates("cache")),
    f"{CONTAINER}.volumeMounts",
    [{"name": "cache", "mountPath": "/cache"}],
)

CASES: list[tuple[str, Any, tuple[str, ...]]] = [
    (f"{JOB}.completions", 3, ("found completions 3 and parallelism 2, must be set and equal to each other",)),
    (f"{JOB}.parallelism", None, ("found completions 2 and parallelism nothing",)),
    ("spec.successPolicy", {"operator": "Some"}, ("successPolicy.operator: expected All or Any, saw 'Some'; All is",)),
    (
        "spec.successPolicy",
        {"operator": "Any", "targetReplicatedJobs": ["a", "x"]},
        ("successPolicy.targetReplicatedJobs: ['x'] does not appear in .spec.ReplicatedJobs; it is ignored",),
    ),
    (
        "spec.successPolicy",
        {"operator": "All", "targetReplicatedJobs": ["x"]},
        ("the first job that succeeds completes the jobset",),
    ),
    (
        "spec.failurePolicy.restartStrategy",
        "Reincarnate",
        (
            "restartStrategy: expected Recreate, BlockingRecreate or InPlaceRestart, saw 'Reincarnate'",
            "Recreate is applied",
        ),
    ),
    (
        "spec.failurePolicy.rules",
        rules(targetReplicatedJobs=["b", "x"]),
        ("rules[1].targetReplicatedJobs: ['x'] does not appear in .spec.ReplicatedJobs",),
    ),
    ("spec.failurePolicy.rules", rules(name="good"), ("2 rules have the same name 'good'",)),
    (
        "spec.failurePolicy.rules",
        rules(name="1st rule"),
        ("rules[1].name: invalid failure policy rule name '1st rule'", "conditions say failurePolicyRule1"),
    ),
    ("spec.failurePolicy.rules", rules(name="n" * 129), ("rules[1].name: invalid failure policy rule name", "128")),
    (
        "spec.failurePolicy.rules",
        rules(setConditionReason="too bad"),
        (
            "rules[1].setConditionReason: expected at most 128 letters",
            "saw 'too bad'; conditions have the action's own",
        ),
    ),
    (
        "spec.failurePolicy.rules",
        rules(action="Sleep"),
        ("rules[1].action: expected FailJobSet,", "saw 'Sleep'; RestartJobSet is applied"),
    ),
    (
        "spec.failurePolicy.rules",
        rules(onJobFailureReasons=["PodFailurePolicy", "Tired"]),
        ("invalid job failure reason 'Tired' is not a recognized job failure reason", "expected BackoffLimitExceeded,"),
    ),
    (
        "spec.failurePolicy.rules",
        rules(onJobFailureMessagePatterns=["fine", "a(b"]),
        ("rules[1].onJobFailureMessagePatterns[1] of rule r: expected an RE2 regular expression, saw 'a(b'",),
    ),
    (
        "spec.replicatedJobs.1.dependsOn",
        [{"name": "x", "status": "Ready"}],
        ("dependsOn of replicatedJob b: expected the name of a replicatedJob before it, saw 'x'; b never starts",),
    ),
    (
        "spec.replicatedJobs.1.dependsOn",
        [{"name": "a", "status": "Happy"}],
        ("expected status Ready or Complete, saw 'Happy'; it waits for Ready",),
    ),
    (
        "spec.startupPolicy",
        {"startupPolicyOrder": "Random"},
        ("startupPolicyOrder: expected AnyOrder or InOrder, saw 'Random'; all replicatedJobs start at once",),
    ),
    ("spec.coordinator", {"replicatedJob": "x"}, ("coordinator replicatedJob x does not exist",)),
    ("spec.coordinator", {"replicatedJob": "a", "jobIndex": 1}, ("expected a jobIndex from 0 to 0, saw 1",)),
    ("spec.coordinator", {"replicatedJob": "a", "podIndex": 2}, ("expected a podIndex from 0 to 1, saw 2",)),
    (f"{JOB}.completionMode", "NonIndexed", ()),
    ("spec.volumeClaimPolicies", templates("cache", "other"), ("template other: expected a volumeMount",)),
    (
        "spec.volumeClaimPolicies",
        templates("cache", "cache"),
        (
            "template cache: names must be unique for VolumeClaimPolicies template, saw 2 of this name",
            "the first is used",
        ),
    ),
    ("spec.volumeClaimPolicies", templates("ca.che"), ("template ca.che: expected at most 63 lower-case letters",)),
    (
        f"{JOB}.template.spec.volumes",
        [{"name": "cache", "emptyDir": {}}],
        ("template cache: volume name conflicts with a volume of replicatedJob a",),
    ),
    (
        "metadata.name",
        "train.v2",
        ("metadata.name: expected lower-case letters,", "saw 'train.v2'; the API refuses what is created for it"),
    ),
    (
        "metadata.name",
        "j" * 60,
        ("JobSet name is too long, job names generated for this JobSet will exceed 63 characters", "-a-0 (64)"),
    ),
    (
        "metadata.name",
        "j" * 55,
        ("JobSet name is too long, pod names generated for this JobSet will exceed 63 characters", "-a-0-1-xxxxx"),
    ),
    (
        "spec.network",
        {"subdomain": "a.b"},
        ("spec.network.subdomain: expected a host name of at most 63 characters, saw 'a.b'",),
    ),
    (
        "spec.replicatedJobs.0.groupName",
        "Gruppe 1",
        ("groupName: expected a host name of at most 63", "saw 'Gruppe 1'; the API refuses the jobs"),
    ),
]


def problem(world: PlannerWorld) -> tuple[str, str]:
    """Return status and message of SpecProblem."""
    condition: Mapping[str, Any] = world.find_condition("SpecProblem") or {"status": "", "message": ""}
    return condition["status"], condition["message"]


@pytest.mark.parametrize(("path", "value", "words"), CASES, ids=lambda value: str(value)[:40])
def test_every_problem_is_a_condition_until_it_is_cured(path: str, value: Any, words: tuple[str, ...]) -> None:
    """Each problem is a condition with its place, the expected and seen value and the effect, and one Event."""
    world = PlannerWorld(changed(GOOD, path, value))
    notes = [note.reason for note in world.plan().notes]
    world.settle()
    status, message = problem(world)
    assert status == ("True" if words else "")
    assert [word for word in words if word not in message] == []
    assert notes.count("InvalidSpec") == bool(words)
    assert world.jobs
    world.manifest["spec"] = GOOD["spec"]
    world.manifest["metadata"]["name"] = "train"
    world.settle(passes_max=20)
    assert problem(world)[0] in ("False", "")


def test_a_good_spec_has_no_problem() -> None:
    """The spec that the cases start from has no problem, and neither has any opted-out replicatedJob."""
    world = settled(changed(GOOD, "metadata.name", "train"))
    assert world.find_condition("SpecProblem") is None
    monitor = replicated_job("monitor", backoffLimit=6, podReplacementPolicy=None, completions=None)
    monitor["template"]["metadata"] = {"annotations": {wire.DISABLE: ""}}
    world = settled(jobset(jobs=[replicated_job(), monitor]))
    assert world.find_condition("SpecProblem") is None


@pytest.mark.parametrize(
    ("annotation", "policy", "words"),
    [
        ("10", None, ()),
        ("0", None, ()),
        ("2147483647", {"restartStrategy": "Recreate", "maxRestarts": 2}, ()),
        ("3", {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}, ()),
        ("-1", None, ("expected an integer from 0 to 2147483647, saw '-1'; no restart is allowed; correct it",)),
        ("ten", None, ("saw 'ten'",)),
        ("1e9", None, ("saw '1e9'",)),
        ("2147483648", None, ("saw '2147483648'",)),
        ("", None, ("saw ''",)),
        (
            "10",
            {"restartStrategy": "InPlaceRestart", "maxRestarts": 3},
            ("expected 3, the maxRestarts of the failurePolicy, saw 10; 3 is applied",),
        ),
        (
            "10",
            {"restartStrategy": "BlockingRecreate"},
            ("expected restartStrategy InPlaceRestart or none beside it, saw 'BlockingRecreate', which is applied",),
        ),
    ],
)
def test_the_annotation_beside_a_failure_policy(
    annotation: str, policy: KubeObject | None, words: tuple[str, ...]
) -> None:
    """A number that cannot be read, and a policy that says otherwise, are problems until they are cured."""
    manifest = jobset(strategy=None, annotations={wire.RESTART_IN_PLACE: annotation})
    world = settled(changed(manifest, "spec.failurePolicy", policy))
    status, message = problem(world)
    assert status == ("True" if words else "")
    assert [word for word in words if word not in message] == []
    assert not words or f"metadata.annotations[{wire.RESTART_IN_PLACE}]: expected" in message


def test_restart_job_of_too_many() -> None:
    """RestartJob with more Jobs than the status can count is reported in advance as a problem."""
    rules = [{"name": "r", "action": "RestartJob"}]
    world = settled(jobset(strategy="Recreate", jobs=[replicated_job("a", replicas=1025)], rules=rules))
    _, message = problem(world)
    assert "a replicated job with replicas > 1024: found 1025 in replicatedJob a" in message
    assert "beyond that index RestartJobSet is applied" in message


def test_an_address_that_is_too_long_for_a_label_stops_nothing() -> None:
    """With an address too long for a label the Pods have no coordinator label; upstream's Jobs would be refused."""
    manifest = jobset("j" * 30, jobs=[replicated_job("w" * 10)], coordinator={"replicatedJob": "w" * 10})
    world = settled(manifest)
    (job,) = world.jobs.values()
    assert "jobset.sigs.k8s.io/coordinator" not in job["metadata"]["labels"]
    assert "at most 63 characters" in problem(world)[1]


@pytest.mark.parametrize("name", ["1st rule", "trailing,", "n" * 2000])
def test_a_rule_whose_name_no_reason_can_hold_is_applied_all_the_same(name: str) -> None:
    """A rule whose name no reason can hold is applied under its index: the API would refuse the status."""
    rule = {"name": name, "action": "RestartJobSet", "setConditionReason": name}
    manifest = changed(jobset(strategy="Recreate"), "spec.failurePolicy.rules", [rule])
    world = settled(manifest)
    world.set_job("train-workers-0", "Failed")
    world.carry_out(world.plan())
    assert world.condition("RestartingJobSet")["reason"] == "FailurePolicy_failurePolicyRule0"


def test_of_two_templates_with_one_name_the_first_is_used() -> None:
    """One claim is made and mounted once; the API would refuse a Job with the same volume twice."""
    world = settled(changed(GOOD, "spec.volumeClaimPolicies", templates("cache", "cache")))
    assert list(world.claims) == ["cache-train"]
    assert len(world.jobs["train-a-0"]["spec"]["template"]["spec"]["volumes"]) == 1


def stored(**changes: Any) -> KubeObject:
    """Return a claim as a server stores it: with defaults, and bound."""
    spec = STORAGE | {"volumeMode": "Filesystem", "storageClassName": "standard", "volumeName": "pvc-1"} | changes
    return with_identity({"metadata": {"name": "cache-train"}, "spec": spec})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"accessModes": ["ReadOnlyMany"]}, "expected spec.accessModes ['ReadWriteOnce'], saw ['ReadOnlyMany']"),
        ({"resources": {"requests": {"storage": "1024Mi"}}}, ""),
        ({"resources": {"requests": {"storage": "2Gi"}}}, ""),
        ({"resources": {"requests": {"storage": "1G"}}}, "expected spec.resources.requests.storage '1Gi', saw '1G'"),
        ({"resources": {}}, "expected spec.resources.requests.storage '1Gi', saw None"),
    ],
)
def test_a_claim_that_exists_is_compared_by_what_the_template_names(changes: KubeObject, words: str) -> None:
    """Less storage or another access mode is reported, defaults of the server are not; the claim is used anyway."""
    world = settled(changed(GOOD, "metadata.name", "train"), claims={"cache-train": stored(**changes)})
    assert words in problem(world)[1]
    assert bool(words) == (problem(world)[0] == "True")
    assert len(world.jobs) == 2
    assert world.claims == {"cache-train": stored(**changes)}


def test_a_claim_of_somebody_else_that_the_policy_would_delete() -> None:
    """`whenDeleted` Delete with a foreign claim is reported, because nothing will delete the claim."""
    manifest = changed(GOOD, "spec.volumeClaimPolicies", templates("cache", retain=False))
    world = settled(manifest, claims={"cache-train": stored()})
    assert "retentionPolicy must be retain when PVC exists, saw Delete" in problem(world)[1]
    manifest = changed(GOOD, "spec.volumeClaimPolicies", templates("cache", retain=False))
    own = stored()
    own["metadata"]["ownerReferences"] = [{"kind": wire.KIND, "uid": "js-uid", "controller": True}]
    world = settled(manifest, claims={"cache-train": own})
    assert world.find_condition("SpecProblem") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("1Gi", 2**30), ("1024Mi", 2**30), ("1e3", 1000), ("1.5k", 1500), (5, 5), ("2E", 2 * 10**18), ("500m", 0.5)],
)
def test_quantities(text: object, number: float) -> None:
    """Binary and decimal suffixes, exponents, and E for both."""
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "1 Gi", "one", None, "1e", "--1"])
def test_what_is_no_quantity(text: object) -> None:
    """A text that is no quantity has no value."""
    assert parse_quantity(text) is None


@pytest.mark.parametrize("restart_policy", ["", None])
def test_an_empty_restart_policy_is_none(restart_policy: str | None) -> None:
    """Upstream's webhook makes it OnFailure; the API would refuse a Job with an empty one."""
    manifest = changed(jobset(), f"{JOB}.template.spec.restartPolicy", "x")
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = restart_policy
    world = settled(manifest)
    assert world.jobs["train-workers-0"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            f"{JOB}.template.metadata",
            "text",
            "saw another: spec.replicatedJobs[0].template.spec.template.metadata: expected a mapping, saw a text",
        ),
        (
            f"{JOB}.template.metadata",
            {"labels": {"a": 1}},
            ".metadata.labels[...]: expected a text, saw a whole number; in quotes it is a text",
        ),
        (f"{JOB}.template.spec.containers", {"name": "c"}, ".template.spec.containers: expected a list, saw a mapping"),
        (f"{JOB}.template.spec.volumes", ["cache"], ".volumes[0]: expected a mapping, saw a text"),
        (f"{JOB}.template.spec.affinity", {"podAffinity": []}, ".affinity.podAffinity: expected a mapping, saw a list"),
        (
            "spec.replicatedJobs.0.replicas",
            "many",
            "spec.replicatedJobs[0].replicas: expected a whole number, saw a text",
        ),
        ("status", {"restarts": "x"}, "status.restarts: expected a whole number, saw a text"),
        ("status", {"conditions": ["x"]}, "status.conditions[0]: expected a mapping, saw a text"),
        ("status", {"replicatedJobsStatus": [{"name": "a", "jobRestarts": {}}]}, "jobRestarts"),
    ],
)
def test_what_has_not_the_form_of_a_jobset_is_refused_whole(path: str, value: Any, words: str) -> None:
    """A JobSet with a wrong form is refused when it is read, also in parts that the CRD does not check."""
    manifest = changed(jobset(), path, value)
    with pytest.raises(RemoteProtocolError) as refused:
        parsed(manifest)
    assert words in str(refused.value)


def test_absent_and_null_are_one() -> None:
    """A template of nulls, which a schema that preserves unknown fields lets in, is an empty one."""
    manifest = changed(jobset(), "spec.failurePolicy", None)
    manifest["spec"]["replicatedJobs"][0]["template"] = {
        "metadata": None,
        "spec": {"template": None, "completionMode": None},
    }
    world = settled(manifest)
    assert world.jobs["train-workers-0"]["spec"]["completionMode"] == "Indexed"
