"""
The real controller on a real kube-apiserver; the tests play the Job controller, kubelets and agents.

They check against a real server: its validation of our objects, its resourceVersions and conflicts, its Events, its
admission of our status writes, and that a new controller continues after one that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
import yaml
from structlog.testing import capture_logs

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import Forbidden, NotFound
from inplace.common.kube.resources import EVENTS, JOBS, JOBSETS, LEASES, SERVICES, Resource
from inplace.common.wire import names as wire
from inplace.controller.api.credentials import load_credentials
from inplace.controller.api.transport import open_transport
from inplace.controller.config import ControllerConfig
from inplace.controller.runtime import Controller
from testbed.control_plane import ControlPlane
from testbed.kube_client import create, kube_client
from testbed.waiting import eventually
from tests.cluster.test_crd_real import install
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRETS = Resource("", "v1", "secrets", "Secret")
REPOSITORY = Path(__file__).parents[2]


@pytest_asyncio.fixture(loop_scope="session")
async def admin(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Give an administrator of a server that serves JobSets."""
    async with control_plane.client() as client:
        await install(client)
    async with kube_client(control_plane.kubeconfig) as client:
        yield client


@asynccontextmanager
async def running(
    control_plane: ControlPlane, namespace: str | None, *, kubeconfig: Path | None = None, **config: Any
) -> AsyncIterator[Controller]:
    """Run a controller in this process, as the administrator or as a kubeconfig's user."""
    credentials = await load_credentials(str(kubeconfig or control_plane.kubeconfig), clock=LoopClock())
    async with open_transport(credentials) as transport:
        settings: dict[str, Any] = {
            "namespace": namespace,
            "lease_namespace": namespace,
            "leader_elect": False,
        } | config
        controller = Controller(transport, rng=Random(1), config=ControllerConfig(**settings))
        task = asyncio.create_task(controller.run())
        try:
            yield controller
        finally:
            controller.stop()
            await task


