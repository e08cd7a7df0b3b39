"""A supervisor that is killed, alone: its worker does not run on, and nothing of it is left for the next one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from inplace.agent.worker.leftovers import SUPERVISOR, leftovers, supervisor_mark
from inplace.agent.worker.spawn import become, spawn
from tests.agent.scripted_server import ScriptedServer, jobset
from tests.agent.supervisor_rig import DEAF, RUN, marked, running, supervised, until


@pytest.mark.asyncio
@pytest.mark.parametrize("worker", [RUN, DEAF], ids=["any worker", "a worker that takes no signal"])
async def test_a_killed_supervisor_takes_its_worker_with_it(tmp_path: Path, worker: str) -> None:
    """SIGKILL to a guard that is not process 1: the kernel kills worker and agent, whatever they handle."""
    async with running(tmp_path, worker) as group:
        group.child.kill()
        await until(lambda: not marked(str(tmp_path)), "the end of both")


@pytest.mark.asyncio
async def test_a_killed_agent_ends_its_worker_and_the_container(tmp_path: Path) -> None:
    """The guard ends the worker's whole tree, and leaves as its agent did."""
    async with running(tmp_path, "daemon(linger)\n" + RUN) as group:
        await group.noted("lingering")
        children = Path(f"/proc/{group.child.pid}/task/{group.child.pid}/children").read_text().split()
        (agent,) = {int(pid) for pid in children} - set(group.tree())
        os.kill(agent, signal.SIGKILL)
        assert await group.finished() == 137


@pytest.mark.asyncio
async def test_a_killed_supervisor_takes_the_standby_with_it(tmp_path: Path) -> None:
    """A process that is started early ends too, also when it does not wait."""
    worker = "if 'INPLACE_EPOCH' not in os.environ: note('early'); linger()\nimport inplace\ninplace.ready()\n"
    worker += "for step in range(3): inplace.progress(step)\n"
    async with running(tmp_path, worker + RUN, "--standby") as group:
        await group.noted("early")
        group.child.kill()
        await until(lambda: not group.tree(), "the standby's end")


@pytest.mark.asyncio
async def test_the_next_supervisor_ends_what_the_worker_left_before_it_announces(tmp_path: Path) -> None:
    """Children of the worker outlive it in another session: the next supervisor kills them before its first request."""
    async with running(tmp_path, "daemon(linger)\n" + RUN) as group:
        [left] = map(int, await group.noted("lingering"))
        group.child.kill()
        await until(lambda: group.child.returncode is not None, "the supervisor's end")
        assert left in marked(str(tmp_path))
        async with supervised(tmp_path, RUN, server=ScriptedServer(lists=[jobset(1, 0)])) as successor:
            await successor.server.until(lambda: bool(successor.server.received))
            assert left not in marked(str(tmp_path))
            successor.child.terminate()
            await successor.finished()
            assert [line["event"] for line in successor.lines][:2] == ["leftovers_killed", "agent_started"]


def test_a_child_whose_parent_died_first_does_not_become_the_worker(tmp_path: Path) -> None:
    """The kernel would wait for the death of the wrong parent: such a child ends before it executes anything."""
    ran = tmp_path / "ran"
    somebody_else = os.getppid()
    child = os.fork()
    if child == 0:
        become(["touch", str(ran)], os.environ, parent=somebody_else, report=2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 137
    assert not ran.exists()


def test_a_spawned_command_starts_like_a_shells(tmp_path: Path) -> None:
    """It leads a session, blocks nothing, ignores what its parent was told to ignore; an error is the parent's."""
    written = tmp_path / "status"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        pid = spawn(["sh", "-c", f"exec cat /proc/self/stat /proc/self/status > {written}"], os.environ)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    os.waitpid(pid, 0)
    text = written.read_text()
    assert text.split()[5] == str(pid)  # the session
    assert mask(text, "SigBlk") == 0
    ours = mask(Path("/proc/self/status").read_text(), "SigIgn")
    assert mask(text, "SigIgn") == ours & ~(1 << signal.SIGPIPE - 1) & ~(1 << signal.SIGXFSZ - 1)
    with pytest.raises(FileNotFoundError):
        spawn(["no-such-program"], os.environ)
    with pytest.raises(PermissionError):
        spawn(["/proc/version"], os.environ)


def mask(status: str, field: str) -> int:
    """Return a set of signals from proc_pid_status(5): signal n is bit n - 1."""
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:")), 16)


def test_only_a_dead_supervisors_processes_are_leftovers() -> None:
    """Another Pod's and a living supervisor's are left alone; a process id that is used again is another process."""
    pod = {"NAMESPACE": "ns", "POD_NAME": "leftovers-0"}
    own = supervisor_mark(pod)
    alive, dead = own, own.rpartition("/")[0] + "/1"
    pids = {mark: spawn(["sleep", "60"], {**os.environ, SUPERVISOR: mark}) for mark in (alive, dead)}
    try:
        assert list(leftovers(pod)) == [pids[dead]]
        assert list(leftovers(pod | {"POD_NAME": "leftovers"})) == []
    finally:
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
