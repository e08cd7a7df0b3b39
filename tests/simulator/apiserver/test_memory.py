"""The in-memory transport: the Transport contract, a herd of agents, and that virtual time needs no sockets."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random

import pytest

from inplace.common.kube.client import MERGE_PATCH, KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import NotFound, Throttled
from inplace.common.kube.http.request import Request, Response, TransportTimeoutError
from inplace.common.kube.resources import CONFIG_MAPS, PODS, KubeObject
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport, PriorityLevel
from tests.conformance.widgets import CRD, WIDGETS, widget

pytestmark = pytest.mark.asyncio

AGENTS = 300
PATCH_CPU_S_MAX = 0.002
"""Twenty times what a PATCH costs on an idle machine: this fails for a complexity bug, not for a slow machine."""


def _server(**options: object) -> ApiServer:
    server = ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions(**options))  # type: ignore[arg-type]
    server.load([CRD])
    return server


def _client(server: ApiServer, agent: str = "agent/1.0") -> KubeClient:
    return KubeClient(InMemoryTransport(server, user="agent"), user_agent=agent, field_manager="agent")


def _pod(name: str) -> KubeObject:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_requests_are_counted_by_verb_resource_and_family() -> None:
    """The server counts what each family of clients asked for, subresources apart, rejections beside."""
    server = _server()
    client = _client(server)
    await client.create(WIDGETS, "default", widget())
    await client.patch(WIDGETS, "default", "w", {"status": {"epoch": 1}}, subresource="status")
    await client.list(WIDGETS)
    with pytest.raises(NotFound):
        await client.get(WIDGETS, "default", "nobody")
    assert dict(server.requests) == {
        ("create", "widgets", "agent"): 1,
        ("patch", "widgets/status", "agent"): 1,
        ("list", "widgets", "agent"): 1,
        ("get", "widgets", "agent"): 1,
    }
    assert server.requests.of(verb="patch") == 1
    assert server.requests.rejected == 0


async def test_interceptor_answers_first() -> None:
    """An interceptor may answer a request or let it pass; it sees the user."""
    seen: list[str] = []

    async def interceptor(request: Request, user: str) -> Response | None:
        seen.append(f"{user} {request.method}")
        return Response(503, {}, b"down") if request.method == "POST" else None

    server = _server(interceptor=interceptor)
    transport = InMemoryTransport(server, user="somebody")
    assert (await transport.request(Request("POST", PODS.path("default"), {}), timeout_s=1)).status == 503
    assert (await transport.request(Request("GET", PODS.path("default"), {}), timeout_s=1)).status == 200
    assert seen == ["somebody POST", "somebody GET"]


async def test_latency_counts_against_the_timeout() -> None:
    """A request that takes longer than its timeout raises, and the server never saw it."""
    server = _server()
    transport = InMemoryTransport(server, latency_s=lambda _: 5.0)
    with pytest.raises(TransportTimeoutError):
        await transport.request(Request("GET", PODS.path(), {}), timeout_s=0.01)
    assert not server.requests


async def test_refused_watch_is_a_whole_stream() -> None:
    """A watch that is refused yields its Status through the stream's interface."""
    transport = InMemoryTransport(_server())
    path = WIDGETS.path("default", query={"watch": "true", "sendInitialEvents": "true"})
    async with transport.stream(Request("GET", path, {}), timeout_s=1) as stream:
        assert stream.status == 422
        body = b"".join([chunk async for chunk in stream.chunks()])
    assert json.loads(body)["reason"] == "Invalid"


async def test_leaving_a_watch_frees_it() -> None:
    """A client that leaves its stream, read or unread, leaves no watcher behind."""
    server = _server()
    transport = InMemoryTransport(server)
    path = WIDGETS.path("default", query={"watch": "true"})
    for _ in range(3):
        async with transport.stream(Request("GET", path, {}), timeout_s=1):
            assert server.watchers("example.com", "widgets") == 1
    assert server.watchers("example.com", "widgets") == 0


