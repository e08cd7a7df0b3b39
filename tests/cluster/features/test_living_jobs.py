"""
JobSets with living Jobs: the real Job controller, garbage collector and scheduler work beside our controller.

The tests play kubelets: they set the phase of Pods, which the scheduler finds no node for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, KubeObject
from inplace.common.wire import names as wire
from testbed.control_plane import ControlPlane
from testbed.kube_client import create, kube_client
from testbed.waiting import eventually
from tests.cluster.features.served import ACCOUNT, NAMESPACE, roles
from tests.cluster.features.stage import Stage
from tests.cluster.features.test_claims import mounting, policies
from tests.cluster.test_admission_real import wait_until_active
from tests.cluster.test_controller_real import running
from tests.cluster.test_crd_real import install
from tests.controller.crew import exists
from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.admission import policies as admission
from tests.deploy.spec_cases import claim, rule

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def full_admin(full_control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Give an administrator of the control plane that has controllers, with CRD, policies and roles."""
    async with full_control_plane.client() as client:
        await install(client)
        await client.create(admission("jobsets.yaml") + admission("defaults.yaml"))
        await wait_until_active(client, with_immutable=False)
    async with kube_client(full_control_plane.kubeconfig) as admin:
        await create(admin, roles())
        yield admin


@pytest_asyncio.fixture(loop_scope="session")
async def living(full_control_plane: ControlPlane, full_admin: KubeClient, full_namespace: str) -> AsyncIterator[Stage]:
    """Give a namespace with all controllers; ours has the shipped permissions."""
    kubeconfig = await full_control_plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    async with running(full_control_plane, full_namespace, kubeconfig=kubeconfig):
        yield Stage(full_admin, full_namespace, "train")


async def pods_of(stage: Stage, job: str = JOB) -> dict[str, KubeObject]:
    """Return the unfinished Pods of a Job, by completion index."""
    found = (await stage.client.list(PODS, stage.namespace, query={"labelSelector": f"job-name={job}"}))["items"]
    live = [pod for pod in found if pod["status"].get("phase") not in ("Failed", "Succeeded")]
    return {pod["metadata"]["annotations"][wire.JOB_COMPLETION_INDEX]: pod for pod in live}


async def has_pods(stage: Stage, count: int, job: str = JOB) -> dict[str, KubeObject]:
    """Wait until a Job has this number of Pods."""

    async def number() -> int:
        return len(await pods_of(stage, job))

    await eventually(number, count)
    return await pods_of(stage, job)


async def end(stage: Stage, pod: KubeObject, phase: str, exit_code: int = 1) -> None:
    """Let a Pod end as kubelet reports it."""
    code = 0 if phase == "Succeeded" else exit_code
    container = {"name": "worker", "image": "w", "imageID": "", "ready": False, "restartCount": 0}
    ended = container | {"state": {"terminated": {"exitCode": code, "reason": "Error"}}}
    status = {"phase": phase, "containerStatuses": [ended]}
    await stage.client.patch(PODS, stage.namespace, pod["metadata"]["name"], {"status": status}, subresource="status")


async def be_ready(stage: Stage, pod: KubeObject) -> None:
    """Let a Pod run and be ready."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await stage.client.patch(PODS, stage.namespace, pod["metadata"]["name"], {"status": status}, subresource="status")


async def job_status(stage: Stage, name: str = JOB) -> dict[str, Any]:
    """Return the Job's status."""
    found: dict[str, Any] = (await stage.client.get(JOBS, stage.namespace, name)).get("status") or {}
    return found


async def test_from_start_to_completion(living: Stage) -> None:
    """Pods are made, become ready, succeed; counters follow; the JobSet completes."""
    await living.start(jobset(strategy=None))
    pods = await has_pods(living, 2)
    await living.counts_are("workers", active=1)
    for pod in pods.values():
        await be_ready(living, pod)
    await living.counts_are("workers", active=1, ready=1)
    for pod in pods.values():
        await end(living, pod, "Succeeded")
    await living.becomes("Completed", "True", "AllJobsCompleted", "jobset completed successfully")
    await living.counts_are("workers", succeeded=1)


