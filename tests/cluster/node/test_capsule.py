"""No process outlives a capsule, however it ends; a leftover would be named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from images.build_once import MissingComponent
from testbed.node import cgroups, host
from testbed.node.capsule import LEAK, OWNERS
from testbed.node.traces import Traces

CAPSULE = (sys.executable, "-m", "testbed.node.capsule")
MESS = """
ip link add mess0 type bridge && ip addr add 10.99.0.1/24 dev mess0 && ip link set mess0 up
mkdir "$TMPDIR/mess" && mount -t tmpfs mess "$TMPDIR/mess"
for h in /sys/fs/cgroup/*/cgroup.procs; do mkdir "$(dirname $h)$CAPSULE_CGROUP/below"; done
setsid sleep 1000 & echo $! > /sys/fs/cgroup/pids$CAPSULE_CGROUP/below/cgroup.procs
echo messy
"""


@pytest.fixture(autouse=True)
def root() -> None:
    """Skip where no capsule can be made."""
    try:
        host.check()
    except MissingComponent as error:
        pytest.skip(str(error))


def test_processes_mounts_interfaces_and_cgroups_end_with_it() -> None:
    """The processes, mounts, interfaces and cgroups of a command end with its capsule."""
    before = Traces.seen()
    done = subprocess.run((*CAPSULE, "sh", "-ec", MESS), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "messy\n", "")
    assert Traces.seen().beyond(before) == []


def test_its_exit_code_is_the_commands() -> None:
    """A capsule's exit code is its command's."""
    assert subprocess.run((*CAPSULE, "sh", "-c", "exit 7"), check=False).returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_killed_takes_everything_along(number: int) -> None:
    """SIGTERM cleans up at once; after SIGKILL no process is left, and the next capsule removes the rest."""
    with subprocess.Popen((*CAPSULE, "sh", "-ec", f"{MESS}\nsleep 1000"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ours = f"/{OWNERS}{process.pid}"
        assert list(cgroups.members(ours))
        process.send_signal(number)
        process.stdout.read()  # ends when the last process that holds it does
    if number == signal.SIGKILL:
        subprocess.run((*CAPSULE, "true"), check=True)
    assert ours not in cgroups.names("/inplace-*")
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{OWNERS}{process.pid}-*"))


def test_what_is_left_behind_is_named() -> None:
    """A command can leave only a cgroup outside the capsule's own; the run fails and names it."""
    left = f"inplace-{os.getpid()}-left"
    words = ("sh", "-c", f"mkdir /sys/fs/cgroup/pids/{left}")
    done = subprocess.run((*CAPSULE, *words), capture_output=True, text=True, check=False)
    cgroups.remove(f"/{left}")
    assert done.returncode == LEAK
    assert f"left behind: cgroup /sys/fs/cgroup/pids/{left}" in done.stderr


def test_a_machine_that_lacks_something_is_told_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One message names the packages of all missing programs, as a command."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingComponent, match=r"apt-get install --no-install-recommends .*buildah.*debootstrap"):
        host.check()


def test_a_machine_that_refuses_what_a_node_begins_with_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Root in a container may lack rights to mount and make devices; each is named BEFORE the build."""
    for controller in host.CONTROLLERS:
        (tmp_path / controller).symlink_to("/proc/self")  # takes no folder
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    assert [problem[:24] for problem in host._refusals()] == ["expected to make cgroups"] * len(host.CONTROLLERS)
