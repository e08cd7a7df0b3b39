"""Ask the ranks of a real framework where they are, while they train and while one of them is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from inplace.agent.worker.stall_command import kill_tree
from tests.agent.worker.test_stacks import asked
from tests.frameworks.training import RUN_S_MAX

Answer = dict[str, Any]


class Training:
    """A launcher with two ranks that train until they are ended, and the lines that they print."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def steps(self, more: int) -> None:
        """Wait until the ranks have made so many steps more."""
        with self._news:
            wanted = self._steps() + more
            assert self._news.wait_for(lambda: self._steps() >= wanted or self._child.poll() is not None, RUN_S_MAX)
            assert self._child.poll() is None, self.said

    def mains(self) -> list[Answer]:
        """Ask; return the main thread of each rank."""
        lines, _ = asked(self._child.pid)
        return [line for line in lines if line["thread"] == "main"]

    def end(self) -> None:
        """End it."""
        kill_tree(self._child.pid)  # a launcher's ranks have sessions of their own
        self._child.wait()
        self._reader.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _steps(self) -> int:
        return sum(line.startswith("step=") for line in self.said)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._news:
                self.said.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def ask_ranks(command: Sequence[str], env: Mapping[str, str], names: Sequence[str]) -> list[Answer]:
    """Ask ranks that train ten times, and once with the last rank stopped; all go on. Return that last answer.

    Args:
        command: of the launcher.
        env: its whole environment.
        names: of the ranks, in order.
    """
    training = Training(command, env)
    try:
        training.steps(2)
        for _ in range(10):
            mains = training.mains()
            seen = [(main["rank"], main["by"]) for main in mains]
            assert seen == [(name, "faulthandler") for name in names], (mains, training.said[-20:])
        training.steps(2)
        os.kill(mains[-1]["pid"], signal.SIGSTOP)
        waiting = training.mains()
        os.kill(mains[-1]["pid"], signal.SIGCONT)
        training.steps(4)
        return waiting
    finally:
        training.end()
