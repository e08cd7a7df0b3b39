"""The created objects: names, labels, annotations, and the template."""

import hashlib
from typing import Any

import pytest

from inplace.common.jobset.scopes import first_scopes
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.jobs import build_job
from inplace.controller.plan.problems.requests import bad_members, bad_requests
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import parsed


def job(manifest: KubeObject, position: int = 0, index: int = 0) -> KubeObject:
    """Return one Job of a JobSet."""
    found = parsed(manifest)
    return build_job(found, found.replicated_jobs[position], index)


def test_pods_carry_the_settings_of_their_jobset() -> None:
    """A template's own annotation wins, Pods outside of the group have none, and nobody gets what no agent can use."""
    own = {wire.RESTART: "save-within=0"}
    other = changed(replicated_job("b"), "template.spec.template.metadata", {"annotations": own})
    out = changed(replicated_job("c"), "template.metadata", {"annotations": {wire.DISABLE: ""}})
    manifest = jobset(jobs=[replicated_job("a"), other, out])
    manifest["metadata"]["annotations"] = {wire.RESTART: "depth=deep,save-within=60"}
    own[wire.RESTART] = "save-within=soon"
    told, of_template = bad_requests(parsed(manifest))
    own[wire.RESTART] = "save-within=0"
    assert of_template.startswith('spec.replicatedJobs[name="b"].template.spec.template.metadata.annotations[inplace')
    assert job(manifest)["spec"]["template"]["metadata"]["annotations"].keys().isdisjoint(wire.SETTINGS.values())
    assert "restart].depth: expected process or containers, saw 'deep'; the Pods get none of it" in told
    asked = {wire.RESTART: "depth=process,save-within=60,clean-after=3", wire.STALL: "9"}
    manifest["metadata"]["annotations"] = asked
    copied = {wire.RESTART_DEPTH: "process", wire.SAVE_WITHIN: "60", wire.CLEAN_AFTER: "3"}
    carried = [job(manifest, position)["spec"]["template"]["metadata"]["annotations"] for position in range(3)]
    read = [{name: one[name] for name in copied if name in one} for one in carried]
    assert read == [copied, copied | {wire.SAVE_WITHIN: "0"}, {}]


def test_members_on_the_pods_of_a_manifest_mean_nothing() -> None:
    """An agent would read them as host names, and end; the condition says where they belong."""
    metadata = "spec.replicatedJobs.0.template.spec.template.metadata"
    manifest = changed(jobset(restarts_max=3), metadata, {"annotations": {wire.MEMBERS: "max=8"}})
    assert wire.MEMBERS not in job(manifest)["spec"]["template"]["metadata"]["annotations"]
    assert [problem for problem in bad_members(parsed(manifest)) if "saw it on the pods" in problem]


@pytest.mark.parametrize(
    ("replicas", "dns", "hosts"),
    [(1, True, "train-workers-0-*.train"), (1, False, "*"), (3, True, "2/train-workers-*-0.train"), (3, False, "2/*")],
)
def test_pods_of_a_group_with_spares_know_all_host_names(replicas: int, dns: bool, hosts: str) -> None:
    """Where whole Jobs play ranks these are the names of first Pods, behind the Job's own index."""
    manifest = jobset(jobs=[replicated_job(replicas=replicas)], network={"enableDNSHostnames": dns})
    manifest["metadata"]["annotations"] = {wire.MEMBERS: "1"}
    manifest["status"] = {
        wire.RESTART_SCOPE_FIELD: "ReplicatedJob",
        wire.SCOPED_EPOCHS: first_scopes(["workers"], ["workers"]),
    }
    built = job(manifest, index=replicas - 1)
    assert built["spec"]["template"]["metadata"]["annotations"][wire.MEMBERS] == hosts


def test_labels_and_annotations_are_upstreams() -> None:
    """Every key of the wire map is a label and an annotation on the Job and on its Pods."""
    manifest = jobset(
        jobs=[
            replicated_job("a", replicas=2) | {"groupName": "g1"},
            replicated_job("b", replicas=3) | {"groupName": "g2"},
            replicated_job("c", replicas=4) | {"groupName": "g1"},
        ]
    )
    built = job(manifest, position=2, index=1)
    expected = {
        wire.JOBSET_NAME: "train",
        wire.JOBSET_UID: "u",
        wire.REPLICATED_JOB_NAME: "c",
        wire.REPLICATED_JOB_REPLICAS: "4",
        wire.GLOBAL_REPLICAS: "9",
        wire.JOB_INDEX: "1",
        wire.JOB_GLOBAL_INDEX: "6",
        wire.JOB_KEY: hashlib.sha1(b"default/train-c-1", usedforsecurity=False).hexdigest(),
        wire.RESTART_ATTEMPT: "0",
        wire.JOB_RESTART_ATTEMPT: "0",
        wire.GROUP_NAME: "g1",
        wire.GROUP_REPLICAS: "6",
        wire.JOB_GROUP_INDEX: "3",
    }
    metadata = built["metadata"]
    assert metadata["name"] == "train-c-1"
    assert metadata["labels"] == metadata["annotations"] == expected
    template = built["spec"]["template"]["metadata"]
    assert template["labels"] == expected
    assert template["annotations"].items() >= expected.items()


