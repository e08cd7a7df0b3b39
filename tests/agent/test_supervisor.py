"""The supervisor and its worker, as real processes: what is started, what is ended, and what is never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.agent.process import environment, finished, free_port, process
from tests.agent.scripted_server import Exchange, ScriptedServer, accept_patch, jobset
from tests.agent.supervisor_rig import Supervised, supervised, until

pytestmark = pytest.mark.asyncio

RUN = "note('main')\nsignal.pause()\n"
IDLE = "note('main')\nwhile True: time.sleep(1)\n"  # for a worker with a handler of its own
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('main')\nwhile True: time.sleep(3600)\n"


def main_of(group: Supervised) -> int:
    """Return the process id of the newest worker's main process."""
    return int(group.notes("main")[-1])


async def running(group: Supervised, epoch: int = 1) -> None:
    """Bring the worker into its first epoch, and wait until its main process is at work."""
    await group.start(epoch)
    await group.noted("main")


async def through_the_barrier(group: Supervised, epoch: int) -> None:
    """Wait for the announcement of `epoch`, let the group sync at it, and wait for the worker."""
    assert await group.announced() == epoch
    assert group.tree() == [], "something of the old worker was left when the next epoch was announced"
    group.show(epoch, epoch - 1)
    await group.noted("started", epoch)


# Restarts.


async def test_ten_deaths_are_ten_epochs_over_one_watch(tmp_path: Path) -> None:
    """Ten deaths by SIGKILL: ten announcements over one watch, each worker in the next epoch, the agent never exits."""
    async with supervised(tmp_path, RUN) as group:
        await running(group)
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
    async with supervised(tmp_path, worker, "--grace", "30") as group:
        await running(group)
        group.show(1, 1)
        await through_the_barrier(group, 2)
        assert len(group.notes("cleaned")) == 1


async def test_epoch_and_restart_count_are_in_the_environment(tmp_path: Path) -> None:
    """A worker of epoch 3 is told so, and that the group restarted twice."""
    worker = "note('count', os.environ['INPLACE_RESTART_COUNT'])\n" + RUN
    async with supervised(tmp_path, worker) as group:
        await running(group)
        for epoch in (2, 3):
            os.kill(main_of(group), signal.SIGKILL)
            await through_the_barrier(group, epoch)
            await group.noted("main", epoch)
        assert group.notes("started") == ["1", "2", "3"]
        assert group.notes("count") == ["0", "1", "2"]


async def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """A deaf worker does not hold the group longer than --grace."""
    async with supervised(tmp_path, DEAF, "--grace=0.2", "--termination-grace=0.2") as group:
        await running(group)
        group.show(1, 1)
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        group.child.terminate()
        assert await group.finished() == 143
        assert len(group.logged("worker_killed")) == 2


@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param("daemon(linger)", id="double fork and setsid"),
        pytest.param("if os.fork() == 0: os.setsid(); linger()", id="setsid child"),
        pytest.param("if os.fork() == 0: os.setpgid(0, 0); linger()", id="own process group"),
        pytest.param("if os.fork() == 0: linger()", id="plain child"),
        pytest.param(
            "if os.fork() == 0: signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); linger()",
            id="deaf child",
        ),
        pytest.param("if os.fork() == 0: note('lingering'); os.kill(os.getpid(), signal.SIGSTOP)", id="stopped child"),
    ],
)
@pytest.mark.parametrize("death", ["own death", "group restart"])
async def test_no_child_of_the_worker_outlives_it(tmp_path: Path, leaves: str, death: str) -> None:
    """However a child of the worker hides, the next epoch is announced only when it is gone."""
    async with supervised(tmp_path, f"{leaves}\n{RUN}", "--grace", "0.2") as group:
        await running(group)
        await group.noted("lingering")
        if death == "own death":
            os.kill(main_of(group), signal.SIGKILL)
        else:
            group.show(1, 1)
        await through_the_barrier(group, 2)


