"""The supervisor and its worker, as real processes: what is started, what is ended, and what is never left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.supervisor_rig import Supervised, supervised

pytestmark = pytest.mark.asyncio

RUN = "signal.pause()\n"


def alive(pid: int) -> bool:
    """Say whether a process exists, also as a zombie."""
    return Path(f"/proc/{pid}").exists()


async def restart_by_death(group: Supervised, epoch: int = 1) -> None:
    """Kill the worker's main process, and go through a whole group restart."""
    os.kill(int(group.notes("main")[-1]), signal.SIGKILL)
    assert await group.announced() == epoch + 1
    group.show(epoch, epoch)
    group.show(epoch + 1, epoch)
    await group.noted("started", epoch + 1)


async def test_supervisor_restarts_its_worker_without_leaving(tmp_path: Path) -> None:
    """Ten deaths by SIGKILL: ten announcements over one watch, each worker in the next epoch, the agent never exits."""
    async with supervised(tmp_path, "note('main')\n" + RUN) as group:
        await group.start()
        await group.noted("main")
        for epoch in range(1, 11):
            await restart_by_death(group, epoch)
            await group.noted("main", epoch + 1)
        assert group.child.returncode is None
        assert len(group.server.watched) == 1
        assert group.notes("started") == [str(epoch) for epoch in range(1, 12)]
        assert group.epochs() == list(range(1, 12))