async def test_a_pods_labels(living: Stage) -> None:
    """Pods carry the keys of their Job as labels and annotations, host name and subdomain included."""
    await living.start(jobset(strategy=None))
    pod = (await has_pods(living, 2))["1"]
    for keys in (pod["metadata"]["labels"], pod["metadata"]["annotations"]):
        assert (keys[wire.JOBSET_NAME], keys[wire.REPLICATED_JOB_NAME], keys[wire.JOB_INDEX]) == (
            "train",
            "workers",
            "0",
        )
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"{JOB}-1", "train")
    assert pod["metadata"]["name"].startswith(f"{JOB}-1-")


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
async def test_a_restart(living: Stage, strategy: str) -> None:
    """When a Job exhausts its backoffLimit, all Jobs are deleted with their Pods and created anew."""
    jobs = [replicated_job(pods=1, replicas=2, backoffLimit=0)]
    before = await living.start(jobset(strategy=strategy, jobs=jobs))
    pod = (await has_pods(living, 1))["0"]
    await end(living, pod, "Failed")

    async def attempts() -> list[str]:
        found = (await living.client.list(JOBS, living.namespace))["items"]
        return [job["metadata"]["labels"][wire.RESTART_ATTEMPT] for job in found]

    await eventually(attempts, ["1", "1"])
    after = await living.jobs()
    assert all(after[name]["metadata"]["uid"] != before[name]["metadata"]["uid"] for name in before)
    new = (await has_pods(living, 1))["0"]
    assert new["metadata"]["labels"][wire.RESTART_ATTEMPT] == "1"
    message = f"applying RestartJobSet failure policy action (first failed job: {JOB})"
    await living.becomes("RestartingJobSet", "True", "DefaultFailurePolicy", message)


async def fails_with(living: Stage, spec: KubeObject, exit_code: int, reason: str, pods: int = 1) -> None:
    """Let index 0 of a Job fail, and wait until the failure policy has seen the Job fail for a reason."""
    job = replicated_job(pods=pods)
    changed_spec = job["template"]["spec"] | spec
    job["template"]["spec"] = {name: value for name, value in changed_spec.items() if value is not None}
    policy = {"maxRestarts": 5, "rules": [rule("mine", onJobFailureReasons=[reason])]}
    await living.start(jobset(strategy=None, jobs=[job], failurePolicy=policy))
    await end(living, (await has_pods(living, pods))["0"], "Failed", exit_code)
    message = f"applying FailJobSet failure policy action (first failed job: {JOB})"
    await living.becomes("Failed", "True", "FailJobSetFailurePolicyAction", message)


POD_FAILURE: Final = {
    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42], "containerName": "worker"}}]
}
PER_INDEX: Final = {"backoffLimit": None, "backoffLimitPerIndex": 0}
JOB_FAILURES: Final[dict[str, tuple[KubeObject, int]]] = {
    "BackoffLimitExceeded": ({"backoffLimit": 0}, 1),
    "PodFailurePolicy": ({"backoffLimit": 6, "podFailurePolicy": POD_FAILURE}, 42),
    "MaxFailedIndexesExceeded": (PER_INDEX | {"maxFailedIndexes": 0, "parallelism": 2, "completions": 2}, 1),
}


@pytest.mark.parametrize("reason", JOB_FAILURES)
async def test_why_a_job_failed(living: Stage, reason: str) -> None:
    """`onJobFailureReasons` matches the real Job controller's reason."""
    spec, exit_code = JOB_FAILURES[reason]
    await fails_with(living, spec, exit_code, reason, pods=spec.get("parallelism", 1))


async def test_the_message_of_a_pod_failure_policy(living: Stage) -> None:
    """`onJobFailureMessagePatterns` matches the real Job controller's message."""
    rules = [rule("code", onJobFailureMessagePatterns=["failed with exit code 42 matching FailJob rule"])]
    job = replicated_job(pods=1, podFailurePolicy=POD_FAILURE, backoffLimit=6)
    await living.start(jobset(strategy=None, jobs=[job], failurePolicy={"maxRestarts": 5, "rules": rules}))
    await end(living, (await has_pods(living, 1))["0"], "Failed", 42)
    message = f"applying FailJobSet failure policy action (first failed job: {JOB})"
    await living.becomes("Failed", "True", "FailJobSetFailurePolicyAction", message)


async def test_a_deadline(living: Stage) -> None:
    """A Job beyond its activeDeadlineSeconds fails with DeadlineExceeded."""
    rules = [rule("late", onJobFailureReasons=["DeadlineExceeded"])]
    job = replicated_job(pods=1, activeDeadlineSeconds=1)
    await living.start(jobset(strategy=None, jobs=[job], failurePolicy={"maxRestarts": 5, "rules": rules}))
    message = f"applying FailJobSet failure policy action (first failed job: {JOB})"
    await living.becomes("Failed", "True", "FailJobSetFailurePolicyAction", message)


