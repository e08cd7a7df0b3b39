"""A guard with its own agent as a container's main process, with a real worker, against a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agent.process import COMMAND, environment, process
from tests.agent.scripted_server import ScriptedServer, Views, jobset

WAIT_S_MAX = 20.0  # a wait that takes longer has failed
KILLED_S_MAX = 1.0  # from SIGKILL to the end of a process
MARK = "INPLACE_TEST_TREE"
PRELUDE = """
import os, signal, sys, time
def note(name, text=""):
    with open(os.path.join(os.environ["NOTES"], name), "a") as file:
        file.write(f"{text or os.getpid()}\\n")
def daemon(run):  # fork twice and leave the session: nothing ties this process to the worker but its ancestry
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            run()
        os._exit(0)
    os.wait()
def linger():
    note("lingering")
    time.sleep(60)
signal.alarm(60)  # whatever becomes of the test, nothing outlives it by more; each child has its own bound
note("started", os.environ.get("INPLACE_EPOCH", "staged"))
"""

RUN = "note('main')\nsignal.pause()\n"
IDLE = "note('main')\nwhile True: time.sleep(1)\n"  # for a worker with a handler of its own
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nnote('main')\nwhile True: time.sleep(3600)\n"


@dataclass
class Supervised:
    """One supervisor with its server, worker and files."""

    folder: Path
    server: ScriptedServer
    child: asyncio.subprocess.Process
    views: Views
    limits: str | None = None
    saving: int | None = None  # the epoch whose workers are asked to save
    stacks: str | None = None  # the last request for stacks
    notices: list[dict[str, Any]] | None = None  # what other Pods tell
    patched: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def show(self, synced: int, deprecated: int) -> None:
        """Let the open watch show a status."""
        more = {"limits": self.limits, "saving": self.saving, "stacks": self.stacks, "notices": self.notices}
        self.views.show(synced, deprecated, **more)

    async def announced(self) -> int:
        """Wait for the next announcement; return its epoch."""
        self.patched += 1
        await self.server.until(lambda: len(self.server.requests("PATCH")) >= self.patched)
        return self.epochs()[self.patched - 1]

    def epochs(self) -> list[int]:
        """Return every epoch that was announced, in order."""
        return [int(annotations["jobset.sigs.k8s.io/epoch"]) for annotations in self.server.annotations]

    async def start(self, epoch: int = 1) -> None:
        """Let the group sync at `epoch`, and wait until the worker runs in it."""
        assert await self.announced() == epoch
        self.show(epoch, epoch - 1)
        await self.noted("started", epoch)

    async def noted(self, name: str, count: int = 1) -> list[str]:
        """Wait until the worker's processes wrote `count` lines to the file `name`; return them."""
        await until(lambda: len(self.notes(name)) >= count, f"{count} lines {name!r}")
        return self.notes(name)

    def notes(self, name: str) -> list[str]:
        """Return the complete lines of the file `name`."""
        path = self.folder / "notes" / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def tree(self) -> list[int]:
        """Return the processes of the worker's tree, without zombies; each has the test's mark in its environment."""
        return [pid for pid in marked(str(self.folder)) if not self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        """Say whether a process is the guard or its agent, which are in this session."""
        try:
            return os.getsid(pid) == os.getsid(0)
        except ProcessLookupError:
            return True

    async def finished(self) -> int:
        """Wait for the supervisor's exit, check that none of its processes is left, and return its code."""
        async with asyncio.timeout(WAIT_S_MAX):
            _, errors = await self.child.communicate()
        self.lines += [json.loads(line) for line in errors.decode().splitlines() if line.startswith("{")]
        await until(lambda: not self.tree(), "the end of its processes, which may still be dying", KILLED_S_MAX)
        assert self.child.returncode is not None
        return self.child.returncode

    async def terminated(self) -> int:
        """Send SIGTERM, as kubelet does, and see it `finished`."""
        self.child.terminate()
        return await self.finished()

    async def said(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the log has `count` lines of one event; return them."""
        assert self.child.stderr is not None
        async with asyncio.timeout(WAIT_S_MAX):
            while len(self.logged(event)) < count:
                line = await self.child.stderr.readline()
                assert line, f"expected {count} lines of {event!r}, saw the log's end"
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line))
        return self.logged(event)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return the log's lines of one event."""
        return [line for line in self.lines if line["event"] == event]


@asynccontextmanager
async def supervised(
    folder: Path,
    worker: str | list[str],
    *options: str,
    server: ScriptedServer | None = None,
    limits: str | None = None,
    stacks: str | None = None,
    **env: str,
) -> AsyncIterator[Supervised]:
    """Run `inplace-agent run` with a Python program, or a command, as its worker.

    Args:
        folder: of the worker's notes.
        worker: what it runs.
        options: of the supervisor.
        server: None is one that follows the `Supervised`.
        limits: of stalls, in the first view.
        stacks: a request for stacks that is there before the agent is.
        env: of the supervisor.
    """
    views = Views()
    (folder / "notes").mkdir(exist_ok=True)
    command = [sys.executable, "-c", PRELUDE + worker] if isinstance(worker, str) else worker
    async with server or ScriptedServer(lists=[jobset(0, rv=10, stacks=stacks)], watches=[(views.follow,)]) as running:
        own = {MARK: str(folder), "NOTES": str(folder / "notes")}
        async with process(
            environment(folder, running, **own, **env), *COMMAND, "run", *options, "--", *command
        ) as child:
            try:
                yield Supervised(folder, running, child, views, limits, stacks=stacks)
            finally:  # BEFORE the wait for the end of the output, which the worker holds open too
                with suppress(ProcessLookupError):
                    child.kill()
                # Twice: the first kill can miss a process that was being forked; the second finds it.
                await until(
                    lambda: not _killed(str(folder), child.pid) and not _killed(str(folder), child.pid),
                    "the end of the worker's processes",
                )


@asynccontextmanager
async def running(
    folder: Path,
    worker: str | list[str],
    *options: str,
    limits: str | None = None,
    stacks: str | None = None,
    **env: str,
) -> AsyncIterator[Supervised]:
    """Run `supervised`, bring its worker into the first epoch, and wait until its main process runs."""
    async with supervised(folder, worker, *options, server=None, limits=limits, stacks=stacks, **env) as group:
        await group.start()
        await group.noted("main")
        yield group


def _killed(mark: str, agent: int) -> list[int]:
    """Kill the remaining processes of a test, also those that fork meanwhile; return the ones found first."""
    found = [pid for pid in marked(mark) if pid != agent]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    return found


async def number_in(path: Path) -> int:
    """Wait until a process wrote a line with a number to a file; return it."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"), f"a line in {path}")
    return int(path.read_text())


async def until(holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S_MAX) -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(timeout_s):
            while not holds():  # noqa: ASYNC110 - files and /proc tell nobody
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"expected {what} within {timeout_s:g} s") from None


def status_of(pid: int, field: str) -> str:
    """Return a field of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))


def takes(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal. Before that, SIGTERM ends it without a word."""
    return bool(int(status_of(pid, "SigCgt"), 16) & 1 << (number - 1))


def marked(mark: str) -> list[int]:
    """Return the running worker processes of one test; a zombie has no environment and is left out."""
    wanted = f"{MARK}={mark}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # the process ended meanwhile, or belongs to another user
    return found


def main_of(group: Supervised) -> int:
    """Return the process id of the newest worker's main process."""
    return int(group.notes("main")[-1])


async def through_the_barrier(group: Supervised, epoch: int) -> None:
    """Wait for the announcement of `epoch`, let the group sync at it, and wait for the worker."""
    assert await group.announced() == epoch
    assert group.tree() == [], "something of the old worker was left when the next epoch was announced"
    group.show(epoch, epoch - 1)
    await group.noted("started", epoch)
