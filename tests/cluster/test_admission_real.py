"""The admission policies on a real kube-apiserver, and objects that are older than the rules."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from inplace.common.kube.resources import KubeObject
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.waiting import until
from tests.cluster.test_crd_real import DEFINITIONS, check, install, jobsets, merged, refusal
from tests.controller.manifests import changed, jobset
from tests.deploy.admission import ABOUT_JOBSETS, policies
from tests.deploy.crd_cases import (
    CREATES,
    INDEXED_PODS_MAX,
    NO_POLICY,
    SPEC,
    UPDATES,
    Create,
    Update,
    crd,
    crd_without_rules,
)
from tests.deploy.old_objects import OLD_OBJECTS
from tests.deploy.policy_cases import POLICY_CREATES, POLICY_UPDATES
from tests.deploy.spec_cases import SPEC_CREATES, SPEC_UPDATES, rule, with_rules
from tests.deploy.test_admission import accepted

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACTIVE_S_MAX = 90.0  # a policy acts about a second after its storage, later on a busy machine
PROBE = "is-every-policy-active"
REFUSED = POLICY_CREATES[-1].manifest


async def wait_until_active(client: ApiClient, *, with_immutable: bool = True) -> None:
    """Return when the validating policies refuse, with or without immutable.yaml, and the mutating one mutates."""
    path = f"{jobsets('default')}/{PROBE}"
    assert await refusal(client.post(jobsets("default"), jobset(PROBE))) is None

    async def is_active() -> bool:
        try:
            named = await client.post(jobsets("default"), with_rules(rule("")), dryRun="All")
        except UnexpectedStatus as error:
            if error.status != 503:  # the mutating plugin discovers a new CRD later than this client
                raise
            return False
        another = changed(await client.get(path), f"{SPEC}.template.spec.containers.0.image", "worker:2")
        return (
            await refusal(client.post(jobsets("default"), REFUSED, dryRun="All")) is not None
            and (
                not with_immutable
                or await refusal(client.text("PUT", path, body=another, query={"dryRun": "All"})) is not None
            )
            and named["spec"]["failurePolicy"]["rules"][0]["name"] != ""
        )

    await until(is_active, "policies that act", timeout_s=ACTIVE_S_MAX)
    await client.delete(path)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(binaries: Binaries) -> AsyncIterator[ApiClient]:
    """Give a client of a new server, on which OLD_OBJECTS, then the CRD and the policies were stored."""
    async with ControlPlane(binaries) as running, running.client() as client:
        await client.post(DEFINITIONS, crd_without_rules())
        await install(client)
        for name, manifest in OLD_OBJECTS.items():
            old = changed(changed(manifest, "metadata.name", name), "metadata.finalizers", ["a.b/c"])
            await client.post(jobsets("default"), old)
        stored = await client.get(f"{DEFINITIONS}/{crd()['metadata']['name']}")
        await client.text("PUT", f"{DEFINITIONS}/{crd()['metadata']['name']}", body=stored | {"spec": crd()["spec"]})
        await client.create(policies(*ABOUT_JOBSETS))
        await wait_until_active(client)

        async def has_the_new_rules() -> bool:
            return await refusal(client.post(jobsets("default"), jobset("a.b"), dryRun="All")) is not None

        await until(has_the_new_rules, "the new rules of the CRD", timeout_s=ACTIVE_S_MAX)
        yield client


async def new_namespace(client: ApiClient) -> str:
    """Create a namespace for one test; it stays, because no controller here could delete it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "case-"}}
    created: dict[str, Any] = await client.post("/api/v1/namespaces", body)
    return str(created["metadata"]["name"])


@pytest.mark.parametrize("case", POLICY_CREATES + accepted(CREATES + SPEC_CREATES), ids=lambda case: case.claim)
async def test_create(guarded: ApiClient, case: Create) -> None:
    """A manifest is accepted, or refused with the path, what was found and the way there."""
    namespace = await new_namespace(guarded)
    check(case.words, await refusal(guarded.post(jobsets(namespace), merged(case.manifest, namespace))))


@pytest.mark.parametrize("case", POLICY_UPDATES + accepted(UPDATES + SPEC_UPDATES), ids=lambda case: case.claim)
async def test_update(guarded: ApiClient, case: Update) -> None:
    """A suspended JobSet may change what Kueue changes, and nothing else."""
    namespace = await new_namespace(guarded)
    stored = await guarded.post(jobsets(namespace), merged(case.before or jobset(), namespace))
    path = f"{jobsets(namespace)}/train"
    check(case.words, await refusal(guarded.text("PUT", path, body=changed(stored, case.path, case.value))))


