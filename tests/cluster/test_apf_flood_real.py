"""A flood of the agents' level of a real kube-apiserver, by the accounts of one tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from inplace.agent.announce.jobset_requests import announcement_request
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.kube.resources import JOBSETS
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.waiting import until
from tests.cluster.test_crd_real import install
from tests.controller.manifests import changed, jobset
from tests.deploy.apf_objects import RESOURCES, apf_objects, hand_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

FEW_SEATS = ("--max-requests-inflight=4", "--max-mutating-requests-inflight=1")
JOBSETS_LISTED, BYTES = 10, 900_000  # an answer that no socket's buffer holds: who does not read it keeps a seat
ACCOUNTS = 4  # of the tenant; with 4 of 16 queues they stood in all queues of 28 % of the others
EACH = 30  # requests of each account
SEATS_MAX = 12
ENV = "spec.replicatedJobs.0.template.spec.template.spec.containers.0.env"
DUMP = "/debug/api_priority_and_fairness/dump_requests"
HELD_S = 60.0
IN_EFFECT_S_MAX = 10.0
CONFIG = AgentConfig("team", "train-w-0-0", "train")


@asynccontextmanager
async def account(plane: ControlPlane, namespace: str, name: str) -> AsyncIterator[Http1Transport]:
    """Give a transport with the token of a ServiceAccount."""
    kubeconfig: Path = await plane.service_account_kubeconfig(namespace, name)
    transport = Http1Transport(read_kubeconfig(str(kubeconfig)))
    try:
        yield transport
    finally:
        await transport.close()


async def waiting(plane: ControlPlane) -> dict[str, set[int]]:
    """Return the accounts whose requests wait in the agents' level, each with its queues."""
    async with plane.client() as api:
        head, *rows = (await api.text("GET", DUMP)).splitlines()
    names, found = [name.strip() for name in head.split(",")], dict[str, set[int]]()
    for row in rows:
        cells = dict(zip(names, (cell.strip() for cell in row.split(",")), strict=False))
        if cells["PriorityLevelName"] == "inplace-agents" and int(cells["QueueIndex"]) >= 0:
            found.setdefault(cells["FlowDistingsher"].rpartition(":")[2], set()).add(int(cells["QueueIndex"]))
    return found


async def test_another_tenants_announcement_waits_in_a_queue_of_its_own(binaries: Binaries) -> None:
    """While all seats are taken and four accounts have 120 requests in line: the hands are those of test_apf.py."""
    async with ControlPlane(binaries, apiserver_flags=FEW_SEATS) as plane, AsyncExitStack() as open_now:
        async with plane.client() as api:
            await install(api)
            for found in apf_objects():
                await api.post(RESOURCES[found["kind"]].path(), found)
            loud = await plane.create_namespace("loud")
            subject = {"kind": "ServiceAccount", "name": "reader", "namespace": loud}
            reference = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": reference}
            await api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{loud}/rolebindings", binding)
            for number in range(JOBSETS_LISTED):
                large = changed(jobset(f"large-{number}", namespace=loud), ENV, [{"name": "X", "value": "x" * BYTES}])
                await api.post(JOBSETS.path(loud), large)
        read = Request("GET", JOBSETS.path(loud), {})
        reader = await open_now.enter_async_context(account(plane, loud, "reader"))
        floods = [await open_now.enter_async_context(account(plane, loud, f"account-{n}")) for n in range(ACCOUNTS)]
        quiet = await plane.create_namespace("team")
        agent = await open_now.enter_async_context(account(plane, quiet, "inplace-agent"))

        release = asyncio.Event()

        async def hold() -> None:
            async with reader.stream(read, timeout_s=HELD_S):
                await release.wait()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(SEATS_MAX):  # the level may borrow seats
                tasks.create_task(hold())
            await until(lambda: waiting(plane), f"a level of fewer than {SEATS_MAX} seats", timeout_s=IN_EFFECT_S_MAX)
            for flood in floods * EACH:
                tasks.create_task(flood.request(read, timeout_s=HELD_S))
            hands = {f"account-{n}": hand_of(loud, f"account-{n}") for n in range(ACCOUNTS)}

            async def stands() -> dict[str, set[int]]:
                found = await waiting(plane)
                return found if hands.keys() <= found.keys() else {}

            found = await until(stands, "every account in some queue", timeout_s=IN_EFFECT_S_MAX)
            assert all(found[name] <= hand for name, hand in hands.items())
            announced = tasks.create_task(agent.request(announcement_request(CONFIG, 1), timeout_s=HELD_S))

            async def queues() -> set[int] | None:
                return (await waiting(plane)).get("inplace-agent")

            own = await until(queues, "the agent's request in a queue", timeout_s=IN_EFFECT_S_MAX)
            assert own <= hand_of(quiet, "inplace-agent")
            assert not own & frozenset().union(*hands.values())
            release.set()
            assert (await announced).status == 403  # no right to patch, and no Pod: it had its turn