async def test_a_chain_of_forks_does_not_escape(tmp_path: Path) -> None:
    """A process that forks into a new session and exits, again and again, is caught before the announcement."""
    chain = """
if os.environ["INPLACE_EPOCH"] == "1" and os.fork() == 0:
    note('chain')
    ends_s = time.monotonic() + 30
    while time.monotonic() < ends_s:
        os.setsid() if os.getpid() != os.getsid(0) else None
        if os.fork(): os._exit(0)
"""
    async with supervised(tmp_path, chain + RUN) as group:
        await running(group)
        await group.noted("chain")
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)


async def test_a_broad_tree_is_gone_at_once(tmp_path: Path) -> None:
    """Forty processes, half of them adopted, none left when the next epoch is announced."""
    worker = "for _ in range(20):\n    daemon(linger)\n    if os.fork() == 0: linger()\n" + RUN
    async with supervised(tmp_path, worker) as group:
        await running(group)
        await group.noted("lingering", 40)
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)


async def test_orphans_are_reaped_while_the_worker_runs(tmp_path: Path) -> None:
    """Processes that lose their parents end as anybody's children do: no zombie is left under the agent."""
    worker = "for _ in range(5): daemon(lambda: note('orphan'))\n" + RUN
    async with supervised(tmp_path, worker) as group:
        await running(group)
        await group.noted("orphan", 5)
        pids = [int(pid) for pid in group.notes("orphan")]
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "five orphans to be reaped")
        assert group.child.returncode is None
        assert Path(f"/proc/{main_of(group)}").exists()


async def test_a_flood_on_stdout_does_not_hold_the_agent(tmp_path: Path) -> None:
    """Nobody reads the worker's output and its pipe is full: it is ended all the same."""
    worker = "note('main')\nwhile True: os.write(1, b'x' * 65536)\n"
    async with supervised(tmp_path, worker, "--grace", "0.2") as group:
        await running(group)
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
    async with supervised(tmp_path, worker, "--grace", "0.5") as group:
        await running(group)
        group.show(1, 1)
        await group.noted("told")
        group.show(1, 1)
        group.show(1, 1)
        await through_the_barrier(group, 2)
        assert len(group.notes("told")) == 1
        assert group.epochs() == [1, 2]


async def test_a_refused_patch_and_a_view_at_once(tmp_path: Path) -> None:
    """The announcement is refused while views come in: it is sent again, and the worker starts once."""
    refusals = [503, 500]

    async def answer(exchange: Exchange) -> None:
        if refusals:
            await exchange.answer(refusals.pop(), {"kind": "Status", "code": 503, "reason": "ServiceUnavailable"})
        else:
            await accept_patch(exchange)

    views: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def follow(exchange: Exchange) -> None:
        while True:
            await jobset(*(await views.get()))(exchange)

    server = ScriptedServer(lists=[jobset(0)], watches=[(follow,)], answer=answer)
    async with supervised(tmp_path, RUN, server=server) as group:
        for view in ((0, 0), (1, 0)):
            views.put_nowait(view)
        await group.noted("main")
        assert group.epochs() == [1, 1, 1]
        assert group.notes("started") == ["1"]


async def test_a_death_that_is_already_deprecated_announces_once(tmp_path: Path) -> None:
    """Another worker died first: this one's death and its deprecation are one restart."""
    async with supervised(tmp_path, RUN) as group:
        await running(group)
        os.kill(group.child.pid, signal.SIGSTOP)  # so that both wait for the agent
        os.kill(main_of(group), signal.SIGKILL)
        group.show(1, 1)
        os.kill(group.child.pid, signal.SIGCONT)
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        assert group.epochs() == [1, 2]


# Standby.

STANDBY = """
note('staged')
line = os.read(int(os.environ['INPLACE_STANDBY_FD']), 64) if 'INPLACE_STANDBY_FD' in os.environ else b'not staged'
if not line: sys.exit(9)
note('released', line.decode().strip())
"""


