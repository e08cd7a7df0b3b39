"""The supervisor's own end, by its worker, a signal or bad input: its exit code, and that nothing outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.agent.process import environment, finished, process
from tests.agent.scripted_server import Exchange, ScriptedServer, jobset, silence, until_patched
from tests.agent.supervisor_rig import IDLE, RUN, main_of, running, supervised, through_the_barrier, until

pytestmark = pytest.mark.asyncio

# Ends.


@pytest.mark.parametrize(
    ("worker", "options", "code"),
    [
        pytest.param("sys.exit(0)", (), 0, id="exits 0"),
        pytest.param("daemon(linger)\nsys.exit(0)", (), 0, id="exits 0 with leftovers"),
        pytest.param("sys.exit(3)", ("--fail-on", "1,3-5"), 3, id="a final code"),
        pytest.param("sys.exit(5)", ("--fail-on=1,3-5",), 5, id="a final code of a range"),
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
    async with running(tmp_path, RUN) as group:
        os.kill(main_of(group), signal.SIGSEGV)
        await through_the_barrier(group, 2)
        assert await group.terminated() == 143
        assert group.logged("worker_exited")[0]["exit_code"] == 139


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_while_the_worker_runs_ends_it_first(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The worker gets the same signal and its time; the agent leaves with 128 + n, whatever the worker says."""
    worker = f"signal.signal({int(number)}, lambda *_: (note('told'), sys.exit(0)))\n" + IDLE
    async with running(tmp_path, worker) as group:
        group.child.send_signal(number)
        assert await group.finished() == code
        assert len(group.notes("told")) == 1


async def test_a_signal_while_the_worker_is_stopped_ends_the_pod(tmp_path: Path) -> None:
    """SIGTERM during a group restart: the worker's stop goes on, and nothing is announced after it."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: note('told'))\n" + IDLE
    async with running(tmp_path, worker, "--grace", "1") as group:
        group.show(1, 1)
        await group.noted("told")
        assert await group.terminated() == 143
        assert group.epochs() == [1]


async def test_a_signal_at_the_barrier_ends_the_pod_at_once(tmp_path: Path) -> None:
    """Nothing runs: nothing is waited for."""
    async with supervised(tmp_path, RUN) as group:
        assert await group.announced() == 1
        assert await group.terminated() == 143
        assert group.notes("started") == []


async def test_other_signals_are_the_worker_s(tmp_path: Path) -> None:
    """SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on and end nothing."""
    passed = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    numbers = [int(number) for number in passed]
    worker = f"for n in {numbers}: signal.signal(n, lambda n, _: note('got', n))\n{IDLE}"
    async with running(tmp_path, worker) as group:
        for count, number in enumerate(passed, 1):
            group.child.send_signal(number)
            await group.noted("got", count)
        assert [int(line) for line in group.notes("got")] == list(passed)
        assert group.child.returncode is None


async def test_a_supervisor_that_is_killed_starts_anew_from_its_own_epoch(tmp_path: Path) -> None:
    """The container is started again: EPOCH_FILE says what was announced, and an older view is not enough."""
    file = tmp_path / "epoch"
    async with running(tmp_path, RUN, EPOCH_FILE=str(file)) as group:
        assert file.read_text() == "1"
        group.child.kill()
        await until(lambda: group.child.returncode is not None, "the supervisor's end")

    server = ScriptedServer(lists=[jobset(0, 0), jobset(1, 1, rv=20)])
    async with supervised(tmp_path, RUN, server=server, EPOCH_FILE=str(file)) as group:
        assert await group.announced() == 2
        assert [request.query.get("resourceVersion") for request in group.server.listed] == ["0", None]


# Bad input.


async def test_a_run_without_a_command_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """The message says what was expected."""
    async with (
        ScriptedServer() as server,
        process(environment(tmp_path, server), sys.executable, "-m", "inplace.agent", "run", "--") as child,
    ):
        async with asyncio.timeout(10):
            _, errors = await child.communicate()
    assert child.returncode == 2
    assert "expected a worker's command" in errors.decode()
    assert server.received == []


async def test_a_port_in_use_ends_before_anything_is_sent(tmp_path: Path) -> None:
    """Exit 3 with the address: whoever scrapes or probes this port would ask somebody else."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with supervised(tmp_path, RUN, BARRIER_PORT=port) as group:
            assert await group.finished() == 3
            assert group.server.received == []


@pytest.mark.parametrize(("disk", "files"), [("blocked", 1), ("read-only", 2)])
async def test_a_disk_that_takes_no_epoch_costs_a_warning(tmp_path: Path, disk: str, files: int) -> None:
    """EPOCH_FILE, or EPOCH_FILE.ran as well, cannot be written: the group restarts all the same."""
    file = "/proc/epoch"
    if disk == "blocked":  # by a folder, which nothing replaces; a link would be removed
        (tmp_path / "epoch.new").mkdir()
        file = str(tmp_path / "epoch")
    async with running(tmp_path, RUN, EPOCH_FILE=file) as group:
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)
        assert await group.terminated() == 143
        assert [entry["epoch"] for entry in group.logged("epoch_not_kept")] == [1] * files + [2] * files