@asynccontextmanager
async def killed_after(control_plane: ControlPlane, namespace: str) -> AsyncIterator[None]:
    """Run the program in a process of its own and end it with SIGKILL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "inplace.controller.main", "--kubeconfig", str(control_plane.kubeconfig)),
        *("--namespace", namespace, "--no-leader-elect", "--probe-bind-address", "127.0.0.1:0"),
        *("--metrics-bind-address", "127.0.0.1:0"),
        cwd=REPOSITORY,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def submit(admin: KubeClient, namespace: str, **options: Any) -> Crew:
    """Create a JobSet, wait for its Jobs, and make their Pods."""
    manifest = jobset(namespace=namespace, **options)
    await admin.create(JOBSETS, namespace, manifest)
    crew = Crew(admin, namespace, "train")
    expected = {
        f"train-{job['name']}-{index}"
        for job in manifest["spec"]["replicatedJobs"]
        for index in range(job.get("replicas", 1))
    }

    async def names() -> set[str]:
        return set(await crew.jobs())

    await eventually(names, expected)
    await crew.make_pods()
    return crew


async def reasons(admin: KubeClient, namespace: str) -> set[str]:
    """Return the reasons of all Events."""
    return {event["reason"] for event in (await admin.list(EVENTS, namespace))["items"]}


async def test_a_whole_life(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """From start over early detection and two restarts to completion no Job is replaced and every Event is written."""
    async with running(control_plane, namespace) as controller:
        crew = await submit(admin, namespace, jobs=[replicated_job("a", replicas=2), replicated_job("b", pods=1)])
        assert (await admin.get(SERVICES, namespace, "train"))["spec"]["clusterIP"] == "None"
        before = {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()}
        await crew.announce_all(1)
        await eventually(crew.epochs, (1, 0))
        first, *others = crew.pods.values()
        for pod in crew.pods.values():
            await crew.set_worker(pod)
        await asyncio.sleep(0.2)
        await crew.set_worker(first, exit_code=1)
        await eventually(crew.epochs, (1, 1))
        await crew.announce_all(2, [*others, first])
        await eventually(crew.epochs, (2, 1))
        await crew.announce(first, 3)
        await eventually(crew.epochs, (2, 2))
        await crew.announce_all(3)
        await eventually(crew.epochs, (3, 2))
        status = await crew.status()
        assert (status["currentInPlaceRestartAttempt"], status["previousInPlaceRestartAttempt"]) == (2, 1)
        assert {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()} == before
        for name in before:
            await crew.finish_job(name, "Complete", reason="CompletionsReached")

        async def terminal() -> str:
            return str((await crew.status()).get("terminalState"))

        await eventually(terminal, "Completed")
        counts = (await crew.status())["replicatedJobsStatus"]
        assert [(entry["name"], entry["succeeded"]) for entry in counts] == [("b", 1), ("a", 2)]

        async def told() -> bool:
            return await reasons(admin, namespace) >= {
                "GroupRestartStarted",
                "GroupRestartFinished",
                "AllJobsCompleted",
            }

        await eventually(told, True)
        counts = re.findall(rb"inplace_group_restart_duration_seconds_count{.*} (.*)", controller.metrics.text())
        assert sum(map(float, counts)) == 2


async def test_max_restarts(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """One restart more than allowed fails the JobSet and deletes its active Jobs."""
    async with running(control_plane, namespace):
        crew = await submit(admin, namespace, restarts_max=1)
        one, two = crew.pods.values()
        for epoch in (1, 2):
            await crew.announce(one, epoch)
            await eventually(crew.epochs, (epoch - 1, epoch - 1))
            await crew.announce(two, epoch)
            await eventually(crew.epochs, (epoch, epoch - 1))
        await crew.announce_all(3)

        async def reason() -> str | None:
            return (await crew.find_condition("Failed") or {}).get("reason")

        await eventually(reason, "ReachedMaxRestarts")
        assert await crew.epochs() == (2, 1)

        await eventually(crew.has_only_leaving_jobs, True)


async def test_a_recreation(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """A failed Job is deleted and made again with the next restart-attempt."""
    async with running(control_plane, namespace):
        crew = await submit(admin, namespace, strategy="Recreate")
        old = (await crew.jobs())["train-workers-0"]["metadata"]["uid"]
        await crew.finish_job("train-workers-0", "Failed", reason="BackoffLimitExceeded")

        async def recreated() -> str | None:
            job = (await crew.jobs()).get("train-workers-0")
            if job is None:
                return None
            if "deletionTimestamp" in job["metadata"]:  # no garbage collector runs here
                with contextlib.suppress(NotFound):
                    await admin.patch(JOBS, namespace, "train-workers-0", {"metadata": {"finalizers": None}})
                return None
            return str(job["metadata"]["labels"][wire.RESTART_ATTEMPT]) if job["metadata"]["uid"] != old else None

        await eventually(recreated, "1")
        assert {"DefaultFailurePolicy", "RestartJobSetFailurePolicyAction"} <= await reasons(admin, namespace)


async def test_a_killed_controller_is_followed_by_one_that_continues(
    control_plane: ControlPlane, admin: KubeClient, namespace: str
) -> None:
    """After a kill in each state of a group the next controller at once handles the changes meanwhile."""
    async with killed_after(control_plane, namespace):
        crew = await submit(admin, namespace)
    one, two = crew.pods.values()
    steps = ((one, 1, (0, 0)), (two, 1, (1, 0)), (two, 2, (1, 1)), (one, 2, (2, 1)))
    for pod, epoch, expected in steps:
        await crew.announce(pod, epoch)
        async with killed_after(control_plane, namespace):
            await eventually(crew.epochs, expected)
    assert (await crew.status())["restarts"] == 0


async def test_conflicts_lose_nothing(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """While a user edits the JobSet without pause, every epoch is written, in order."""
    async with running(control_plane, namespace):
        crew = await submit(admin, namespace, restarts_max=30)

        async def edit() -> None:
            for number in range(100_000):
                patch = {"metadata": {"annotations": {"edited": str(number)}}}
                await admin.patch(JOBSETS, namespace, "train", patch)

        async def synced() -> int:
            return (await crew.epochs())[0]  # D stays behind when all announcements are seen together

        editing = asyncio.create_task(edit())
        try:
            for epoch in range(1, 11):
                await crew.announce_all(epoch)
                await eventually(synced, epoch)
        finally:
            editing.cancel()


async def test_two_controllers_hand_over(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """When the leader stops, the other leads within seconds and continues the running restart."""
    async with (
        running(control_plane, namespace, leader_elect=True, identity="second") as second,
        running(control_plane, namespace, leader_elect=True, identity="first") as first,
    ):
        await eventually(lambda: first.is_leader + second.is_leader, 1)
        leader, other = (first, second) if first.is_leader else (second, first)
        crew = await submit(admin, namespace)
        await crew.announce_all(1)
        await eventually(crew.epochs, (1, 0))
        await crew.announce(next(iter(crew.pods.values())), 2)
        await eventually(crew.epochs, (1, 1))
        leader.stop()
        await crew.announce_all(2)
        await eventually(crew.epochs, (2, 1))
        assert other.is_leader
        lease = await admin.get(LEASES, namespace, "inplace-controller")
        assert lease["spec"]["leaseTransitions"] >= 1


async def test_an_api_server_that_restarts_is_waited_for(
    control_plane: ControlPlane, admin: KubeClient, namespace: str
) -> None:
    """After a restart of the API server the controller handles announcements from before and after it."""
    async with running(control_plane, namespace):
        crew = await submit(admin, namespace)
        one, two = crew.pods.values()
        await crew.announce(one, 1)
        await control_plane.restart_apiserver(kill=True)
        await crew.announce(two, 1)
        await eventually(crew.epochs, (1, 0))


async def test_the_shipped_permissions_are_enough_and_no_more(
    control_plane: ControlPlane, admin: KubeClient, namespace: str
) -> None:
    """With deploy/rbac the controller leads, works in all namespaces, writes Events, and may not read Secrets."""
    await create(admin, yaml.safe_load_all((REPOSITORY / "deploy" / "rbac" / "controller.yaml").read_text()))
    kubeconfig = await control_plane.service_account_kubeconfig("inplace-system", "inplace-controller")
    settings: dict[str, Any] = {"kubeconfig": kubeconfig, "leader_elect": True, "lease_namespace": "inplace-system"}
    with capture_logs() as logs:
        async with running(control_plane, None, **settings) as controller:
            crew = await submit(admin, namespace, restarts_max=1)
            await crew.announce_all(1)
            await eventually(crew.epochs, (1, 0))
            await crew.announce(next(iter(crew.pods.values())), 2)
            await eventually(crew.epochs, (1, 1))

            async def told() -> bool:
                return "GroupRestartStarted" in await reasons(admin, namespace)

            await eventually(told, True)
            await crew.announce(next(iter(crew.pods.values())), 3)  # an epoch ahead of all Pods is not believed
            await crew.announce_all(2)
            await eventually(crew.epochs, (2, 1))
            await crew.announce_all(3)

            await eventually(crew.has_only_leaving_jobs, True)
            assert controller.is_leader
    assert [entry for entry in logs if "orbidden" in str(entry)] == []
    async with kube_client(kubeconfig) as client:
        with pytest.raises(Forbidden):
            await client.list(SECRETS, namespace)
