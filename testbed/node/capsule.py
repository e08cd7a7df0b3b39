"""Run a command, and all it starts, where nothing can outlive it.

A cluster with nodes leaves traces everywhere: processes that belong to nobody, mounts, interfaces, routes, cgroups.
So the whole test run lives in PID, mount, network and IPC namespaces of its own. When its first process ends, however
it ends, the kernel kills the rest and drops every mount and interface. What namespaces do not cover, the cgroups and
the folder for files, this module makes and removes. Then it compares the machine with what it was before.

Inside: loopback is up, TMPDIR is the capsule's folder, and CAPSULE_CGROUP names the cgroup that everything stays below.

Usage: python -m testbed.node.capsule COMMAND [ARGUMENT ...]
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from images.build_once import MissingComponent, cache_dir
from testbed.node import cgroups, host
from testbed.node.traces import Traces

VARIABLE = "CAPSULE_CGROUP"
OWNERS = f"inplace-{Path('/proc/self/ns/pid').stat().st_ino}-"
"""Folders and cgroups are named after the outer process, and after the PID namespace that its number belongs to (a
capsule may hold another), so that a later run can tell whose they were."""

GONE_S_MAX = 10.0
"""From the end of the first process to that of the last: the kernel needs milliseconds, a busy disk some seconds."""

POLL_S = 0.02
LEAK = 86
"""The exit code of a run that passed and left something behind."""


def inside() -> bool:
    """Return whether this process runs in a capsule."""
    return VARIABLE in os.environ


def cgroup() -> str:
    """Return the path of the capsule's cgroup in every hierarchy, such as /inplace-1234."""
    return os.environ[VARIABLE]


def run(command: Sequence[str]) -> int:
    """
    Run the command in a new capsule and return its exit code, or LEAK when it succeeded and left something behind.

    Raises:
        MissingComponent: this machine cannot run nodes.
    """
    host.check()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with nullcontext() if inside() else _alone():
        return _run_alone(command)


@contextmanager
def _alone() -> Iterator[None]:
    """Wait for any other run on this machine: each would report the other's traces as left behind."""
    lock = cache_dir() / "capsule.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("capsule: waiting for another run on nodes to end", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run_alone(command: Sequence[str]) -> int:
    _sweep()
    before = Traces.seen()
    with _cgroups() as path, tempfile.TemporaryDirectory(prefix=f"{OWNERS}{os.getpid()}-") as scratch:
        code = _run(command, path, Path(scratch))
    left = Traces.seen().beyond(before)
    for line in left:
        print(f"capsule: left behind: {line}", file=sys.stderr)
    return code or (LEAK if left else 0)


def _run(command: Sequence[str], path: str, scratch: Path) -> int:
    words = (
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--net", "--ipc", "--"),
        *(sys.executable, "-m", __spec__.name, "--first", str(scratch), *command),
    )
    process = subprocess.Popen(words, env={**os.environ, VARIABLE: path})
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the terminal told the command too, which ends in its own time
                continue
    finally:  # when this process is told to end: the capsule ends with its first process
        process.kill()
        process.wait()


def _first(scratch: Path, command: Sequence[str]) -> int:
    """Be the capsule's first process: prepare it, run the command, reap orphans meanwhile."""
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    child = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


def _sweep() -> None:
    """Remove the cgroups and folders of capsules whose outer process was killed."""
    for path in cgroups.names(f"/{OWNERS}*"):
        if not Path("/proc", path.rpartition("-")[2]).exists():
            cgroups.remove(path)
    for folder in Path(tempfile.gettempdir()).glob(f"{OWNERS}*"):
        if not Path("/proc", folder.name.removeprefix(OWNERS).partition("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cgroups() -> Iterator[str]:
    """Make a cgroup in every hierarchy; end what is left in it and remove it and all below."""
    path = f"/{OWNERS}{os.getpid()}"
    cgroups.make(path)
    try:
        yield path
    finally:
        until_s = time.monotonic() + GONE_S_MAX
        while not cgroups.remove(path) and time.monotonic() < until_s:
            time.sleep(POLL_S)


def main() -> int:
    """Run the command line's command in a capsule; say what is missing and return 1 when there can be none."""
    match sys.argv[1:]:
        case ["--first", scratch, *command]:
            return abs(_first(Path(scratch), command))
        case [program, *arguments] if found := shutil.which(program):
            try:
                return run((found, *arguments))
            except MissingComponent as error:
                print(f"capsule: {error}", file=sys.stderr)
                return 1
        case words:
            print(f"capsule: expected a program and its arguments, saw {words}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