async def test_failed_indexes(living: Stage) -> None:
    """An index that used up its backoffLimitPerIndex fails alone; when the others are done, the Job fails for it."""
    job = replicated_job(pods=2, backoffLimitPerIndex=0)
    del job["template"]["spec"]["backoffLimit"]
    policy = {"maxRestarts": 5, "rules": [rule("index", onJobFailureReasons=["FailedIndexes"])]}
    await living.start(jobset(strategy=None, jobs=[job], failurePolicy=policy))
    pods = await has_pods(living, 2)
    await end(living, pods["1"], "Failed")

    async def failed_indexes() -> Any:
        return (await job_status(living)).get("failedIndexes")

    await eventually(failed_indexes, "1")
    await living.counts_are("workers", active=1)
    assert (await living.status()).get("terminalState") in (None, "")
    await end(living, pods["0"], "Succeeded")
    await living.becomes_terminal("Failed")


async def test_pod_replacement(living: Stage) -> None:
    """With podReplacementPolicy Failed a Pod that is going is counted as terminating, and replaced when it is gone.

    The Pod has a node: each 20 s the Pod garbage collector ends Pods without one that are being deleted.
    """
    held = changed(replicated_job(pods=1), "template.spec.template.metadata", {"finalizers": ["example.com/hold"]})
    held = changed(held, "template.spec.template.spec.nodeName", "far-away")
    await living.start(jobset(strategy=None, jobs=[held]))
    (pod,) = (await has_pods(living, 1)).values()
    await living.counts_are("workers", active=1)
    name = pod["metadata"]["name"]
    await living.client.delete(PODS, living.namespace, name, grace_period_s=0)

    async def standing() -> tuple[Any, bool]:
        found = (await living.client.list(PODS, living.namespace))["items"]
        fresh = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return (await job_status(living)).get("terminating", 0), bool(fresh)

    await eventually(standing, (1, False))
    await living.counts_are("workers")
    await living.client.patch(PODS, living.namespace, name, {"metadata": {"finalizers": None}})
    await eventually(standing, (0, True))
    for one in (await living.client.list(PODS, living.namespace))["items"]:
        await living.client.patch(PODS, living.namespace, one["metadata"]["name"], {"metadata": {"finalizers": None}})


async def test_suspend_and_resume_elsewhere(living: Stage) -> None:
    """The real Job controller stops the Pods, and lets the resumed Job start with the queue's new selector."""
    await living.start(jobset(strategy=None))
    await has_pods(living, 2)
    uid = (await living.jobs())[JOB]["metadata"]["uid"]
    await living.edit({"spec": {"suspend": True}})
    await has_pods(living, 0)
    manifest = changed(
        await living.jobset(), "spec.replicatedJobs.0.template.spec.template.spec.nodeSelector", {"zone": "b"}
    )
    await living.edit({"spec": {"suspend": False, "replicatedJobs": manifest["spec"]["replicatedJobs"]}})
    pods = await has_pods(living, 2)
    assert {pod["spec"]["nodeSelector"]["zone"] for pod in pods.values()} == {"b"}
    assert (await living.jobs())[JOB]["metadata"]["uid"] == uid
    await living.becomes("Suspended", "False", "ResumeJobs", "jobset is resumed")


@pytest.mark.parametrize("pods", [3, 1])
async def test_elastic(living: Stage, pods: int) -> None:
    """The real Job controller makes or ends Pods for the new size."""
    await living.start(jobset(strategy=None))
    await has_pods(living, 2)
    await living.edit({"spec": {"replicatedJobs": [replicated_job(pods=pods)]}})
    found = await has_pods(living, pods)
    assert set(found) == {str(index) for index in range(pods)}


async def gone(stage: Stage) -> bool:
    """Return whether no object of the JobSet is left."""
    try:
        await stage.jobset()
    except NotFound:
        jobs, pods = [(await stage.client.list(kind, stage.namespace))["items"] for kind in (JOBS, PODS)]
        return not jobs and not pods and not await exists(stage.client, SERVICES, stage.namespace, "train")
    return False


