"""A JobSet's Jobs: their keys, name and owner, and the unchanged template."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pytest
import pytest_asyncio

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import KubeObject
from testbed.control_plane import ControlPlane
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

PREFIX: Final = "jobset.sigs.k8s.io/"
POD: Final = "template.spec.template"
# By Job: job index, global index, replicas, group name, group replicas, index in the group.
PLACES: Final = {
    "train-driver-0": ("driver", 0, 0, 1, "control", 1, 0),
    "train-workers-0": ("workers", 0, 1, 2, "compute", 3, 0),
    "train-workers-1": ("workers", 1, 2, 2, "compute", 3, 1),
    "train-extra-0": ("extra", 0, 3, 1, "compute", 3, 2),
    "train-alone-0": ("alone", 0, 4, 1, "default", 1, 0),
}


def golden() -> KubeObject:
    """Return a JobSet with groups, a coordinator, and metadata of the user's in both templates."""
    driver = replicated_job("driver") | {"groupName": "control"}
    workers = replicated_job("workers", replicas=2) | {"groupName": "compute"}
    extra = replicated_job("extra") | {"groupName": "compute"}
    mine = {"labels": {"of": "job", f"{PREFIX}job-index": "9"}, "annotations": {"a": "job"}, "name": "x"}
    workers["template"]["metadata"] = mine
    pods = {"labels": {"of": "pod", f"{PREFIX}jobset-name": "x"}, "annotations": {"a": "pod"}}
    workers = changed(workers, f"{POD}.metadata", pods)
    coordinator = {"replicatedJob": "driver", "jobIndex": 0, "podIndex": 1}
    jobs = [driver, workers, extra, replicated_job("alone")]
    return jobset(strategy=None, jobs=jobs, coordinator=coordinator, network={"subdomain": "mesh"})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(plane: ControlPlane, admin: KubeClient, controller: ServedController) -> Stage:
    """Give the golden JobSet with its Jobs."""
    stage = Stage(admin, await plane.create_namespace(), "train")
    await stage.start(golden())
    return stage


def metadata_at(job: KubeObject, place: str) -> dict[str, str]:
    """Return labels or annotations, of the Job or of its Pods."""
    whose, what = place.split(".")
    metadata = job["metadata"] if whose == "job" else job["spec"]["template"]["metadata"]
    found: dict[str, str] = metadata[what]
    return found


@pytest.mark.parametrize("place", ["job.labels", "job.annotations", "pod.labels", "pod.annotations"])
@pytest.mark.parametrize("name", PLACES)
async def test_keys(made: Stage, name: str, place: str) -> None:
    """Every upstream key has upstream's value, on the Job and on its Pods: one is no label, all others are both."""
    replicated, index, overall, replicas, group, group_replicas, group_index = PLACES[name]
    found = metadata_at((await made.jobs())[name], place)
    assert {key.removeprefix(PREFIX): value for key, value in found.items() if key.startswith(PREFIX)} == {
        "jobset-name": "train",
        "jobset-uid": (await made.jobset())["metadata"]["uid"],
        "replicatedjob-name": replicated,
        "replicatedjob-replicas": str(replicas),
        "global-replicas": "5",
        "job-index": str(index),
        "job-global-index": str(overall),
        "job-key": hashlib.sha1(f"{made.namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        "restart-attempt": "0",
        "job-restart-attempt": "0",
        "group-name": group,
        "group-replicas": str(group_replicas),
        "job-group-index": str(group_index),
        "coordinator": "train-driver-0-1.mesh",
    } | ({"execution-attempt": "0"} if place.endswith("annotations") else {})


async def test_users_metadata(made: Stage) -> None:
    """The template's metadata goes to the Job, the pod template's to the Pods; a name in the template is ignored."""
    job = (await made.jobs())["train-workers-1"]
    assert [metadata_at(job, place)["of"] for place in ("job.labels", "pod.labels")] == ["job", "pod"]
    assert [metadata_at(job, place)["a"] for place in ("job.annotations", "pod.annotations")] == ["job", "pod"]
    assert job["metadata"]["name"] == "train-workers-1"


async def test_owner(made: Stage) -> None:
    """The JobSet is the controller of each Job, and its foreground deletion waits for the Jobs."""
    uid = (await made.jobset())["metadata"]["uid"]
    for job in (await made.jobs()).values():
        assert job["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "name": "train",
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert "finalizers" not in job["metadata"]


CONTAINER: Final = {"name": "worker", "image": "worker:1"}
EXIT: Final = {"exitCodes": {"operator": "NotIn", "values": [0]}}
# Fields of the Job API that the controller does not read, by the name of the replicatedJob with the field.
JOB_FIELDS: Final[dict[str, KubeObject]] = {
    "deadline": {"activeDeadlineSeconds": 600},
    "ttl": {"ttlSecondsAfterFinished": 60},
    "per-index": {"backoffLimitPerIndex": 2, "maxFailedIndexes": 1},
    "replacement": {"podReplacementPolicy": "Failed"},
    "either": {"podReplacementPolicy": "TerminatingOrFailed"},
    "backoff": {"backoffLimit": 2147483647},
    "job-managed-by": {"managedBy": "example.com/multi"},
    "success": {"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}},
    "pod-failure": {
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42], "containerName": "worker"}}
            ]
        }
    },
    "non-indexed": {"completionMode": "NonIndexed", "parallelism": 2, "completions": 4},
    "fewer-at-once": {"parallelism": 2, "completions": 4},
}
POD_FIELDS: Final[dict[str, KubeObject]] = {
    "gang": {"schedulingGroup": {"podGroupName": "gang-0"}},
    "gates": {"schedulingGates": [{"name": "example.com/hold"}]},
    "selector": {"nodeSelector": {"zone": "a"}},
    "tolerations": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    "priority": {"priorityClassName": "high"},
    "host-network": {"hostNetwork": True},
    "grace": {"terminationGracePeriodSeconds": 5},
    "scheduler": {"schedulerName": "other"},
    "account": {"serviceAccountName": "train", "automountServiceAccountToken": False},
    "spread": {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    },
    "volumes": {"volumes": [{"name": "scratch", "emptyDir": {}}]},
    "claims": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
    "hostname-fqdn": {"setHostnameAsFQDN": True},
    "dns": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}},
    "runtime": {"runtimeClassName": "gvisor"},
    "security": {"securityContext": {"runAsUser": 1000}},
    "in-place": {
        "restartPolicy": "Never",
        "initContainers": [
            {
                "name": "agent",
                "image": "agent:1",
                "restartPolicy": "Always",
                "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": EXIT["exitCodes"]}],
            }
        ],
    },
}


