"""A supervisor's restart, in numbers and in log lines: what its worker's end and start took."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from inplace.common.wire import names as wire
from inplace.common.wire.phases import RestartPhase, parse_phases
from testbed.ports import free_ports
from tests.agent.report.test_promtool import scraped
from tests.agent.scripted_server import ScriptedServer
from tests.agent.supervisor_rig import DEAF, RUN, Supervised, main_of, running
from tests.promtool import complaints

pytestmark = pytest.mark.asyncio

COUNT = 'inplace_agent_restart_phase_duration_seconds_count{phase="%s"} %s'


def announced_phases(server: ScriptedServer) -> list[dict[RestartPhase, float]]:
    """Return the phases of each announcement."""
    return [parse_phases(annotations[wire.PHASES]) for annotations in server.annotations]


async def restart(group: Supervised, epoch: int) -> None:
    """Take the group from `epoch` to the next one: this Pod's worker has died, or its group's view says so."""
    assert await group.announced() == epoch + 1
    group.show(epoch, epoch)
    group.show(epoch + 1, epoch)
    await group.noted("main", epoch + 1)


async def test_a_supervisor_measures_what_its_worker_costs(tmp_path: Path) -> None:
    """Death, stop, start and downtime of each restart are in the metrics at once, and announced with the next."""
    (port,) = free_ports(1)
    async with running(tmp_path, RUN, BARRIER_PORT=str(port)) as group:
        for epoch in (1, 2):
            await group.noted("main", epoch)
            os.kill(main_of(group), signal.SIGKILL)
            await restart(group, epoch)
        counts = {"view": 1, "announce": 3, "barrier": 3, "lift": 1, "death": 2, "stop": 2, "start": 3, "down": 2}
        text = await scraped(port, (COUNT % ("down", 2.0)).encode())
    for phase, count in counts.items():
        assert COUNT % (phase, float(count)) in text.decode()
    assert await complaints(text) == ""
    first, second, third = announced_phases(group.server)
    assert set(first) == {RestartPhase.VIEW}
    assert set(second) == {
        RestartPhase.ANNOUNCE,
        RestartPhase.BARRIER,
        RestartPhase.LIFT,
        RestartPhase.START,
        RestartPhase.STOP,
        RestartPhase.DEATH,
    }
    assert set(third) == set(second) - {RestartPhase.LIFT} | {RestartPhase.DOWN}
    assert third[RestartPhase.DOWN] >= second[RestartPhase.DEATH] >= second[RestartPhase.STOP]


async def test_the_grace_of_a_worker_is_counted_as_its_stop(tmp_path: Path) -> None:
    """A worker that ignores SIGTERM costs its grace: the stop begins with the order, not with the end."""
    async with running(tmp_path, DEAF, "--grace", "0.3") as group:
        group.show(1, 1)
        await restart(group, 1)
    assert announced_phases(group.server)[1][RestartPhase.STOP] >= 0.3


async def test_one_restart_of_a_supervisor_is_told_in_twelve_lines(tmp_path: Path) -> None:
    """From the start of the process through one restart to the Pod's end."""
    async with running(tmp_path, RUN) as group:
        os.kill(main_of(group), signal.SIGKILL)
        await restart(group, 1)
        await group.terminated()
    assert Counter(line["event"] for line in group.lines) == {
        "agent_started": 1,
        "announcement_accepted": 2,
        "barrier_lifted": 2,
        "worker_starting": 2,
        "worker_started": 2,
        "worker_exited": 3,  # of the first one guard and agent tell
    }
    assert [line["epoch"] for line in group.logged("barrier_lifted")] == [1, 2]
