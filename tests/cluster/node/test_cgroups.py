"""Ending a node's processes by cgroup."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from testbed.node import cgroups

DYING_S = 0.3


def test_a_process_may_take_a_while_to_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the kernel frees a killed process later; killing waits for it."""
    began_s = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def members(_: str) -> Iterator[int]:
        if time.monotonic() - began_s > DYING_S:
            child.send_signal(signal.SIGKILL)
        yield child.pid

    monkeypatch.setattr(cgroups, "members", members)
    monkeypatch.setattr(cgroups, "_kill", lambda pid: None)
    cgroups.kill("/anything")
    assert child.wait(10.0) == -signal.SIGKILL