async def test_a_job_larger_than_any_can_be_suspended_and_made_smaller(guarded: ApiClient) -> None:
    """A JobSet that was stored before the bound keeps its size at other changes, and can be brought below it."""
    path = f"{jobsets('default')}/indexed-of-2-31"
    stored = await guarded.patch(path, {"spec": {"suspend": True}})

    async def resize(pods: int) -> str | None:
        body = changed(changed(stored, f"{SPEC}.parallelism", pods), f"{SPEC}.completions", pods)
        return await refusal(guarded.text("PUT", path, body=body))

    check(("must be less than or equal to 100000 when completion mode is Indexed",), await resize(2**31 - 2))
    check((), await resize(INDEXED_PODS_MAX))


@pytest.mark.parametrize("name", OLD_OBJECTS)
async def test_an_object_older_than_the_rules_lives_on(guarded: ApiClient, name: str) -> None:
    """It can be labelled, get a status, lose its finalizer and go."""
    path = f"{jobsets('default')}/{name}"
    await guarded.patch(path, {"metadata": {"labels": {"a": "b"}}})
    await guarded.patch(f"{path}/status", {"status": {"restarts": 1}})
    await guarded.delete(path)
    await guarded.patch(path, {"metadata": {"finalizers": []}})
    assert "not found" in str(await refusal(guarded.get(path)))


async def test_what_was_left_out_is_filled_in(guarded: ApiClient) -> None:
    """A stored JobSet has all defaults of upstream's webhook, and applying it again changes nothing."""
    namespace = await new_namespace(guarded)
    manifest = merged(with_rules(rule(""), rule("mine"), rule("")), namespace)
    del manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"]
    stored = await guarded.post(jobsets(namespace), manifest)
    spec = stored["spec"]
    assert [entry["name"] for entry in spec["failurePolicy"]["rules"]] == [
        "failurePolicyRule0",
        "mine",
        "failurePolicyRule2",
    ]
    assert spec["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"
    assert spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    again = await guarded.text("PUT", f"{jobsets(namespace)}/train", body=manifest | {"metadata": stored["metadata"]})
    assert f'"generation":{stored["metadata"]["generation"]},' in again


@pytest.mark.parametrize(("containers", "words"), [(2, ()), (4, ("denied request", "cost limit exceeded"))])
async def test_thousands_of_fields_may_be_spelled_anew_at_once(
    guarded: ApiClient, containers: int, words: tuple[str, ...]
) -> None:
    """2,000 variables without a value are within the server's budget; 4,000 are not, and the update is refused."""
    namespace = await new_namespace(guarded)

    def spelled(**value: str) -> list[KubeObject]:
        env = [{"name": f"E{number}"} | value for number in range(1_000)]
        return [{"name": f"c{number}", "image": "worker:1", "env": env} for number in range(containers)]

    path = f"{SPEC}.template.spec.containers"
    stored = await guarded.post(jobsets(namespace), merged(changed(jobset(), path, spelled()), namespace))
    body = changed(stored, path, spelled(value=""))
    check(words, await refusal(guarded.text("PUT", f"{jobsets(namespace)}/train", body=body)))


async def test_the_largest_jobset_is_within_the_cost(guarded: ApiClient) -> None:
    """A hundred replicatedJobs with all that rules walk over can be created and changed: no budget runs out."""
    namespace = await new_namespace(guarded)
    one = NO_POLICY["spec"]["replicatedJobs"][0]
    names = [f"replicated-job-{index:03}" for index in range(100)]
    jobs = [one | {"name": name} for name in names]
    for index in range(5, 100):
        jobs[index] |= {"dependsOn": [{"name": name, "status": "Ready"} for name in names[index - 5 : index]]}
    rules = [rule(f"rule{index}", targetReplicatedJobs=names[:20]) for index in range(100)]
    manifest = merged(
        jobset(strategy=None, jobs=jobs, suspend=True, failurePolicy={"maxRestarts": 1, "rules": rules}), namespace
    )
    stored = await guarded.post(jobsets(namespace), manifest)
    relabelled = changed(stored, "spec.replicatedJobs.99.template.spec.template.metadata", {"labels": {"a": "b"}})
    assert await refusal(guarded.text("PUT", f"{jobsets(namespace)}/train", body=relabelled)) is None
