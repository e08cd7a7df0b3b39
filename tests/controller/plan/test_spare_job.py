"""A spare's Pod: which room it holds, which nodes take it, and which images come with it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.spares import largest
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.plan.actions import CreateJob, CreateSpares
from inplace.controller.plan.spares import requests_of
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import parsed

POD = "spec.replicatedJobs.0.template.spec.template.spec"
ADDS = JobSettings(agent=InjectOptions(agent_image="agent:1"))
COPIES = JobSettings(agent=InjectOptions(agent_image="agent:1", copies_image=True))


def spec_of(manifest: KubeObject, settings: JobSettings = ADDS) -> dict[str, Any]:
    """Return the spec of the spares' Job of a JobSet."""
    read = parsed(manifest)
    action = CreateSpares(CreateJob(read, largest(read.replicated_jobs), 0), 2)
    found: dict[str, Any] = settings.spares_of(action)["spec"]
    return found


def pod_of(manifest: KubeObject, settings: JobSettings = ADDS) -> dict[str, Any]:
    """Return the spec of its Pods."""
    found: dict[str, Any] = spec_of(manifest, settings)["template"]["spec"]
    return found


def plain(**resources: Any) -> KubeObject:
    """Return an in-place JobSet whose worker has these resources."""
    manifest = changed(jobset(), f"{POD}.containers.0.command", ["train"])
    return changed(manifest, f"{POD}.containers.0.resources", resources)


def test_it_holds_what_a_pod_of_the_group_takes() -> None:
    """The agent that is added is part of that; devices have limits that equal their requests, as the API asks."""
    (spare,) = pod_of(plain(requests={"cpu": "7"}, limits={"memory": "8Gi", "nvidia.com/gpu": "8"}))["containers"]
    asked = {"cpu": "7010m", "memory": "8224Mi", "nvidia.com/gpu": "8"}
    assert spare["resources"] == {"requests": asked, "limits": asked}


def test_a_pod_that_asks_for_nothing_has_a_spare_that_asks_for_its_agent() -> None:
    """No entry is 0."""
    (spare,) = pod_of(plain())["containers"]
    assert spare["resources"]["requests"] == {"cpu": "10m", "memory": "32Mi"}


def test_it_runs_nothing_of_the_users() -> None:
    """The agent's program waits, under Pod Security `restricted`, without a token."""
    pod = pod_of(plain())
    (spare,) = pod["containers"]
    assert (spare["image"], spare["command"]) == ("agent:1", ["inplace-agent", "hold"])
    assert spare["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert "initContainers" not in pod
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 1)
    assert pod["priorityClassName"] == wire.SPARE_PRIORITY_CLASS


def test_the_images_of_the_pods_are_pulled() -> None:
    """As volumes that nobody mounts, each once and with the container's policy; the agent's is there anyway."""
    manifest = changed(plain(), f"{POD}.containers.0.imagePullPolicy", "Always")
    more = [{"name": "helper", "image": "helper:1", "command": ["x"]}, {"name": "h", "image": "helper:1"}]
    manifest = changed(manifest, f"{POD}.initContainers", more)
    volumes = pod_of(manifest)["volumes"]
    assert [volume["image"] for volume in volumes if volume["image"]["reference"] != "helper:1"] == [
        {"reference": "worker:1", "pullPolicy": "Always"}
    ]
    assert sorted(volume["image"]["reference"] for volume in volumes) == ["helper:1", "worker:1"]
    assert len({volume["name"] for volume in volumes}) == 2
    assert "volumeMounts" not in pod_of(manifest)["containers"][0]


def test_nodes_without_image_volumes_pull_none() -> None:
    """The API would refuse the Pod there."""
    assert pod_of(plain(), COPIES)["volumes"] == []


def test_the_same_nodes_take_it() -> None:
    """Selector, tolerations and node affinity are the user's; what keeps Pods of the group together is not copied."""
    node_affinity: KubeObject = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    affinity = {"nodeAffinity": node_affinity, "podAffinity": {"x": []}}
    manifest = changed(plain(), f"{POD}.affinity", affinity)
    copied = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "trainer",
        "schedulerName": "mine",
    }
    for name, value in copied.items():
        manifest = changed(manifest, f"{POD}.{name}", value)
    pod = pod_of(manifest)
    assert {name: pod[name] for name in copied} == copied
    assert pod["affinity"]["nodeAffinity"] == node_affinity
    assert "podAffinity" not in pod["affinity"]
    (first, second) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = [each["podAffinityTerm"]["labelSelector"]["matchLabels"] for each in (first, second)]
    assert labels == [{wire.JOBSET_NAME: "train"}, {wire.SPARE_OF: "train"}]


def test_a_spare_of_exclusive_placement_is_bound_to_no_domain() -> None:
    """The Job that moves to another rack finds its room there."""
    manifest = changed(plain(), "metadata.annotations", {wire.EXCLUSIVE_TOPOLOGY: "rack"})
    pod = pod_of(manifest)
    assert "schedulingGates" not in pod
    assert "nodeSelector" not in pod


def test_its_indexes_back_off_alone() -> None:
    """A spare that was taken does not delay the others, and none fails the Job."""
    spec = spec_of(plain())
    limits = (spec["backoffLimit"], spec["backoffLimitPerIndex"])
    assert (spec["completionMode"], spec["completions"], limits) == ("Indexed", 2, (INT32_MAX, INT32_MAX))


def test_the_largest_replicated_job_is_held_room_for() -> None:
    """Of those in the group."""
    jobs = [
        replicated_job("leader"),
        replicated_job("workers", replicas=2, pods=3),
        replicated_job("logs", replicas=9, pods=9),
    ]
    manifest = changed(
        jobset(jobs=jobs), "spec.replicatedJobs.2.template.metadata", {"annotations": {wire.DISABLE: "true"}}
    )
    assert largest(parsed(manifest).replicated_jobs).name == "workers"


def container(cpu: str, **fields: Any) -> KubeObject:
    """Return a container that asks for CPU."""
    return {"name": "x", "resources": {"requests": {"cpu": cpu}}} | fields


ALWAYS = {"restartPolicy": "Always"}
CASES: tuple[tuple[list[KubeObject], list[str], str], ...] = (
    ([], ["1", "2"], "3"),
    ([container("5")], ["1", "2"], "5"),
    ([container("2", **ALWAYS)], ["1"], "3"),
    ([container("2", **ALWAYS), container("4")], ["1"], "6"),
    ([container("4"), container("2", **ALWAYS)], ["1"], "4"),
)


@pytest.mark.parametrize(("init", "regular", "expected"), CASES)
def test_requests_are_added_as_the_scheduler_adds_them(
    init: list[KubeObject], regular: list[str], expected: str
) -> None:
    """Sidecars run beside all that comes after them; other init containers run alone."""
    pod = {"initContainers": init, "containers": [container(cpu) for cpu in regular]}
    assert requests_of(pod) == {"cpu": Decimal(expected)}


def test_what_the_pod_as_a_whole_asks_for_comes_first() -> None:
    """A device still counts by container."""
    pod = {"resources": {"requests": {"cpu": "8"}}, "containers": [container("1")]}
    assert requests_of(pod) == {"cpu": Decimal(8)}
