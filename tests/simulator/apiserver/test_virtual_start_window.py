"""A large group restarts under virtual time: it waits for its slots only where the server's first answers are late."""

from __future__ import annotations

import asyncio
from random import Random

from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.settings.herd import Herd, is_late
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import Throttled
from inplace.common.kube.resources import CONFIG_MAPS
from inplace.common.kube.watch import Busy
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport, PriorityLevel
from inplace.simulator.cluster import virtual_time

PODS = 400
HERD = Herd(PODS, rate_per_s=100)  # its window alone takes a second
NETWORK_S = 0.001
KUBELET_S = (0.3, 1.6)
FAST = PriorityLevel("fast", seats=50, queues=6, hand_size=6, queue_length=50, service_s=lambda _: 0.002)
SLOW = PriorityLevel("slow", seats=4, queues=6, hand_size=6, queue_length=15, service_s=lambda _: 0.01)  # 400 a second


def restart(level: PriorityLevel, seed: int, *, looks: bool = True) -> tuple[float, int]:
    """Restart the group: each Pod lists, and announces; return the seconds to the last one, and the rejections."""

    async def main() -> tuple[float, int]:
        server = ApiServer(clock=LoopClock(1.8e9), rng=Random(seed), options=ApiServerOptions(priority_levels=(level,)))
        server.load([])

        async def pod(index: int) -> None:
            rng = Random(f"{seed}/{index}")
            kubelet_s = rng.uniform(*KUBELET_S)
            herd = Herd(PODS, index, rng.random(), HERD.rate_per_s)
            await asyncio.sleep(kubelet_s)
            transport = InMemoryTransport(server, user="agent", latency_s=lambda _: NETWORK_S)
            api, budget = KubeClient(transport, user_agent="a/1", field_manager="a"), RetryBudget(rng, herd.spread_s)
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c-{index}"}}
            for announces in (False, True):
                while True:
                    asked_s = asyncio.get_running_loop().time()
                    try:
                        await (api.create(CONFIG_MAPS, "default", body) if announces else listed(api))
                        break
                    except Throttled as error:
                        wait_s = budget.wait_s(Busy(error.after_s, error), asyncio.get_running_loop().time())
                        await asyncio.sleep(wait_s)
                now_s = asyncio.get_running_loop().time()
                if looks and not announces and is_late(now_s - asked_s, 2 * NETWORK_S):
                    await asyncio.sleep(max(0.0, kubelet_s + herd.start_slot_s - now_s))

        await asyncio.gather(*(pod(index) for index in range(PODS)))
        return asyncio.get_running_loop().time(), server.requests.rejected

    return virtual_time.run(main())


async def listed(api: KubeClient) -> None:
    """Read one object's list, as cheap as a JobSet's."""
    await api.list(CONFIG_MAPS, "default", query={"fieldSelector": "metadata.name=none", "resourceVersion": "0"})


def test_nobody_waits_while_the_server_is_fast() -> None:
    """The group is back when its slowest kubelet is, and nobody is rejected."""
    seconds, rejected = restart(FAST, 1)
    assert seconds < KUBELET_S[1] + 0.1
    assert rejected == 0


def test_a_slow_server_rejects_few_because_agents_look() -> None:
    """At most 0.1 429s per agent, whatever the server was before; nearly 0.2 without the look."""
    for seed in (3, 4, 5):
        assert 0 < restart(SLOW, seed)[1] < 0.1 * PODS
        assert restart(SLOW, seed, looks=False)[1] > 0.18 * PODS


def test_one_seed_is_one_restart() -> None:
    """The same seed gives the same seconds and rejections."""
    assert restart(SLOW, 7) == restart(SLOW, 7)
