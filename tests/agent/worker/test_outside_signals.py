"""A Pod's end by any signal is no completion and no failure; an ordinary signal is the worker's affair alone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from inplace.agent.worker.outside_signals import ENDS_WITHIN_S
from inplace.common.wire.stop_signal import signal_name, signal_number
from tests.agent.process import ROOT, process
from tests.agent.supervisor_rig import IDLE, PRELUDE, running, until
from tests.agent.test_guard import GUARD, agent_at, working
from tests.agent.test_process_depth import pod

SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM, signal.SIGABRT, signal.SIGRTMIN + 3)


def saves_on(number: int) -> str:
    """Return a worker that saves on a signal, and exits with 0."""
    return f"signal.signal({int(number)}, lambda *_: (note('saved'), sys.exit(0)))\n{IDLE}"


@pytest.mark.asyncio
@pytest.mark.parametrize("number", SIGNALS, ids=signal_name)
async def test_a_guarded_worker_that_saves_and_exits_0_did_not_complete(tmp_path: Path, number: int) -> None:
    """The signal reaches the worker; the Job sees 128 + n, and the agent hears of no death."""
    async with working(tmp_path, saves_on(number)) as (agent, group):
        group.child.send_signal(number)
        assert (await group.finished())[0] == 128 + number
        assert (tmp_path / "notes" / "saved").exists()
        assert agent.deaths == []


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT], ids=signal_name)
async def test_a_pod_that_ends_gets_no_other_worker(tmp_path: Path, number: int) -> None:
    """In depth `process` a worker that dies of the signal is not started again, and its agent tells of no failure."""
    async with pod(tmp_path, "note('epoch-' + os.environ['INPLACE_EPOCH'])\nsignal.pause()\n") as group:
        await group.runs(1)
        group.guard.child.send_signal(number)
        assert (await group.guard.finished())[0] == 128 + number


@pytest.mark.asyncio
async def test_a_log_rotation_harms_nobody(tmp_path: Path) -> None:
    """A worker that handles SIGUSR1 and goes on completes with 0, later; below guard and supervisor alike."""
    rotates = "signal.signal(signal.SIGUSR1, lambda *_: note('rotated'))\nnote('main')\n"
    rotates += "while not os.path.exists(os.environ['NOTES'] + '/rotated'): time.sleep(0.01)\n"
    rotates += f"time.sleep({ENDS_WITHIN_S + 0.2})\n"

    async def below_a_guard(folder: Path) -> None:
        async with working(folder, rotates) as (_, group):
            group.child.send_signal(signal.SIGUSR1)
            assert (await group.finished())[0] == 0

    async def below_a_supervisor(folder: Path) -> None:
        async with running(folder, rotates) as group:
            group.child.send_signal(signal.SIGUSR1)
            assert await group.finished() == 0

    for folder in (guards := tmp_path / "guard", supervisors := tmp_path / "supervisor"):
        folder.mkdir()
    await asyncio.gather(below_a_guard(guards), below_a_supervisor(supervisors))


OUTSIDE = """
import sys, os, signal, time
sys.path.insert(0, %r)
import inplace.agent.worker.outside_signals as outside
own = outside.OutsideSignals()
print("ready", flush=True)
for number, ends in own.read():
    print(int(number), ends, flush=True)
os.kill(os.getpid(), signal.SIGUSR2)
"""


@pytest.mark.asyncio
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as making a PID namespace does")
async def test_a_signal_from_outside_of_the_pid_namespace_ends_the_pod(tmp_path: Path) -> None:
    """As kubelet's, whichever it is and however long the worker takes; one from inside does not."""
    program = OUTSIDE % str(Path(__file__).parents[3])
    program = program.replace("for number", "while True:\n  for number").replace("    print(int", "      print(int")
    program = program.replace("os.kill(os", "  os.kill(os")
    command = ("unshare", "--pid", "--fork", sys.executable, "-c", program)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=dict(os.environ))
    assert child.stdout is not None
    try:
        assert await child.stdout.readline() == b"ready\n"
        inner = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0])
        os.kill(inner, signal.SIGUSR1)
        assert await child.stdout.readline() == b"%d True\n" % signal.SIGUSR1
        assert await child.stdout.readline() == b"%d False\n" % signal.SIGUSR2
    finally:
        os.kill(inner, signal.SIGKILL)
        await child.wait()


@pytest.mark.asyncio
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as making a PID namespace does")
async def test_a_guard_that_is_process_1_knows_kubelets_signal_by_its_sender(tmp_path: Path) -> None:
    """No option names SIGUSR1, and the worker takes longer to save than a signal from inside would be remembered."""
    slow = f"signal.signal(signal.SIGUSR1, lambda *_: (note('told'), time.sleep({ENDS_WITHIN_S + 0.5}), sys.exit(0)))\n"
    (tmp_path / "notes").mkdir()
    own = {"LINK_FILE": str(tmp_path / "link"), "NOTES": str(tmp_path / "notes"), "PYTHONPATH": str(ROOT)}
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    command = (*unshare, *GUARD, "--", sys.executable, "-c", PRELUDE + slow + IDLE)
    async with agent_at(tmp_path / "link") as agent, process({"PATH": os.environ["PATH"]} | own, *command) as child:
        agent.lift(3)
        await until((tmp_path / "notes" / "main").exists, "the worker")
        inner = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())
        os.kill(inner, signal.SIGUSR1)
        async with asyncio.timeout(20):
            await child.wait()
        assert (child.returncode, (tmp_path / "notes" / "told").exists()) == (128 + signal.SIGUSR1, True)
        assert agent.deaths == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("SIGUSR1", 10), ("usr1", 10), ("3", 3), ("SIGRTMIN+3", 37), ("SIGRTMAX-14", 50), ("SIGRTMIN", 34)]
    + [
        (bad, 0)
        for bad in ("", "SIGKILL", "9", "SIGSTOP", "SIGFOO", "SIGRTMIN+99", "SIGUSR1+1", "0", "33", "-1", "x" * 9999)
    ],
)
def test_names_of_signals(text: str, number: int) -> None:
    """As Kubernetes and images spell them; 0 for what nobody can pass on."""
    assert signal_number(text) == number


@pytest.mark.asyncio
async def test_a_full_log_pipe_stands_between_no_signal_and_the_worker(tmp_path: Path) -> None:
    """Nobody reads the log: guard and supervisor pass SIGTERM on all the same, and end."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: (note('told'), os._exit(0)))\nos.set_blocking(2, False)\n"
    for size in (4096, 1):
        worker += f"try:\n  while True: os.write(2, b'x' * {size})\nexcept BlockingIOError: pass\n"
    worker += f"os.set_blocking(2, True)\n{IDLE}"
    async with working(tmp_path, worker) as (agent, group):
        agent.leave()
        await group.noted("told")
        await until(lambda: not group.tree(), "the worker's end")
        assert (await group.finished())[0] == 143
    folder = tmp_path / "supervisor"
    folder.mkdir()
    async with running(folder, worker) as supervisor:
        supervisor.child.terminate()
        await supervisor.noted("told")
        assert await supervisor.finished() == 143