async def test_a_standby_waits_for_its_epoch(tmp_path: Path) -> None:
    """The next worker's process is there before the barrier lifts, acts after it, and never beside the last one."""
    async with supervised(tmp_path, STANDBY + RUN, "--standby") as group:
        for epoch in (1, 2, 3):
            assert await group.announced() == epoch
            await group.noted("staged", epoch)
            assert len(group.tree()) == 1, "expected the staged process alone"
            assert len(group.notes("released")) == epoch - 1
            group.show(epoch, epoch - 1)
            await group.noted("main", epoch)
            os.kill(main_of(group), signal.SIGKILL)
        assert group.notes("released") == ["1", "2", "3"]


async def test_a_standby_that_died_is_replaced_at_the_lift(tmp_path: Path) -> None:
    """Nobody is there to be released: the worker is started as ever."""
    async with supervised(tmp_path, STANDBY + RUN, "--standby") as group:
        assert await group.announced() == 1
        (staged,) = await group.noted("staged")
        os.kill(int(staged), signal.SIGKILL)
        await until(
            lambda: not group.tree(), "no staged process"
        )  # until then it would be released, and die as a worker
        group.show(1, 0)
        await group.noted("main")
        assert group.notes("released") == ["not staged"]


async def test_a_standby_ends_with_its_pod(tmp_path: Path) -> None:
    """SIGTERM at the barrier: the process that waits there does not stay."""
    async with supervised(tmp_path, STANDBY + RUN, "--standby") as group:
        assert await group.announced() == 1
        await group.noted("staged")
        group.child.terminate()
        assert await group.finished() == 143
        assert group.notes("released") == []


# Ends.


@pytest.mark.parametrize(
    ("worker", "options", "code"),
    [
        pytest.param("sys.exit(0)", (), 0, id="exits 0"),
        pytest.param("daemon(linger)\nsys.exit(0)", (), 0, id="exits 0 with leftovers"),
        pytest.param("sys.exit(3)", ("--fail-on", "1,3-5"), 3, id="a final code"),
        pytest.param("sys.exit(5)", ("--no-restart-on=1,3-5",), 5, id="a final code, the other name"),
        pytest.param("os.kill(os.getpid(), 9)", ("--fail-on", "137"), 137, id="killed, and that is final"),
    ],
)
async def test_an_end_that_counts_is_the_pod_s(
    tmp_path: Path, worker: str, options: tuple[str, ...], code: int
) -> None:
    """Exit 0 and the codes of --fail-on become the agent's own, once nothing is left; nothing more is announced."""
    async with supervised(tmp_path, worker, *options) as group:
        assert await group.announced() == 1
        group.show(1, 0)
        assert await group.finished() == code
        assert group.epochs() == [1]


