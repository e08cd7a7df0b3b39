"""The supervisor and its worker as real processes: starting, ending, and leaving no process behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.scripted_server import ScriptedServer, Views, in_turn, jobset, refuses
from tests.agent.supervisor_rig import DEAF, IDLE, RUN, main_of, running, supervised, through_the_barrier, until

pytestmark = pytest.mark.asyncio

# Restarts.


async def test_ten_deaths_are_ten_epochs_over_one_watch(tmp_path: Path) -> None:
    """Ten deaths by SIGKILL: ten announcements over one watch, each worker in the next epoch, the agent never exits."""
    async with running(tmp_path, RUN) as group:
        for epoch in range(2, 12):
            os.kill(main_of(group), signal.SIGKILL)
            await through_the_barrier(group, epoch)
            await group.noted("main", epoch)
        assert group.child.returncode is None
        assert len(group.server.watched) == 1
        assert group.epochs() == list(range(1, 12))


async def test_a_deprecated_worker_is_stopped_and_started_again(tmp_path: Path) -> None:
    """The group restarts: SIGTERM, the worker's own clean-up, then the next epoch; its exit code 0 says nothing."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: (note('cleaned'), sys.exit(0)))\n" + IDLE
    async with running(tmp_path, worker, "--grace", "30") as group:
        group.show(1, 1)
        await through_the_barrier(group, 2)
        assert len(group.notes("cleaned")) == 1


async def test_epoch_and_restart_count_are_in_the_environment(tmp_path: Path) -> None:
    """A worker of epoch 3 is told so, and that the group restarted twice."""
    worker = "note('count', os.environ['INPLACE_RESTART_COUNT'])\n" + RUN
    async with running(tmp_path, worker) as group:
        for epoch in (2, 3):
            os.kill(main_of(group), signal.SIGKILL)
            await through_the_barrier(group, epoch)
            await group.noted("main", epoch)
        assert group.notes("started") == ["1", "2", "3"]
        assert group.notes("count") == ["0", "1", "2"]


async def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """A deaf worker does not hold the group longer than --grace."""
    async with running(tmp_path, DEAF, "--grace=0.2") as group:
        group.show(1, 1)
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        await group.said("worker_killed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param("daemon(linger)", id="double fork and setsid"),
        pytest.param("if os.fork() == 0: os.setsid(); linger()", id="setsid child"),
        pytest.param("if os.fork() == 0: os.setpgid(0, 0); linger()", id="own process group"),
        pytest.param("if os.fork() == 0: linger()", id="plain child"),
        pytest.param(
            "if os.fork() == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); linger()", id="deaf child"
        ),
        pytest.param("if os.fork() == 0: note('lingering'); os.kill(os.getpid(), signal.SIGSTOP)", id="stopped child"),
    ],
)
@pytest.mark.parametrize("death", ["own death", "group restart"])
async def test_no_child_of_the_worker_outlives_it(tmp_path: Path, leaves: str, death: str) -> None:
    """However a child of the worker hides, the next epoch is announced only when it is gone."""
    async with running(tmp_path, f"{leaves}\n{RUN}", "--grace", "0.2") as group:
        await group.noted("lingering")
        if death == "own death":
            os.kill(main_of(group), signal.SIGKILL)
        else:
            group.show(1, 1)
        await through_the_barrier(group, 2)


CHAIN = """
if os.environ["INPLACE_EPOCH"] == "1" and os.fork() == 0:
    note('lingering')
    ends_s = time.monotonic() + 30
    while time.monotonic() < ends_s:
        os.setsid() if os.getpid() != os.getsid(0) else None
        if os.fork(): os._exit(0)
"""
BROAD = "for _ in range(20):\n    daemon(linger)\n    if os.fork() == 0: linger()\n"


@pytest.mark.parametrize(("leaves", "count"), [(CHAIN, 1), (BROAD, 40)], ids=["a chain of forks", "a broad tree"])
async def test_many_processes_do_not_escape(tmp_path: Path, leaves: str, count: int) -> None:
    """One that forks into a new session and exits, again and again, or forty, half of them adopted: none is left."""
    async with running(tmp_path, leaves + RUN) as group:
        await group.noted("lingering", count)
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)


async def test_orphans_are_reaped_while_the_worker_runs(tmp_path: Path) -> None:
    """Processes that lose their parents end as anybody's children do: no zombie is left under the agent."""
    worker = "for _ in range(5): daemon(lambda: note('orphan'))\n" + RUN
    async with running(tmp_path, worker) as group:
        await group.noted("orphan", 5)
        pids = [int(pid) for pid in group.notes("orphan")]
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "five orphans to be reaped")
        assert group.child.returncode is None
        assert Path(f"/proc/{main_of(group)}").exists()


async def test_a_flood_on_stdout_does_not_hold_the_agent(tmp_path: Path) -> None:
    """Nobody reads the worker's output and its pipe is full: it is ended all the same."""
    worker = "note('main')\nwhile True: os.write(1, b'x' * 65536)\n"
    async with running(tmp_path, worker, "--grace", "0.2") as group:
        group.show(1, 1)
        await through_the_barrier(group, 2)


async def test_a_worker_that_dies_at_once_is_not_missed(tmp_path: Path) -> None:
    """Twenty workers in a row that exit before anybody could look: each death is one announcement."""
    async with supervised(tmp_path, ["sh", "-c", 'echo $INPLACE_EPOCH >> "$NOTES/started"; exit 1']) as group:
        for epoch in range(1, 21):
            assert await group.announced() == epoch
            group.show(epoch, epoch - 1)
        await group.noted("started", 20)


async def test_two_deprecations_stop_the_worker_once(tmp_path: Path) -> None:
    """Views that come while the worker is being stopped are kept, not acted on; one announcement follows."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: note('told'))\n" + IDLE
    async with running(tmp_path, worker, "--grace", "0.5") as group:
        group.show(1, 1)
        await group.noted("told")
        group.show(1, 1)
        group.show(1, 1)
        await through_the_barrier(group, 2)
        assert len(group.notes("told")) == 1
        assert group.epochs() == [1, 2]


async def test_a_refused_patch_and_a_view_at_once(tmp_path: Path) -> None:
    """The announcement is refused while views come in: it is sent again, and the worker starts once."""
    views = Views()
    server = ScriptedServer(lists=[jobset(0)], watches=[(views.follow,)], answer=in_turn(refuses(500), refuses(503)))
    async with supervised(tmp_path, RUN, server=server) as group:
        views.show(0, 0)
        views.show(1, 0)
        await group.noted("main")
        assert group.epochs() == [1, 1, 1]
        assert group.notes("started") == ["1"]


async def test_a_death_that_is_already_deprecated_announces_once(tmp_path: Path) -> None:
    """Another worker died first: this one's death and its deprecation are one restart."""
    async with running(tmp_path, RUN) as group:
        os.kill(group.child.pid, signal.SIGSTOP)  # so that both wait for the agent
        os.kill(main_of(group), signal.SIGKILL)
        group.show(1, 1)
        os.kill(group.child.pid, signal.SIGCONT)
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        assert group.epochs() == [1, 2]
