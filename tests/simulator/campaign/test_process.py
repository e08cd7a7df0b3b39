"""Processes inside one event loop end as SIGKILL ends them."""

from __future__ import annotations

import asyncio
import gc

import pytest
from anyio import create_task_group

from inplace.common.kube.resources import KubeObject
from inplace.simulator.campaign.process import Process, current_process, drive
from inplace.simulator.campaign.run import run_seed
from inplace.simulator.cluster.kubelet import Kubelet
from inplace.simulator.cluster.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.virtual_time


async def test_a_killed_process_leaves_no_coroutine_behind() -> None:
    """A killed process's unstarted task takes no step, and the coroutine inside anyio's wrapper is closed."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    steps: list[str] = []
    process = Process("program")

    async def child() -> None:
        steps.append("child")

    async def main() -> None:
        async with create_task_group() as group:
            group.start_soon(child)
            process.kill()
            await asyncio.sleep(1)

    loop.drive = drive
    running = process.start(main())
    await asyncio.wait([running])
    loop.drive = None
    assert running.cancelled()
    assert steps == []
    gc.collect()  # an unawaited coroutine would warn, and a warning is an error here


def test_what_a_kubelet_starts_does_not_die_with_whoever_wrote_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller set activeDeadlineSeconds and died the moment after: the kubelet's timer died with it."""
    owners: set[Process | None] = set()
    before = Kubelet.pod_changed

    def pod_changed(self: Kubelet, event_type: str, pod: KubeObject) -> None:
        owners.add(current_process())
        before(self, event_type, pod)

    monkeypatch.setattr(Kubelet, "pod_changed", pod_changed)
    run_seed(1)
    assert owners == {None}