async def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """Every bound is monotonic: with the wall clock an hour back in the middle, the restart goes on."""
    sitecustomize = tmp_path / "sitecustomize.py"
    sitecustomize.write_text(
        "import os, time\nreal = time.time\n"
        f"time.time = lambda: real() - 3600 * os.path.exists({str(tmp_path / 'notes' / 'main')!r})\n"
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    async with running(tmp_path, RUN, "--grace", "0.2", PYTHONPATH=path) as group:
        group.show(1, 1)
        await through_the_barrier(group, 2)
        assert await group.terminated() == 143
        stamps = [line["timestamp"] for line in group.lines]
        assert stamps != sorted(stamps), "expected the clock to jump in the log"


async def test_blocked_signals_do_not_blind_the_supervisor(tmp_path: Path) -> None:
    """A parent that left SIGCHLD and SIGTERM blocked: deaths are seen, and the worker starts with a clean mask."""
    worker = "note('mask', str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))))\n" + RUN
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    try:
        async with supervised(tmp_path, worker) as group:
            signal.pthread_sigmask(signal.SIG_SETMASK, inherited)
            await group.start()
            await group.noted("main")
            os.kill(main_of(group), signal.SIGKILL)
            await through_the_barrier(group, 2)
            assert group.notes("mask")[0] == "[]"
            assert await group.terminated() == 143
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, inherited)


# Upstream's contract.


async def test_worker_command_runs_in_a_shell_and_opens_no_port(tmp_path: Path) -> None:
    """WORKER_COMMAND and no argument is upstream's supervisor: `$SHELL -c`, and the port stays free for the worker."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, WORKER_COMMAND="sleep 3600", SHELL="/bin/sh")
        del env["BARRIER_PORT"]
        async with process(env) as child:
            await server.until(lambda: bool(server.watched))
            below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            assert below
            assert not any(map(is_listening, [child.pid, *map(int, below)]))
            child.terminate()
            assert (await finished(child))[0] == 143


def is_listening(pid: int) -> bool:
    """Say whether a process has a TCP socket that listens; proc_pid_net(5)."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:] + Path("/proc/net/tcp6").read_text().splitlines()[1:]
    listening = {f"socket:[{line.split()[9]}]" for line in lines if line.split()[3] == "0A"}
    descriptors = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return not listening.isdisjoint(descriptors)


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -SEGV $$", 139), ("true", 0)])
async def test_a_worker_command_s_exit_code_is_the_container_s(tmp_path: Path, command: str, code: int) -> None:
    """What restartPolicyRules and podFailurePolicy match on is there; nothing more is announced."""
    async with ScriptedServer(lists=[jobset(0)], watches=[(until_patched(), jobset(1, 0), silence)]) as server:
        async with process(environment(tmp_path, server, WORKER_COMMAND=command, SHELL="/bin/sh")) as child:
            ended, _ = await finished(child)
        assert ended == code
        assert len(server.requests("PATCH")) == 1


@pytest.mark.parametrize("code", [1, 42])
async def test_a_deprecation_ends_a_worker_command_s_container(tmp_path: Path, code: int) -> None:
    """IN_PLACE_RESTART_EXIT_CODE, whatever the worker says of its end; the next container announces the next epoch."""
    ran = tmp_path / "ran"
    script = f"exec 2>/dev/null; trap 'exit 7' TERM; echo > {ran}; while :; do sleep 0.01; done"

    async def once_it_runs(exchange: Exchange) -> None:
        await until(ran.exists, "the worker")
        await jobset(1, 1, rv=30)(exchange)

    watch = (until_patched(), jobset(1, 0), once_it_runs, silence)
    async with ScriptedServer(lists=[jobset(0)], watches=[watch]) as server:
        env = environment(
            tmp_path, server, WORKER_COMMAND=script, SHELL="/bin/sh", IN_PLACE_RESTART_EXIT_CODE=str(code)
        )
        async with process(env) as child:
            ended, lines = await finished(child)
        assert ended == code
        assert len(server.requests("PATCH")) == 1
    assert [line["exit_code"] for line in lines if line["event"] == "worker_exited"] == [7]


async def test_worker_command_and_a_startup_probe_contradict_each_other(tmp_path: Path) -> None:
    """Upstream refuses the two together, too."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, WORKER_COMMAND="true", STARTUP_PROBE_PORT="8081")
        async with process(env) as child:
            async with asyncio.timeout(10):
                _, errors = await child.communicate()
    assert child.returncode == 2
    assert "STARTUP_PROBE_PORT" in errors.decode()
