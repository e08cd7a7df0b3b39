"""A spoiled status, and a missing right, on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest
import yaml

from inplace.common.kube.resources import JOBSETS
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.group import REPOSITORY, Group, running_controller, running_group
from testbed.waiting import until
from tests.cluster.features.audited import audit_flags, requests_of
from tests.cluster.test_crd_real import DEFINITIONS, install, jobsets, merged
from tests.controller.manifests import jobset, replicated_job
from tests.deploy.crd_cases import crd_without_rules

pytestmark = pytest.mark.asyncio(loop_scope="session")

MISSING_JOBS: Final = 20
CONTROLLER: Final = "system:serviceaccount:inplace-system:inplace-controller"


async def lose_status(group: Group) -> None:
    """Remove the status, as `kubectl replace --subresource=status` with a manifest without one does."""
    stored = await group.jobset()
    del stored["status"]
    await group.client.replace(JOBSETS, group.namespace, "train", stored, subresource="status")


async def restarted_once(group: Group) -> None:
    """Bring the group to epoch 2."""
    await group.trains(1)
    await group.restarts(2)


async def goes_on(group: Group, before: dict[str, tuple[str, list[int]]]) -> None:
    """Check that S is written again, that no Pod restarted, and that the next failure restarts the group once."""

    async def is_found() -> bool:
        return (await group.epochs())[0] == 2

    await group.until(is_found, "S found again")
    assert {name: (pod.uid, pod.exits) for name, pod in group.pods.items()} == before
    await group.restarts(3)
    assert [pod.lifts for pod in group.pods.values()] == [[1, 2, 3]] * 3
    assert {name: pod.uid for name, pod in group.pods.items()} == {name: uid for name, (uid, _) in before.items()}
    conditions = (await group.jobset())["status"].get("conditions", ())
    assert [found for found in conditions if (found["type"], found["status"]) == ("BarrierWaiting", "True")] == []


def seen(group: Group) -> dict[str, tuple[str, list[int]]]:
    """Return each Pod's UID and the number of its agent's exits."""
    return {name: (pod.uid, list(pod.exits)) for name, pod in group.pods.items()}


async def test_a_running_controller_writes_a_lost_status_again(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """When a running group's status is removed, the controller writes it again, and no Pod restarts or is set aside."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await restarted_once(group)
        before = seen(group)
        await lose_status(group)
        await goes_on(group, before)


async def test_a_new_controller_finds_a_lost_status_in_the_pods(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """A new controller takes S from the epoch that all Pods announced, and no Pod restarts or is set aside."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group:
        async with running_controller(plane, namespace):
            await restarted_once(group)
        before = seen(group)
        await lose_status(group)
        async with running_controller(plane, namespace):
            await goes_on(group, before)


async def test_the_last_epoch_fails_the_jobset(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """With S = D = 2147483647 the JobSet fails with a reason instead of waiting for ever."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace, pods=2) as group, running_controller(plane, namespace):
        await group.trains(1)
        spoiled = {"status": wire.status_of_epochs(INT32_MAX, INT32_MAX)}
        await group.client.patch(JOBSETS, namespace, "train", spoiled, subresource="status")

        async def reason() -> bool:
            conditions = (await group.jobset())["status"].get("conditions", ())
            return [found["reason"] for found in conditions if found["type"] == "Failed"] == ["NoEpochLeft"]

        await group.until(reason, "the JobSet failed with NoEpochLeft")


@asynccontextmanager
async def bare(binaries: Binaries, directory: Path) -> AsyncIterator[tuple[ControlPlane, ApiClient]]:
    """Run a server with a JobSet CRD without rules; its audit log is in a folder."""
    async with ControlPlane(binaries, apiserver_flags=audit_flags(directory)) as plane, plane.client() as api:
        await api.post(DEFINITIONS, crd_without_rules())
        await install(api)
        yield plane, api


async def test_d_beyond_s_is_mended(binaries: Binaries, tmp_path: Path) -> None:
    """When a server without our rules stores D beyond S, the next write sets both to D, and the JobSet goes on."""
    async with bare(binaries, tmp_path) as (plane, api):
        stored = await api.post(jobsets("default"), merged(jobset(), "default"))
        path = f"{jobsets('default')}/train"
        await api.text("PUT", f"{path}/status", body=stored | {"status": {"syncedEpoch": 1, "deprecatedEpoch": 4}})
        async with running_controller(plane, "default"):

            async def is_mended() -> bool:
                status = (await api.get(path))["status"]
                return bool(wire.epochs_of_status(status) == (4, 4) and status["syncedEpoch"] == 4)

            async def is_told() -> bool:
                events = (await api.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
                return "ContradictoryStatus" in {event["reason"] for event in events}

            await until(is_mended, "S and D of 4")
            await until(is_told, "an Event of it")


async def test_a_right_that_is_missing_costs_a_request_a_pass(binaries: Binaries, tmp_path: Path) -> None:
    """When twenty Jobs may not be created, one request is sent at once, the next after 1 s, another after 2 s more."""
    async with bare(binaries, tmp_path) as (plane, api):
        kubeconfig = await without_jobs(plane, api)
        manifest = merged(jobset(jobs=[replicated_job(replicas=MISSING_JOBS, pods=1)], strategy=None), "default")
        await api.post(jobsets("default"), manifest)

        def asked() -> list[datetime]:
            events = (event for event in requests_of(tmp_path, CONTROLLER) if event["verb"] == "create")
            jobs = (event for event in events if event["objectRef"]["resource"] == "jobs")
            return [datetime.fromisoformat(event["requestReceivedTimestamp"]) for event in jobs]

        async with running_controller(plane, "default", kubeconfig=kubeconfig):
            await until(lambda: len(asked()) >= 3, "three requests")
        assert len(asked()) == 3
        assert (asked()[2] - asked()[0]).total_seconds() > 2.0


async def without_jobs(plane: ControlPlane, api: ApiClient) -> Path:
    """Install deploy/rbac without the right to create Jobs, and return the controller's kubeconfig."""
    await api.post("/api/v1/namespaces", {"metadata": {"name": "inplace-system"}})
    kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
    for document in yaml.safe_load_all((REPOSITORY / "deploy" / "rbac" / "controller.yaml").read_text()):
        if not document["kind"].startswith("ClusterRole"):
            continue
        for rule in document.get("rules", ()):
            if "jobs" in rule["resources"]:
                rule["verbs"].remove("create")
        await api.create([document])
    return kubeconfig
