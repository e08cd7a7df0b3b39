from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.container_log import ContainerLog
from inplace.simulator.cluster.processes import MARKER, LocalProcess
from inplace.simulator.cluster.runtime import StartError

pytestmark = pytest.mark.asyncio


class Box:
    """Starts processes in a temporary folder and collects their lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[bytes] = []
        self.marker = f"{folder.name}-{os.getpid()}"

    def start(self, program: str) -> LocalProcess:
        """Start a Python program."""
        return self.start_command([sys.executable, "-S", "-u", "-c", textwrap.dedent(program)])

    def start_command(self, command: list[str]) -> LocalProcess:
        """Start a command."""
        return LocalProcess(
            command,
            {"PATH": os.environ["PATH"]},
            self.folder,
            marker=self.marker,
            pod_ip="127.0.0.1",
            log=ContainerLog(self.folder / "log", time.time),
            on_line=self.lines.append,
            clock=LoopClock(),
        )

    def left(self) -> list[int]:
        """Return the processes that carry the marker."""
        return reaper.marked(f"{MARKER}={self.marker}")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Return a place for processes."""
    return Box(tmp_path)


async def test_output_and_exit_code_are_kept(box: Box) -> None:
    """Everything printed, also just before the end, is in the log, and the exit code is the process's own."""
    process = box.start("print('one'); print('two', end=''); raise SystemExit(7)")
    assert await process.wait() == 7
    assert (box.folder / "log").read_bytes() == b"one\ntwo"
    assert box.lines == [b"one", b"two"]


async def test_a_signal_shows_as_128_plus_its_number(box: Box) -> None:
    """A worker killed with SIGKILL ends with 137."""
    process = box.start("import time; time.sleep(60)")
    process.signal(signal.SIGKILL)
    assert await process.wait() == 137


async def test_descendants_die_with_the_main_process(box: Box) -> None:
    """A grandchild in a session of its own is gone when wait() returns."""
    process = box.start(
        """
        import subprocess, sys
        sleep = "import time; time.sleep(60)"
        command = [sys.executable, "-S", "-c", sleep]
        start = f"import subprocess; subprocess.Popen({command!r}, start_new_session=True)"
        child = f"{start}; print('up', flush=True); {sleep}"
        subprocess.Popen([*command[:3], child], stdout=subprocess.PIPE).stdout.readline()
        """
    )
    assert await process.wait() == 0
    assert box.left() == []


async def test_stop_asks_first_and_kills_after_the_grace(box: Box) -> None:
    """A process that ignores SIGTERM ends with 137 after the grace, one that obeys with its own code."""
    deaf = box.start("import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)")
    while not box.lines:
        await LoopClock().sleep(0.01)
    await deaf.stop(0.05)
    assert await deaf.wait() == 137
    polite = box.start("import time; time.sleep(60)")
    await polite.stop(10)
    assert await polite.wait() == 143


async def test_a_command_that_does_not_exist_is_a_start_error(box: Box) -> None:
    """The message names the command; nothing is left open."""
    with pytest.raises(StartError, match="no-such-command"):
        box.start_command(["no-such-command"])