def test_each_pod_learns_its_place_in_the_herd() -> None:
    """Group size and offset number all Pods of a JobSet without a gap: offset + completion index, over all its Jobs."""
    manifest = jobset(jobs=[replicated_job("a", replicas=2, pods=3), replicated_job("b", replicas=1, pods=4)])
    numbers = []
    for position, index, pods in ((0, 0, 3), (0, 1, 3), (1, 0, 4)):
        metadata = job(manifest, position, index)["spec"]["template"]["metadata"]
        assert metadata["annotations"]["inplace.dev/group-size"] == "10"
        assert "inplace.dev/group-size" not in metadata["labels"]
        offset = int(metadata["annotations"]["inplace.dev/group-offset"])
        numbers += [offset + completion for completion in range(pods)]
    assert numbers == list(range(10))


def test_our_keys_win_and_the_users_stay() -> None:
    """The user's labels stay at their place; ours win a clash; a template's name is ignored."""
    manifest = changed(
        jobset(), "spec.replicatedJobs.0.template.metadata", {"name": "x", "labels": {"team": "a", wire.JOB_INDEX: "9"}}
    )
    manifest = changed(manifest, "spec.replicatedJobs.0.template.spec.template.metadata", {"labels": {"tier": "b"}})
    built = job(manifest)
    assert built["metadata"]["name"] == "train-workers-0"
    assert built["metadata"]["labels"]["team"] == "a"
    assert built["metadata"]["labels"][wire.JOB_INDEX] == "0"
    assert built["spec"]["template"]["metadata"]["labels"]["tier"] == "b"
    assert "team" not in built["spec"]["template"]["metadata"]["labels"]


def test_unknown_fields_survive_and_the_jobset_is_not_changed() -> None:
    """A template is passed on unchanged, apart from our fields."""
    extra: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}, "futureField": [1, {"a": None}]}
    manifest = changed(jobset(), "spec.replicatedJobs.0.template.spec.template.spec.future", extra)
    before = str(manifest)
    built = job(manifest)
    assert built["spec"]["template"]["spec"]["future"] == extra
    built["spec"]["template"]["spec"]["future"]["futureField"].append(2)
    assert str(manifest).replace(", 'uid': 'u-1', 'resourceVersion': '1'", "") == before


def test_defaults_of_the_webhook_that_we_do_not_have() -> None:
    """Indexed, OnFailure and the subdomain are filled in; completions follow parallelism; suspend is passed on."""
    manifest = jobset(strategy=None, jobs=[{"name": "a", "template": {"spec": {"parallelism": 3, "suspend": True}}}])
    built = job(manifest)
    assert built["spec"]["completionMode"] == "Indexed"
    assert built["spec"]["completions"] == 3
    assert built["spec"]["suspend"] is False
    assert built["spec"]["template"]["spec"] == {"subdomain": "train", "restartPolicy": "OnFailure"}


def test_what_the_user_says_is_not_defaulted() -> None:
    """NonIndexed, Never and DNS off stay as they are."""
    spec = {"completionMode": "NonIndexed", "parallelism": 3, "template": {"spec": {"restartPolicy": "Never"}}}
    manifest = jobset(
        strategy=None, jobs=[{"name": "a", "template": {"spec": spec}}], network={"enableDNSHostnames": False}
    )
    built = job(manifest)
    assert "completions" not in built["spec"]
    assert built["spec"]["template"]["spec"] == {"restartPolicy": "Never"}


def test_the_owner_is_the_jobset() -> None:
    """The owner reference makes the JobSet the controller and blocks its foreground deletion."""
    (owner,) = job(jobset())["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "train",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_the_coordinator_is_named() -> None:
    """spec.coordinator becomes an endpoint label."""
    manifest = jobset(coordinator={"replicatedJob": "workers", "podIndex": 1}, network={"subdomain": "net"})
    assert job(manifest)["metadata"]["labels"][wire.COORDINATOR] == "train-workers-0-1.net"
