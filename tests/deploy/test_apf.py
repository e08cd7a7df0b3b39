"""The promises of deploy/apf, by its numbers and on the embedded server; a real one: tests/cluster/test_apf_real.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
import yaml

from inplace.agent.announce.jobset_requests import announcement_request, list_request, watch_request
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, LEASES, PODS
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport, PriorityLevel
from inplace.simulator.cluster.virtual_time import run
from tests.deploy.apf_objects import RESOURCES, apf_object, apf_objects, hand_of, schema_of

pytestmark = pytest.mark.virtual_time

AGENTS = 5000
CONFIG = AgentConfig("team-a", "train-w-0-0", "train")
WATCH = watch_request(CONFIG, as_table=True, resource_version="0", jitter=0.0)
QUEUING = apf_object("PriorityLevelConfiguration", "inplace-agents")["spec"]["limited"]["limitResponse"]["queuing"]


def get(path: str, method: str = "GET") -> Request:
    """Return a request without a body."""
    return Request(method, path, {})


@pytest.mark.parametrize(
    "request_of_agent",
    [WATCH, list_request(CONFIG, as_table=True, consistent=False), announcement_request(CONFIG, 3)],
    ids=["watch", "list", "patch"],
)
def test_every_request_of_an_agent_is_taken(request_of_agent: Request) -> None:
    """Every request of an agent of any namespace and account matches our FlowSchema."""
    assert schema_of("team-a", "anything", request_of_agent) == "inplace-agents"


@pytest.mark.parametrize(
    "other",
    [
        get(JOBSETS.path(query={"watch": "1"})),
        get(JOBSETS.path()),
        get(PODS.path("team-a")),
        get(PODS.path("team-a", "p", subresource="status"), "PATCH"),
        get(JOBSETS.path("team-a", "train", subresource="status"), "PATCH"),
    ],
    ids=["informer's watch", "informer's list", "pods", "pod status", "jobset status"],
)
def test_requests_of_others_are_left_alone(other: Request) -> None:
    """Requests of other controllers' informers, and requests that agents never send, keep their level."""
    assert schema_of("kueue-system", "kueue", other) is None


def test_the_controller_goes_before_its_agents() -> None:
    """Its Lease and its status writes have the levels of the built-in controllers."""
    account = ("inplace-system", "inplace-controller")
    status = get(JOBSETS.path("team-a", "train", subresource="status"), "PATCH")
    lease = get(LEASES.path("inplace-system", "inplace-controller"), "PUT")
    assert schema_of(*account, status) == schema_of(*account, get(PODS.path())) == "inplace-controller"
    assert schema_of(*account, announcement_request(CONFIG, 3)) == "inplace-controller"
    assert schema_of(*account, lease) == "inplace-controller-leader-election"


def test_the_subjects_are_the_accounts_that_rbac_names() -> None:
    """The FlowSchemas name the controller's account of deploy/rbac."""
    rbac = yaml.safe_load_all((Path(__file__).parents[2] / "deploy" / "rbac" / "controller.yaml").read_text())
    accounts = [found["metadata"] for found in rbac if found["kind"] == "ServiceAccount"]
    for name in ("inplace-controller", "inplace-controller-leader-election"):
        (rule,) = apf_object("FlowSchema", name)["spec"]["rules"]
        assert [subject["serviceAccount"] for subject in rule["subjects"]] == accounts


def test_a_flow_may_wait_with_two_requests_of_each_of_5000_agents() -> None:
    """Hand x length is the most that one ServiceAccount can have in its queues."""
    assert QUEUING["handSize"] * QUEUING["queueLengthLimit"] >= 2 * AGENTS


@pytest.mark.attack
@pytest.mark.parametrize(("accounts", "share_max"), [(1, 0.0), (4, 0.0), (8, 0.07), (16, 0.42)])
def test_a_tenant_with_many_accounts_does_not_stand_in_every_queue(accounts: int, share_max: float) -> None:
    """Of 1,000 other accounts all but a few have a queue without a flooding one, in which they are served in turn."""
    loud = frozenset[int]().union(*(hand_of("loud", f"account-{number}") for number in range(accounts)))
    starved = sum(hand_of(f"team-{number}", "inplace-agent") <= loud for number in range(1_000))
    assert starved <= 1_000 * share_max


@pytest.mark.attack
def test_nobody_else_has_the_controllers_level() -> None:
    """An account of its name elsewhere, or of another name beside it, has the agents' level at most."""
    status = get(JOBSETS.path("team-a", "train", subresource="status"), "PATCH")
    for namespace, name in (("team-a", "inplace-controller"), ("inplace-system", "inplace-agent")):
        assert schema_of(namespace, name, announcement_request(CONFIG, 3)) == "inplace-agents"
        assert schema_of(namespace, name, status) is None


async def test_the_embedded_server_stores_the_objects() -> None:
    """The objects can be applied, in order, to an empty server."""
    server = ApiServer(clock=LoopClock(0.0), rng=Random(1), options=ApiServerOptions())
    client = KubeClient(InMemoryTransport(server), user_agent="test", field_manager="test")
    for found in apf_objects():
        await client.create(RESOURCES[found["kind"]], None, found)
    names = [item["metadata"]["name"] for item in (await client.list(RESOURCES["FlowSchema"]))["items"]]
    assert names == ["inplace-agents", "inplace-controller", "inplace-controller-leader-election"]


def rejected_of_herd(level: PriorityLevel) -> int:
    """Let all agents patch their Pods at one instant, through `level`; return the number of rejections."""

    async def scenario() -> int:
        server = ApiServer(clock=LoopClock(0.0), rng=Random(1), options=ApiServerOptions(priority_levels=(level,)))
        server.load([])

        async def announce(index: int) -> None:
            config = AgentConfig("team-a", f"train-w-0-{index}", "train")
            transport = InMemoryTransport(server, user="system:serviceaccount:team-a:agents")
            await transport.request(announcement_request(config, 1), timeout_s=60.0)  # 404 is an answer, 429 is not

        await asyncio.gather(*(announce(index) for index in range(AGENTS)))
        return server.requests.rejected

    return run(scenario())


def level(queues: int, hand_size: int, queue_length: int) -> PriorityLevel:
    """Return a level of 49 seats, three quarters of what 30 shares are, at 2 ms a request."""
    return PriorityLevel("level", 49, queues, hand_size, queue_length, service_s=lambda _: 0.002)


def test_5000_agents_at_one_instant_are_queued() -> None:
    """With our level's queues no agent is rejected; with the default level's queues most are."""
    ours = level(QUEUING["queues"], QUEUING["handSize"], QUEUING["queueLengthLimit"])
    assert rejected_of_herd(ours) == 0
    assert rejected_of_herd(level(128, 6, 50)) == AGENTS - 49 - 300


def test_the_level_names_exist() -> None:
    """Each FlowSchema points at the level in this file or at one that every API server has."""
    built_in = {"workload-high", "leader-election"}
    ours = {found["metadata"]["name"] for found in apf_objects() if found["kind"] == "PriorityLevelConfiguration"}
    named = {
        found["spec"]["priorityLevelConfiguration"]["name"] for found in apf_objects() if found["kind"] == "FlowSchema"
    }
    assert named == built_in | ours
    assert wire.API_GROUP in str(apf_object("FlowSchema", "inplace-agents"))
