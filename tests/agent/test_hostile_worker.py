"""What hostile training code tries inside its own Pod: against its guard, its agent, and as a standby."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.supervisor_rig import RUN, status_of, until
from tests.agent.test_process_depth import pod
from tests.agent.worker.test_guard_standby import is_ready, main_of

pytestmark = [pytest.mark.asyncio, pytest.mark.attack]

# Root keeps what containerd lets a container's root have: no CAP_SYS_PTRACE, CAP_SYS_ADMIN or CAP_PERFMON.
CONTAIN = """
import ctypes, os, sys
for capability in set(range(41)) - {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}:
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execvp(sys.argv[1], sys.argv[1:])
"""
CONTAINED = (sys.executable, "-c", CONTAIN)
# As a Pod with `hostUsers: false` has it.
IN_USER_NAMESPACE = ("unshare", "--user", "--map-root-user", *CONTAINED)

# What a process tries with another one of its user. pidfd_getfd is 438 on every architecture.
ATTEMPTS = """
import ctypes, errno, socket, time
libc = ctypes.CDLL(None, use_errno=True)
def tried(pid):
    said = []
    def attempt(name, act):
        try:
            act()
            said.append(name)
        except OSError as error:
            assert error.errno in (errno.EPERM, errno.EACCES), (name, error)
    def called(number):
        if number < 0:
            raise OSError(ctypes.get_errno() or errno.EPERM, "")
        return number
    pidfd = os.pidfd_open(pid)
    def take():
        taken = [number for number in (libc.syscall(438, pidfd, fd, 0) for fd in range(32)) if number >= 0]
        for fd in taken or [called(-1)]:
            try:
                socket.socket(fileno=fd).sendall(b"failed 1 9\\nabsent 0\\n")
            except OSError:
                pass
    attempt("pidfd_getfd", take)
    attempt("fd", lambda: os.readlink(f"/proc/{pid}/fd/2"))
    attempt("root", lambda: os.listdir(f"/proc/{pid}/root"))
    attempt("environ", lambda: open(f"/proc/{pid}/environ").read(1) or called(-1))
    attempt("mem", lambda: open(f"/proc/{pid}/mem", "rb+").close())
    attempt("ptrace", lambda: called(libc.ptrace(0x4206, pid, None, None)))  # PTRACE_SEIZE
    note("tried", " ".join(["free:", *said]))
"""
EPOCH = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n"


@pytest.mark.parametrize("starter", [CONTAINED, IN_USER_NAMESPACE], ids=["a container", "a user namespace"])
async def test_a_worker_cannot_speak_for_its_guard(tmp_path: Path, starter: Sequence[str]) -> None:
    """It gets no descriptor, no memory and no variable of its guard, so the agent hears what the guard saw alone."""
    worker = ATTEMPTS + EPOCH + "tried(os.getppid())\n" + RUN
    async with pod(tmp_path, worker, starter=starter) as group:
        await group.runs(1)
        assert await group.guard.noted("tried") == "free:"
        group.views.show(1, 1)
        assert await group.runs(2) is None, "it did not end by itself"


async def test_no_process_of_the_agents_user_reads_the_agent(tmp_path: Path) -> None:
    """Where containers share their processes, a worker of the agent's user gets neither token nor link from it."""
    worker = ATTEMPTS + EPOCH + "tried(int(open(os.environ['NOTES'] + '/agent').read()))\n" + RUN
    async with pod(tmp_path, worker, starter=CONTAINED) as group:
        (tmp_path / "notes" / "agent").write_text(str(group.agent.pid))
        await group.runs(1)
        assert await group.guard.noted("tried") == "free:"


async def test_the_worker_itself_can_be_debugged(tmp_path: Path) -> None:
    """py-spy, gdb and core dumps work as without a guard: the worker's exec gives it back what its guard gave up."""
    worker = ATTEMPTS + EPOCH + "if os.fork():\n    signal.pause()\ntried(os.getppid())\n"
    async with pod(tmp_path, worker, starter=CONTAINED) as group:
        await group.runs(1)
        assert await group.guard.noted("tried") == "free: pidfd_getfd fd root environ mem ptrace"


async def test_a_standby_does_nothing_between_two_epochs(tmp_path: Path) -> None:
    """One that says that it waits, and trains on with its children, is stopped from the worker's end to its release."""
    script = (
        "import inplace, threading\n"
        "if not os.environ['INPLACE_STANDBY'].startswith('tell') and os.fork() == 0:\n"
        "    os.setsid()\n"
        "    signal.alarm(20)\n"
        "    note('child')\n"
        "    while True: time.sleep(0.001)\n"
        "inplace.ready()\n"
        "note('epoch-' + os.environ['INPLACE_EPOCH'])\n"
        "for step in range(3): inplace.progress(step)\n"
    ) + RUN
    async with pod(tmp_path, script, "--standby", starter=CONTAINED) as group:
        worker = await main_of(group, 1)
        standby = await is_ready(group.guard)
        child = int(await group.guard.noted("child"))
        os.kill(worker, signal.SIGKILL)
        await until(lambda: len(group.server.requests("PATCH")) == 2, "the next announcement")
        assert {status_of(pid, "State")[0] for pid in group.guard.tree()} == {"T"}
        assert {standby, child} == set(group.guard.tree())
        assert await main_of(group, 2) == standby
        await until(lambda: status_of(child, "State")[0] != "T", "the standby's child to go on")
        group.guard.child.terminate()
        await group.guard.finished()