def contains(found: Any, wanted: Any) -> bool:
    """Return whether all wanted fields are there; the server adds defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and contains(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def passed_through(plane: ControlPlane, admin: KubeClient, controller: ServedController) -> Stage:
    """Give a JobSet with a replicatedJob for each field."""
    stage = Stage(admin, await plane.create_namespace(), "pass")
    plain = {"restartPolicy": "Never", "containers": [CONTAINER]}
    base: KubeObject = {"parallelism": 2, "completions": 2, "template": {"spec": plain}}
    jobs = [{"name": name, "template": {"spec": base | fields}} for name, fields in JOB_FIELDS.items()]
    jobs += [
        {"name": name, "template": {"spec": base | {"template": {"spec": plain | fields}}}}
        for name, fields in POD_FIELDS.items()
    ]
    await stage.start(jobset("pass", strategy=None, jobs=jobs))
    return stage


@pytest.mark.parametrize("name", JOB_FIELDS)
async def test_job_fields(passed_through: Stage, name: str) -> None:
    """The Job API gets the field as the user wrote it."""
    job = (await passed_through.jobs())[f"pass-{name}-0"]
    assert contains(job["spec"], JOB_FIELDS[name])


@pytest.mark.parametrize("name", POD_FIELDS)
async def test_pod_fields(passed_through: Stage, name: str) -> None:
    """The pod template keeps the user's field, also a field that is newer than the controller."""
    job = (await passed_through.jobs())[f"pass-{name}-0"]
    assert contains(job["spec"]["template"]["spec"], POD_FIELDS[name])


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"parallelism": 3}, {"parallelism": 3, "completions": 3, "completionMode": "Indexed"}),
        ({}, {"parallelism": 1, "completions": 1, "completionMode": "Indexed"}),
        ({"completions": 2}, {"parallelism": 1, "completions": 2, "completionMode": "Indexed"}),
        ({"completionMode": "NonIndexed", "parallelism": 2}, {"parallelism": 2, "completionMode": "NonIndexed"}),
    ],
    ids=["parallelism-alone", "neither", "completions-alone", "non-indexed"],
)
async def test_sizes_left_out(stage: Stage, spec: KubeObject, wanted: KubeObject) -> None:
    """A Job gets default sizes; upstream creates an Indexed Job without completions, which the API refuses."""
    template = {"spec": {"template": {"spec": {"containers": [CONTAINER]}}} | spec}
    jobs = await stage.start(jobset(strategy=None, jobs=[{"name": "w", "template": template}]))
    found = jobs["train-w-0"]["spec"]
    assert contains(found, wanted)
    assert found["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert await stage.warnings() == []


@pytest.mark.parametrize("replicas", [0, 1, 5])
async def test_replicas(stage: Stage, replicas: int) -> None:
    """Every replica is a Job <jobset>-<replicatedJob>-<index>; zero replicas make no Job."""
    jobs = [replicated_job("w", replicas=replicas), replicated_job("one")]
    found = await stage.start(jobset(strategy=None, jobs=jobs))
    assert set(found) == {"train-one-0"} | {f"train-w-{index}" for index in range(replicas)}
    assert found["train-one-0"]["metadata"]["labels"][f"{PREFIX}job-global-index"] == str(replicas)


@pytest.mark.parametrize("suspend", [True, False])
async def test_the_templates_suspend_is_the_jobsets(stage: Stage, suspend: bool) -> None:
    """Only the JobSet's suspend decides whether a Job is suspended; the template's is ignored."""
    jobs = await stage.start(jobset(strategy=None, suspend=suspend, jobs=[replicated_job(suspend=not suspend)]))
    assert jobs["train-workers-0"]["spec"]["suspend"] is suspend
