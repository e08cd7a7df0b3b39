"""A group restarts again and again under virtual time: its window shrinks, and grows when the server turns slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import copytree

import pytest

from inplace.agent.announce.herd import Herd
from inplace.agent.announce.herd_start import HerdStart
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.announce.start_window import parse_text
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
ORDERED_S = 1_000.0  # on the machine's clock
FAST = PriorityLevel("fast", seats=50, queues=6, hand_size=6, queue_length=50, service_s=lambda _: 0.002)
SLOW = PriorityLevel("slow", seats=4, queues=6, hand_size=6, queue_length=15, service_s=lambda _: 0.01)  # 400 a second


@dataclass(frozen=True)
class Restarted:
    """One restart of the group.

    Args:
        seconds: from the order to the last announcement.
        levels: of the windows that the Pods keep for the next one.
    """

    seconds: float
    rejected: int
    levels: Counter[int]


def restart(folder: Path, level: PriorityLevel, seed: int) -> Restarted:
    """Restart the group once: each Pod reads its file, lists, announces, and leaves its file at the next order."""

    async def main() -> Restarted:
        server = ApiServer(clock=LoopClock(1.8e9), rng=Random(seed), options=ApiServerOptions(priority_levels=(level,)))
        server.load([])

        async def pod(index: int) -> None:
            rng, rejected = Random(f"{seed}/{index}"), False
            kubelet_s = rng.uniform(*KUBELET_S)
            herd = Herd(PODS, index, rng.random(), HERD.rate_per_s)
            start = HerdStart(herd, ORDERED_S + kubelet_s, str(folder / f"{index}.window"))
            assert start.recall() is None
            await asyncio.sleep(kubelet_s + start.slot_s)
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
                        rejected = True
                        wait_s = budget.wait_s(Busy(error.after_s, error), asyncio.get_running_loop().time())
                        await asyncio.sleep(wait_s)
                now_s = asyncio.get_running_loop().time()
                if not announces and start.put_off(now_s - asked_s, 2 * NETWORK_S):
                    await asyncio.sleep(max(0.0, kubelet_s + start.slot_s - now_s))
            start.leave(ORDERED_S, announced=True, rejected=rejected, ordered=True)

        await asyncio.gather(*(pod(index) for index in range(PODS)))
        seconds = asyncio.get_running_loop().time()
        levels = Counter(parse_text((folder / f"{index}.window").read_text())[0].level for index in range(PODS))
        return Restarted(seconds, server.requests.rejected, levels)

    return virtual_time.run(main())


async def listed(api: KubeClient) -> None:
    """Read one object's list, as cheap as a JobSet's."""
    await api.list(CONFIG_MAPS, "default", query={"fieldSelector": "metadata.name=none", "resourceVersion": "0"})


def write_default(folder: Path) -> None:
    """Let the group have been ordered to restart for the first time."""
    for index in range(PODS):
        (folder / f"{index}.window").write_text(f"v1 1 0 0 {ORDERED_S:.3f}")


@pytest.fixture(scope="module")
def shrunk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Restarted, Restarted]:
    """Restart a group twice while the server is fast; give the Pods' files, which nobody may change, and both."""
    folder = tmp_path_factory.mktemp("shrunk")
    write_default(folder)
    return folder, restart(folder, FAST, 1), restart(folder, FAST, 2)


def test_the_window_shrinks_while_the_server_is_fast(tmp_path: Path, shrunk: tuple[Path, Restarted, Restarted]) -> None:
    """One restart in the default window, then none waits: faster by what kubelets do not spread, and no 429."""
    folder, first, second = shrunk
    copytree(folder, tmp_path, dirs_exist_ok=True)
    third = restart(tmp_path, FAST, 3)
    assert first.levels == {0: PODS}
    assert third.levels[0] > 0.9 * PODS
    assert first.rejected == second.rejected == third.rejected == 0
    assert max(second.seconds, third.seconds) < first.seconds - 0.5


def test_the_window_grows_when_the_server_turns_slow(tmp_path: Path, shrunk: tuple[Path, Restarted, Restarted]) -> None:
    """The first slow restart stays within 0.2 429s per agent; nearly all Pods saw that, and the next ones have few."""
    folder, _, before = shrunk
    copytree(folder, tmp_path, dirs_exist_ok=True)
    slow = [restart(tmp_path, SLOW, seed) for seed in (3, 4, 5)]
    assert before.levels[0] > 0.9 * PODS
    assert 0 < slow[0].rejected <= 0.2 * PODS
    assert slow[0].levels[0] < 0.1 * PODS
    assert max(slow[1].rejected, slow[2].rejected) <= 0.02 * PODS


def test_one_seed_is_one_restart(tmp_path: Path) -> None:
    """The same files and the same seed give the same seconds, rejections and files."""
    write_default(tmp_path)
    first = restart(tmp_path, SLOW, 7)
    write_default(tmp_path)
    assert restart(tmp_path, SLOW, 7) == first
