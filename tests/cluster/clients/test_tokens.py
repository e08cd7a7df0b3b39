"""Who has a token in a Pod that the API server admitted, and what it may do: the table of docs/permissions.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from inplace.common.injection.pod_roles import SERVICE_ACCOUNT_DIR
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient, UnexpectedStatus, connect
from testbed.waiting import eventually, until
from tests.cluster.clients.manifests import in_place, jobset, replicated_job
from tests.cluster.clients.queue import Object, Queue
from tests.cluster.clients.test_trainer_in_place import COMMAND, IN_PLACE
from tests.cluster.clients.trainjobs import ONE_CPU, TrainJobs

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "permissions.md"
DRY: Final = {"dryRun": "All"}
AN_AGENTS: Final = ("200", "403", "403", "403", "403")
WITHOUT: Final = ("-",) * len(AN_AGENTS)
PODS: Final[Mapping[str, Mapping[str, Any]]] = {
    "account `default`": {"serviceAccountName": "default"},
    "an account of its own": {"serviceAccountName": "trainer"},
    "`automountServiceAccountToken: true`": {"automountServiceAccountToken": True},
    "`automountServiceAccountToken: false`": {"automountServiceAccountToken": False},
}


def written(spec: Mapping[str, Any]) -> Object:
    """Return a JobSet of two Pods as a user writes it, who adds this to their spec."""
    job = replicated_job()
    job["template"]["spec"]["template"]["spec"] |= spec
    return jobset(job, failurePolicy={"maxRestarts": 3, "restartStrategy": wire.IN_PLACE_RESTART})


def token_volumes(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield each container with the volume that holds its token; "" for none. Kubelet's mounts are admission's."""
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        mounts = {one["mountPath"]: one["name"] for one in container.get("volumeMounts", ())}
        yield container["name"], mounts.get(SERVICE_ACCOUNT_DIR, "")


async def answers(queue: Queue, pod: Object, other: Object) -> tuple[str, ...]:
    """Return what the API server answers a token of a Pod: see the header of the page's table."""
    pods = f"/api/v1/namespaces/{queue.namespace}/pods"
    name, uid, account = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["serviceAccountName"]
    plane = queue.world.plane
    kubeconfig = await plane.service_account_kubeconfig(queue.namespace, account, pod=name, uid=uid)
    announcement = {"metadata": {"annotations": {wire.EPOCH: "99", wire.ATTEMPT: "98"}}}
    label = {"metadata": {"labels": {"a": "b"}}}
    async with connect(kubeconfig) as client:
        return (
            await code(client, "PATCH", f"{pods}/{name}", announcement),
            await code(client, "PATCH", f"{pods}/{other['metadata']['name']}", announcement),
            await code(client, "GET", queue.jobsets),
            await code(client, "GET", f"{queue.jobsets}/other"),
            await code(client, "PATCH", f"{pods}/{name}", label),
        )


async def code(client: ApiClient, method: str, path: str, body: Any = None) -> str:
    """Return the status of one answer."""
    query = DRY if method == "PATCH" else {}
    try:
        await client.text(method, path, body=body, query=query, content_type="application/merge-patch+json")
    except UnexpectedStatus as error:
        return str(error.status)
    return "200"


async def two_pods(queue: Queue) -> list[Object]:
    """Wait for the Pods of JobSet `train`."""

    async def look() -> list[Object]:
        found = [
            pod for pod in (await queue.pods()).values() if pod["metadata"]["labels"].get(wire.JOBSET_NAME) == "train"
        ]
        return found if len(found) == 2 else []

    found: list[Object] = await until(look, "two Pods")
    return found


async def check(queue: Queue, what: str, holders: set[str]) -> None:
    """Let the Pods' agents meet, then compare each container with the page."""
    await queue.world.api.post(queue.jobsets, jobset(name="other", suspend=True))
    pod, other = await two_pods(queue)
    await queue.lifted(1, count=2)
    found = list(token_volumes(pod))
    assert {name for name, volume in found if volume} == holders
    for container, volume in found:
        if volume:
            await eventually(lambda: answers(queue, pod, other), AN_AGENTS)
        kind = "kubelet's" if volume.startswith("kube-api-access-") else "the agent's own" if volume else "none"
        row = f"| {what} | `{container}` | {kind} | {' | '.join(AN_AGENTS if volume else WITHOUT)} |"
        assert row in PAGE.read_text().splitlines(), f"{PAGE.name} should say {row}"


async def test_plain_yaml(queue: Queue) -> None:
    """The README's manifest: the worker has no token, and the account opens nothing but this JobSet."""
    manifest = yaml.safe_load((ROOT / "examples" / "plain.yaml").read_text())
    manifest["metadata"] |= {"name": "train", "namespace": queue.namespace}
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 2, "completions": 2}
    await queue.world.api.post(queue.jobsets, manifest)
    await check(queue, "`examples/plain.yaml`", {"inplace-agent"})


@pytest.mark.parametrize("what", PODS)
async def test_a_pod(queue: Queue, what: str) -> None:
    """Only who asks for a token in every container gets it there."""
    account = PODS[what].get("serviceAccountName", "default")
    await queue.world.plane.service_account_kubeconfig(queue.namespace, account)  # which creates it
    await queue.world.api.post(queue.jobsets, written(PODS[what]) | {"metadata": {"name": "train"}})
    everywhere = PODS[what].get("automountServiceAccountToken") is True
    await check(queue, what, {"inplace-agent", "worker"} if everywhere else {"inplace-agent"})


async def test_through_kueue(queue: Queue) -> None:
    """Kueue admits the JobSet, and the Jobs are resumed with the agent's token alone."""
    await queue.submit(written({}))
    await check(queue, "through Kueue", {"inplace-agent"})


async def test_through_trainer(trainjobs: TrainJobs) -> None:
    """A TrainJob of a shipped runtime."""
    runtime = "torch-distributed"
    await trainjobs.submit(runtime, trainer={"numNodes": 2, "command": COMMAND, **ONE_CPU}, runtimePatches=[IN_PLACE])
    await check(trainjobs.queue, "through Trainer", {"inplace-agent"})


async def test_as_inject_prints_it(queue: Queue) -> None:
    """The account, its Role and its bindings are those of the file."""
    manifest, rights = in_place(written({}), queue.namespace)
    for document in (*rights, manifest):
        await queue.world.applier.apply_one(document)
    await check(queue, "as `inplace inject` prints it", {"inplace-agent"})