async def test_a_signal_that_kills_the_worker_restarts_the_group(tmp_path: Path) -> None:
    """SIGSEGV is a death like any other, and its code is logged as 128 + n."""
    async with supervised(tmp_path, RUN) as group:
        await running(group)
        os.kill(main_of(group), signal.SIGSEGV)
        await through_the_barrier(group, 2)
        group.child.terminate()
        assert await group.finished() == 143
        assert group.logged("worker_exited")[0]["exit_code"] == 139


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_while_the_worker_runs_ends_it_first(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The worker gets the same signal and its time; the agent leaves with 128 + n, whatever the worker says."""
    worker = f"signal.signal({int(number)}, lambda *_: (note('told'), sys.exit(0)))\n" + IDLE
    async with supervised(tmp_path, worker) as group:
        await running(group)
        group.child.send_signal(number)
        assert await group.finished() == code
        assert len(group.notes("told")) == 1


async def test_a_signal_while_the_worker_is_stopped_ends_the_pod(tmp_path: Path) -> None:
    """SIGTERM during a group restart: the worker's stop goes on, and nothing is announced after it."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: note('told'))\n" + IDLE
    async with supervised(tmp_path, worker, "--grace", "1") as group:
        await running(group)
        group.show(1, 1)
        await group.noted("told")
        group.child.terminate()
        assert await group.finished() == 143
        assert group.epochs() == [1]


async def test_a_signal_at_the_barrier_ends_the_pod_at_once(tmp_path: Path) -> None:
    """Nothing runs: nothing is waited for."""
    async with supervised(tmp_path, RUN) as group:
        assert await group.announced() == 1
        group.child.terminate()
        assert await group.finished() == 143
        assert group.notes("started") == []


async def test_a_second_signal_loses_the_patience(tmp_path: Path) -> None:
    """A worker that hears and does not obey, with an hour's grace, is killed by the second SIGTERM."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: note('told'))\n" + IDLE
    async with supervised(tmp_path, worker) as group:
        await running(group)
        group.child.terminate()
        await group.noted("told")
        group.child.terminate()
        assert await group.finished() == 143
        assert len(group.notes("told")) == 1


async def test_other_signals_are_the_worker_s(tmp_path: Path) -> None:
    """SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on and end nothing."""
    passed = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    numbers = [int(number) for number in passed]
    worker = f"for n in {numbers}: signal.signal(n, lambda n, _: note('got', n))\n{IDLE}"
    async with supervised(tmp_path, worker) as group:
        await running(group)
        for count, number in enumerate(passed, 1):
            group.child.send_signal(number)
            await group.noted("got", count)
        assert [int(line) for line in group.notes("got")] == list(passed)
        assert group.child.returncode is None


async def test_a_supervisor_that_is_killed_starts_anew_from_its_own_epoch(tmp_path: Path) -> None:
    """The container is started again: EPOCH_FILE says what was announced, and an older view is not enough."""
    file = tmp_path / "epoch"
    async with supervised(tmp_path, RUN, EPOCH_FILE=str(file)) as group:
        await running(group)
        assert file.read_text() == "1"
        group.child.kill()
        await until(lambda: group.child.returncode is not None, "the supervisor's end")

    server = ScriptedServer(lists=[jobset(0, 0), jobset(1, 1, rv=20)])
    async with supervised(tmp_path, RUN, server=server, EPOCH_FILE=str(file)) as group:
        assert await group.announced() == 2
        assert [request.query.get("resourceVersion") for request in group.server.listed] == ["0", None]


# Bad input.


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        pytest.param([], 2, "expected a worker's command", id="no worker command"),
        pytest.param(["no-such-program"], 127, "expected a program in PATH", id="missing command"),
        pytest.param(["/no/such/program"], 127, "expected a file", id="missing file"),
        pytest.param(["/proc/version"], 126, "expected an executable file", id="not executable"),
    ],
)
async def test_a_command_that_cannot_run_is_refused_before_anything_is_sent(
    tmp_path: Path, command: list[str], code: int, words: str
) -> None:
    """The exit code is a shell's, the message says what was expected, and the group never waits for this Pod."""
    async with (
        ScriptedServer() as server,
        process(environment(tmp_path, server), sys.executable, "-m", "agent", "run", "--", *command) as child,
    ):
        async with asyncio.timeout(10):
            _, errors = await child.communicate()
    assert child.returncode == code
    assert words in errors.decode()
    assert server.received == []


async def test_a_command_that_vanished_ends_the_pod(tmp_path: Path) -> None:
    """The program was there at the start and is not when the barrier lifts: 127, not a group restart."""
    program = tmp_path / "worker"
    program.write_text("#!/bin/sh\nexec sleep 3600\n")
    program.chmod(0o755)
    async with supervised(tmp_path, [str(program)]) as group:
        assert await group.announced() == 1
        program.unlink()
        group.show(1, 0)
        assert await group.finished() == 127
        assert "cannot execute" in str(group.logged("worker_not_started")[0]["message"])
        assert group.epochs() == [1]


async def test_a_program_of_no_known_format_ends_the_pod(tmp_path: Path) -> None:
    """A script without its first line is no program: 126."""
    program = tmp_path / "worker"
    program.write_text("\x00\x01 no program\n")
    program.chmod(0o755)
    async with supervised(tmp_path, [str(program)]) as group:
        assert await group.announced() == 1
        group.show(1, 0)
        assert await group.finished() == 126


async def test_a_port_in_use_ends_before_anything_is_sent(tmp_path: Path) -> None:
    """Exit 3 with the address: whoever scrapes or probes this port would ask somebody else."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with supervised(tmp_path, RUN, BARRIER_PORT=port) as group:
            assert await group.finished() == 3
            assert group.server.received == []


@pytest.mark.parametrize("disk", ["full", "read-only"])
async def test_a_disk_that_takes_no_epoch_costs_a_warning(tmp_path: Path, disk: str) -> None:
    """EPOCH_FILE cannot be written: the group restarts all the same."""
    file = "/dev/full" if disk == "full" else "/proc/epoch"
    if disk == "full":
        (tmp_path / "epoch.new").symlink_to("/dev/full")
        file = str(tmp_path / "epoch")
    async with supervised(tmp_path, RUN, EPOCH_FILE=file) as group:
        await running(group)
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)
        group.child.terminate()
        assert await group.finished() == 143
        assert len(group.logged("epoch_not_kept")) == 2


async def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """Every bound is monotonic: with the wall clock an hour back in the middle, the restart goes on."""
    sitecustomize = tmp_path / "sitecustomize.py"
    sitecustomize.write_text(
        "import os, time\nreal = time.time\n"
        f"time.time = lambda: real() - 3600 * os.path.exists({str(tmp_path / 'notes' / 'main')!r})\n"
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    async with supervised(tmp_path, RUN, "--grace", "0.2", PYTHONPATH=path) as group:
        await running(group)
        group.show(1, 1)
        await through_the_barrier(group, 2)
        group.child.terminate()
        assert await group.finished() == 143
        stamps = [line["timestamp"] for line in group.lines]
        assert stamps != sorted(stamps), "expected the clock to jump in the log"


async def test_blocked_signals_do_not_blind_the_supervisor(tmp_path: Path) -> None:
    """A parent that left SIGCHLD and SIGTERM blocked: deaths are seen, and the worker starts with a clean mask."""
    worker = "note('mask', str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))))\n" + RUN
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    try:
        async with supervised(tmp_path, worker) as group:
            signal.pthread_sigmask(signal.SIG_SETMASK, inherited)
            await running(group)
            os.kill(main_of(group), signal.SIGKILL)
            await through_the_barrier(group, 2)
            assert group.notes("mask")[0] == "[]"
            group.child.terminate()
            assert await group.finished() == 143
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, inherited)


# Upstream's contract.


async def test_worker_command_runs_in_a_shell_and_opens_no_port(tmp_path: Path) -> None:
    """WORKER_COMMAND and no argument is upstream's supervisor: `$SHELL -c`, and the port stays free for the worker."""
    port = free_port()
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, WORKER_COMMAND="sleep 3600", SHELL="/bin/sh")
        del env["BARRIER_PORT"]
        async with process(env) as child:
            await server.until(lambda: bool(server.watched))
            with socket.create_server(("127.0.0.1", 8080)) if port else socket.socket():
                pass
            child.terminate()
            assert (await finished(child))[0] == 143


async def test_worker_command_and_a_startup_probe_contradict_each_other(tmp_path: Path) -> None:
    """Upstream refuses the two together, too."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, WORKER_COMMAND="true", STARTUP_PROBE_PORT="8081")
        async with process(env) as child:
            async with asyncio.timeout(10):
                _, errors = await child.communicate()
    assert child.returncode == 2
    assert "STARTUP_PROBE_PORT" in errors.decode()