@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_deletion(living: Stage, propagation: str) -> None:
    """Jobs, Pods and Service are deleted with the JobSet; a claim too, unless it is retained."""
    kept, lost = policies("Retain", claim("kept")), policies("Delete", claim("lost"))
    await living.start(jobset(strategy=None, jobs=[mounting("a", "kept", "lost")], volumeClaimPolicies=kept + lost))
    await has_pods(living, 2, "train-a-0")
    await living.client.delete(JOBSETS, living.namespace, "train", propagation=propagation)
    await eventually(lambda: gone(living), True)
    await eventually(lambda: left(living), ["kept-train"])


async def left(stage: Stage) -> list[str]:
    """Return the existing claims; the protection controller delays the end of claims that Pods used."""
    found = (await stage.client.list(PERSISTENT_VOLUME_CLAIMS, stage.namespace))["items"]
    return [item["metadata"]["name"] for item in found]


async def test_orphans_stay(living: Stage) -> None:
    """Deleted with orphaned dependents, a JobSet leaves its Jobs running and ownerless."""
    await living.start(jobset(strategy=None))
    await has_pods(living, 2)
    await living.client.delete(JOBSETS, living.namespace, "train", propagation="Orphan")

    async def owners() -> Any:
        return (await living.jobs())[JOB]["metadata"].get("ownerReferences")

    await eventually(owners, None)
    assert len(await pods_of(living)) == 2


async def test_ttl(living: Stage) -> None:
    """A finished JobSet and all its objects are gone after its TTL."""
    await living.start(jobset(strategy=None, ttlSecondsAfterFinished=1))
    for pod in (await has_pods(living, 2)).values():
        await end(living, pod, "Succeeded")
    await eventually(lambda: gone(living), True)


async def test_success_ends_the_others(living: Stage) -> None:
    """With Any, the running Jobs are deleted with their Pods when one Job succeeds."""
    jobs = [replicated_job("a", pods=1), replicated_job("b", pods=1)]
    await living.start(jobset(strategy=None, jobs=jobs, successPolicy={"operator": "Any"}))
    (pod,) = (await has_pods(living, 1, "train-a-0")).values()
    await has_pods(living, 1, "train-b-0")
    await end(living, pod, "Succeeded")
    await living.becomes_terminal("Completed")
    await has_pods(living, 0, "train-b-0")

    async def names() -> set[str]:
        return set(await living.jobs())

    await eventually(names, {"train-a-0"})


async def test_one_job_is_restarted(living: Stage) -> None:
    """RestartJob makes one Job and its Pods anew; the other's Pods live on."""
    jobs = [replicated_job(pods=1, replicas=2, backoffLimit=0)]
    rules = [rule("alone", "RestartJob")]
    await living.start(jobset(strategy=None, jobs=jobs, failurePolicy={"maxRestarts": 1, "rules": rules}))
    (other,) = (await has_pods(living, 1, "train-workers-1")).values()
    (pod,) = (await has_pods(living, 1)).values()
    await end(living, pod, "Failed")

    async def attempts() -> dict[str, str]:
        found = (await living.jobs()).items()
        return {name: job["metadata"]["labels"][wire.JOB_RESTART_ATTEMPT] for name, job in found}

    await eventually(attempts, {JOB: "1", "train-workers-1": "0"})
    await has_pods(living, 1)
    assert (await has_pods(living, 1, "train-workers-1"))["0"]["metadata"]["uid"] == other["metadata"]["uid"]


async def test_depends_on(living: Stage) -> None:
    """The dependent starts when the real Job controller says that its dependency is ready."""
    second = replicated_job("b", pods=1) | {"dependsOn": [{"name": "a", "status": "Ready"}]}
    await living.submit(jobset(strategy=None, jobs=[replicated_job("a", pods=1), second]))
    (pod,) = (await has_pods(living, 1, "train-a-0")).values()
    assert set(await living.jobs()) == {"train-a-0"}
    await be_ready(living, pod)
    await has_pods(living, 1, "train-b-0")


async def test_gates_keep_followers_back(living: Stage) -> None:
    """Real Pods get our gate; the leader's is lifted at once, the follower's stays while the leader has no node."""
    annotations = {wire.EXCLUSIVE_TOPOLOGY: "example.com/rack"}
    await living.start(changed(jobset(strategy=None), "metadata.annotations", annotations))
    await has_pods(living, 2)

    async def gated() -> dict[str, bool]:
        return {index: bool(pod["spec"].get("schedulingGates")) for index, pod in (await pods_of(living)).items()}

    await eventually(gated, {"0": False, "1": True})
