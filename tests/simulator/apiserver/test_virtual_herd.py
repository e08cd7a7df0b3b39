"""A herd under virtual time: hours in milliseconds, the same way every time."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from inplace.common.kube.backoff import Backoff
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import Throttled
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import CONFIG_MAPS
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport, PriorityLevel
from inplace.simulator.cluster import virtual_time

CLIENTS = 200
WALL_OFFSET_S = 1.8e9  # a date for the run, the same in every run


def _server(seed: int, **options: object) -> ApiServer:
    return ApiServer(
        clock=LoopClock(WALL_OFFSET_S),
        rng=Random(seed),
        options=ApiServerOptions(**options),  # type: ignore[arg-type]
    )


@pytest.mark.virtual_time
async def test_a_quiet_watch_lives_an_hour_on_bookmarks() -> None:
    """A watch without news gets a bookmark each minute and a clean end within the server's life range."""
    server = _server(1)
    server.load([])
    transport = InMemoryTransport(server)
    path = CONFIG_MAPS.path("default", query={"watch": "true", "allowWatchBookmarks": "true"})
    bookmarks = 0
    async with transport.stream(Request("GET", path, {}), timeout_s=1) as stream:
        async for chunk in stream.chunks():
            bookmarks += sum(json.loads(line)["type"] == "BOOKMARK" for line in chunk.splitlines())
    ended_s = asyncio.get_running_loop().time()
    assert 1800 <= ended_s <= 3600
    assert abs(bookmarks - ended_s / 60) <= 2


def _herd(seed: int) -> tuple[int, float, tuple[str, ...]]:
    """Let clients create an object each against few seats; return rejections, virtual seconds, the uids."""
    level = PriorityLevel("small", seats=4, queues=4, hand_size=2, queue_length=10, service_s=lambda _: 0.02)

    async def main() -> tuple[int, float, tuple[str, ...]]:
        server = _server(seed, priority_levels=(level,))
        server.load([])

        async def client(index: int) -> str:
            rng = Random(seed * CLIENTS + index)
            backoff = Backoff(0.5, 8.0, rng)
            transport = InMemoryTransport(server, user="agent", latency_s=lambda _: rng.uniform(0.001, 0.005))
            api = KubeClient(transport, user_agent="agent/1", field_manager="agent")
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c-{index}"}}
            while True:
                try:
                    uid: str = (await api.create(CONFIG_MAPS, "default", body))["metadata"]["uid"]
                    return uid
                except Throttled as error:
                    await asyncio.sleep(backoff.next_s(error.after_s))

        uids = await asyncio.gather(*(client(index) for index in range(CLIENTS)))
        return server.requests.rejected, asyncio.get_running_loop().time(), tuple(uids)

    return virtual_time.run(main())


def test_a_rejected_herd_gets_through_with_backoff() -> None:
    """Many clients against few seats meet 429s, honour Retry-After, and all succeed in bounded virtual time."""
    rejected, seconds, uids = _herd(1)
    assert rejected > 0
    assert len(set(uids)) == CLIENTS
    assert 1 <= seconds < 30


def test_one_seed_is_one_run() -> None:
    """The same seed repeats rejections, duration and every uid; another seed does not."""
    assert _herd(7) == _herd(7)
    assert _herd(7) != _herd(8)


@pytest.mark.virtual_time
async def test_a_lagging_cache_shows_the_past_until_the_lag_has_passed() -> None:
    """With a lag of 2 s a cheap read is stale, a consistent one waits for the cache."""
    server = _server(1, watch_cache_lag_s=lambda plural: 2.0)
    server.load([])
    background = asyncio.create_task(server.run())
    api = KubeClient(InMemoryTransport(server), user_agent="t/1", field_manager="t")
    await api.list(CONFIG_MAPS, "default", query={"resourceVersion": "0"})
    created = await api.create(
        CONFIG_MAPS, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    )
    seen = []
    version = created["metadata"]["resourceVersion"]
    for query in ({"resourceVersion": "0"}, {}, {"resourceVersion": version}):
        listed = await api.list(CONFIG_MAPS, "default", query=query)
        seen.append((round(asyncio.get_running_loop().time(), 3), len(listed["items"])))
    background.cancel()
    await asyncio.gather(background, return_exceptions=True)
    assert seen == [(0.0, 0), (0.0, 1), (2.0, 1)]
