"""What a guard has of its host: the order of ends, and what happens when something does not end."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.worker import process_tree
from inplace.agent.worker.host import WorkerHost
from inplace.agent.worker.process_tree import kill_descendants
from tests.agent.rig import NotedLog

WAIT_S = 20.0
SLEEPS = ("/bin/sh", "-c", "exec sleep 1260")


class Owner:
    """Drives a host by poll, and notes what it hears."""

    def __init__(self, options: WorkerOptions) -> None:
        self.heard: list[tuple[str, object]] = []
        self.log = NotedLog()
        self._readers: dict[int, Callable[[], object]] = {}
        self.host = WorkerHost(options, {"PATH": os.environ["PATH"]}, owner=self, readers=self, log=self.log)

    def worker_exited(self, code: int) -> None:
        """Note it."""
        self.heard.append(("exited", code))

    def worker_gone(self, *, entirely: bool) -> None:
        """Note it."""
        self.heard.append(("gone", entirely))

    def pod_checked(self, unfit: str) -> None:
        """Note it."""
        self.heard.append(("checked", unfit))

    def worker_examined(self, problem: str) -> None:
        """Note it."""
        self.heard.append(("examined", problem))

    def agent_ended(self, code: int) -> None:
        """Note it."""
        self.heard.append(("agent", code))

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Call back in `until`."""
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        """Do so no more."""
        del self._readers[fd]

    def until(self, holds: Callable[[], bool]) -> None:
        """Drive the host until something holds; it reaps every few milliseconds instead of at SIGCHLD."""
        give_up_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < give_up_s, self.heard
            poll = select.poll()
            for fd in self._readers:
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll(5):
                self._readers[fd]()
            self.host.reap()
            self.host.go_on()


@pytest.fixture(autouse=True)
def _adopts_orphans() -> Iterator[None]:
    """Be the reaper, as a parent of workers is; leave no process."""
    process_tree.become_reaper()
    yield
    while kill_descendants():
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def test_the_end_is_told_before_the_end_of_the_rest(tmp_path: Path) -> None:
    """And what left the worker's session is gone when the host says so."""
    left = f"setsid sleep 1261 & echo $! > {tmp_path}/left; exit 7"
    owner = Owner(WorkerOptions(("/bin/sh", "-c", left)))
    owner.host.start({})
    owner.until(lambda: len(owner.heard) == 2)
    assert owner.heard == [("exited", 7), ("gone", True)]
    assert not Path(f"/proc/{(tmp_path / 'left').read_text().strip()}").exists()
    assert owner.host.due_s() is None


def test_a_worker_starts_when_nothing_of_a_check_is_left(tmp_path: Path) -> None:
    """A lift that comes while the check runs ends it; its processes may hold the devices that the worker wants."""
    check = f"setsid sleep 1262 & echo $! > {tmp_path}/left; wait"
    owner = Owner(WorkerOptions(SLEEPS, before_announce=check))
    owner.host.check()
    owner.until(lambda: (tmp_path / "left").exists() and (tmp_path / "left").read_text().endswith("\n"))
    owner.host.start({})
    assert not Path(f"/proc/{(tmp_path / 'left').read_text().strip()}").exists()
    assert (owner.heard, len(owner.log.of("check_killed"))) == ([], 1)
    owner.host.signal(signal.SIGKILL)
    owner.until(lambda: len(owner.heard) == 2)


def test_what_survives_sigkill_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs in a driver. After STUCK_S the worker is not entirely gone, and a check makes its Pod unfit."""
    monkeypatch.setattr(process_tree, "STUCK_S", 0.1)
    monkeypatch.setattr(process_tree, "kill_descendants", lambda _spared=(): 1)
    worker = ("/bin/sh", "-c", "setsid sleep 1263 & sleep 0.2; exit 3")
    owner = Owner(WorkerOptions(worker, before_announce="setsid sleep 1264 & sleep 0.2"))
    owner.host.start({})
    owner.until(lambda: len(owner.heard) == 2)
    assert owner.heard == [("exited", 3), ("gone", False)]
    owner.host.check()
    owner.until(lambda: len(owner.heard) == 3)
    assert owner.heard[2] == ("checked", "the check before the announcement failed: its processes survive SIGKILL")


def test_one_command_looks_at_a_worker_at_a_time(tmp_path: Path) -> None:
    """With the worker's environment; without a worker there is nothing to look at."""
    command = f'echo "$INPLACE_EPOCH $INPLACE_STALL_SILENT_S" > {tmp_path}/said'
    owner = Owner(WorkerOptions(SLEEPS, on_stall=command))
    owner.host.examine(None, 12.4)
    owner.host.start({"INPLACE_EPOCH": "3"})
    owner.host.examine(None, 12.4)
    owner.host.examine(None, 12.4)
    owner.until(lambda: len(owner.heard) == 3)
    assert [problem for _, problem in owner.heard] == ["the worker ended before", "it runs already", ""]
    assert (tmp_path / "said").read_text() == "3 12\n"
    owner.host.end()
    owner.until(lambda: len(owner.heard) == 5)
    assert owner.heard[3:] == [("exited", 137), ("gone", True)]