async def test_throttled_requests_name_when_to_return() -> None:
    """A 429 reaches the client as Throttled with the Retry-After, and is counted."""
    server = _server(priority_levels=(PriorityLevel("l", seats=0, queues=0),))
    with pytest.raises(Throttled) as refused:
        await _client(server).list(PODS)
    assert refused.value.after_s == 1
    assert server.requests.rejected == 1


async def test_a_herd_watches_one_object_and_patches_its_pods() -> None:
    """Hundreds of agents each see one status change once and patch their own Pod, at a bounded cost per PATCH."""
    server = _server()
    await _client(server).create(WIDGETS, "default", widget())
    for index in range(AGENTS):
        await _client(server).create(PODS, "default", _pod(f"p-{index}"))
    started = asyncio.Semaphore(0)
    spent = 0.0

    async def agent(index: int) -> int:
        nonlocal spent
        transport = InMemoryTransport(server, user="agent")
        query = {"watch": "true", "fieldSelector": "metadata.name=w", "includeObject": "None"}
        accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
        request = Request("GET", WIDGETS.path("default", query=query), {"accept": accept})
        async with transport.stream(request, timeout_s=5) as stream:
            chunks = stream.chunks()
            await anext(chunks)
            started.release()
            changed = json.loads(await anext(chunks))
            epoch: int = changed["object"]["rows"][0]["cells"][4]
        began = time.process_time()
        patch = {"metadata": {"annotations": {"epoch": str(epoch)}}}
        await _client(server).patch(PODS, "default", f"p-{index}", patch, kind=MERGE_PATCH)
        spent += time.process_time() - began
        return epoch

    async def controller() -> None:
        for _ in range(AGENTS):
            await started.acquire()
        await _client(server).patch(WIDGETS, "default", "w", {"status": {"epoch": 7}}, subresource="status")

    async with asyncio.timeout(60):
        *epochs, _ = await asyncio.gather(*(agent(index) for index in range(AGENTS)), controller())
    assert set(epochs) == {7}
    listed = await _client(server).list(PODS, "default")
    assert all(pod["metadata"]["annotations"]["epoch"] == "7" for pod in listed["items"])
    assert server.requests["watch", "widgets", "in-memory"] == AGENTS
    assert server.watchers("example.com", "widgets") == 0


@pytest.mark.slow  # slow because it measures CPU time, which differs between machines
async def test_patch_is_cheap() -> None:
    """An annotation PATCH costs well under two milliseconds of CPU, however many Pods there are."""
    server = _server()
    client = _client(server)
    for index in range(AGENTS):
        await client.create(PODS, "default", _pod(f"p-{index}"))
    began = time.process_time()
    for index in range(AGENTS):
        await client.patch(PODS, "default", f"p-{index}", {"metadata": {"annotations": {"epoch": "1"}}})
    assert (time.process_time() - began) / AGENTS < PATCH_CPU_S_MAX


async def test_same_seed_same_world() -> None:
    """The uids and generated names come from the given randomness only."""

    async def names(seed: int) -> list[str]:
        server = ApiServer(clock=LoopClock(), rng=Random(seed))
        obj: KubeObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
        created = [await _client(server).create(CONFIG_MAPS, "default", obj) for _ in range(3)]
        return [f"{c['metadata']['name']} {c['metadata']['uid']}" for c in created]

    assert await names(5) == await names(5)
    assert await names(5) != await names(6)


async def test_compaction_and_dropped_watches() -> None:
    """After compact() older resourceVersions are expired; drop_watches() ends streams cleanly."""
    server = _server()
    client = _client(server)
    version = (await client.create(WIDGETS, "default", widget()))["metadata"]["resourceVersion"]
    transport = InMemoryTransport(server)
    path = WIDGETS.path("default", query={"watch": "true", "resourceVersion": version})
    async with transport.stream(Request("GET", path, {}), timeout_s=1) as stream:
        server.drop_watches("example.com", "widgets")
        assert [chunk async for chunk in stream.chunks()] == []
    await client.create(WIDGETS, "default", widget("other"))
    server.compact()
    async with transport.stream(Request("GET", path, {}), timeout_s=1) as stream:
        (line,) = [chunk async for chunk in stream.chunks()]
    assert json.loads(line)["object"]["reason"] == "Expired"
