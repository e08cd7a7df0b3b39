"""`inplace-agent guard`: a real process and its worker's process tree, beside the agent's end of the link."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from inplace.cli.logs.lines import LogCutter, LogLine
from inplace.common.kube.clock import LoopClock
from tests.agent.process import ROOT, modules_loaded_by, process
from tests.agent.rig import ContainersLink
from tests.agent.supervisor_rig import DEAF, MARK, PRELUDE, RUN, marked, takes, until
from tests.agent.test_start_path import FORBIDDEN, rss_mb

GUARD = (sys.executable, "-m", "inplace.agent", "guard")
AT_ONCE_S = 1.0  # far less than a grace period, far more than a busy machine needs
RSS_MB_MAX = 13.0  # 12 and a bit


@asynccontextmanager
async def agent_at(path: Path, *, clock: LoopClock | None = None, checks: int = 0) -> AsyncIterator[ContainersLink]:
    """Serve the link."""
    agent = ContainersLink(path, clock=clock, checks=checks)
    await agent.prepare()
    try:
        yield agent
    finally:
        await agent.close()


@dataclass
class Guarded:
    """One guard and its worker."""

    folder: Path
    child: asyncio.subprocess.Process

    async def noted(self, name: str) -> str:
        """Return the first line that the worker noted under a name."""
        path = self.folder / "notes" / name
        await until(lambda: path.exists() and path.read_text().endswith("\n"), f"a note {name!r}")
        return path.read_text().splitlines()[0]

    def tree(self) -> list[int]:
        """Return the processes of the worker's tree."""
        return [pid for pid in marked(str(self.folder)) if pid != self.child.pid]

    async def finished(self) -> tuple[int, str]:
        """Return the exit code and what the guard said."""
        async with asyncio.timeout(20):
            _, errors = await self.child.communicate()
        assert self.tree() == [], "something of the worker outlived its guard"
        return self.child.returncode or 0, errors.decode()


@asynccontextmanager
async def guarded(
    folder: Path, worker: str | list[str], *options: str, starter: Sequence[str] = (), **more: str
) -> AsyncIterator[Guarded]:
    """Run a guard with a Python program, or a command, as its worker.

    Args:
        folder: of the link and the notes.
        worker: what it runs.
        options: of the guard.
        starter: a command that turns into the guard.
        more: of its environment.
    """
    (folder / "notes").mkdir(exist_ok=True)
    command = [sys.executable, "-c", PRELUDE + worker] if isinstance(worker, str) else worker
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "LINK_FILE": str(folder / "link"),
        MARK: str(folder),
        "NOTES": str(folder / "notes"),
    }
    async with process(env | more, *starter, *GUARD, *options, "--", *command) as child:
        yield Guarded(folder, child)


@asynccontextmanager
async def working(
    folder: Path, worker: str, *options: str, **more: str
) -> AsyncIterator[tuple[ContainersLink, Guarded]]:
    """Run a guard beside the link, lift its worker into epoch 3, and wait until its main process runs."""
    async with agent_at(folder / "link") as agent, guarded(folder, worker, *options, **more) as group:
        agent.lift(3)
        await group.noted("main")
        yield agent, group


@pytest.mark.asyncio
@pytest.mark.parametrize("guard_first", [True, False])
async def test_the_worker_starts_with_the_lift(tmp_path: Path, guard_first: bool) -> None:
    """Not before; whichever of agent and guard is there first. Its code is the container's, and the agent hears it."""
    worker = "note('epoch', os.environ['INPLACE_EPOCH'] + ' ' + os.environ['INPLACE_RESTART_COUNT']); sys.exit(7)"
    async with guarded(tmp_path, worker) as group:
        await asyncio.sleep(0.2 if guard_first else 0.0)
        async with agent_at(tmp_path / "link") as agent:
            if guard_first:
                await asyncio.sleep(0.2)
                assert group.tree() == []
            agent.lift(3)
            assert await group.noted("epoch") == "3 2"
            assert (await group.finished())[0] == 7
            await until(lambda: bool(agent.deaths), "the death on the link")
            assert agent.deaths == [(3, 7)]


@pytest.mark.asyncio
async def test_the_mark_of_an_epoch_stands_before_the_worker_s_first_line(tmp_path: Path) -> None:
    """`inplace logs --epoch` cuts the container's log there."""
    worker = "print('first words', file=sys.stderr)"
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, worker) as group:
        agent.lift(3)
        _, said = await group.finished()
    before, words, _ = said.partition("first words")
    assert words
    assert cut(before)[-1].epoch == 3


def cut(printed: str) -> list[LogLine]:
    """Return the lines of a container's log as `inplace logs` reads them."""
    return list(
        LogCutter().feed(b"".join(b"2026-01-01T00:00:00Z %b\n" % line.encode() for line in printed.splitlines()))
    )


@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "deaths"), [(0, []), (42, []), (41, [(3, 41)])])
async def test_a_final_code_is_no_failure(tmp_path: Path, code: int, deaths: list[tuple[int, int]]) -> None:
    """0 is a completion, and the codes of --fail-on are the Job's affair."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, f"sys.exit({code})", "--fail-on", "42") as group:
        agent.lift(3)
        assert (await group.finished())[0] == code
        await asyncio.sleep(0.05)
        assert agent.deaths == deaths
        assert agent.completed() == (code == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="a guard's variables are open to root alone")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C", "LD_LIBRARY_PATH": "/x"}]
)
async def test_the_worker_has_its_containers_environment(tmp_path: Path, given: dict[str, str]) -> None:
    """It has its epoch and its folder beside it, and nothing else.

    In the locale C, Python sets LC_CTYPE for itself (PEP 538).
    """
    worker = ["/bin/sh", "-c", 'cp /proc/$$/environ "$NOTES/environ.new"; mv "$NOTES/environ.new" "$NOTES/environ"']
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, worker, **given) as group:
        environ = Path(f"/proc/{group.child.pid}/environ")
        await until(lambda: environ.read_bytes() != b"", "the end of the guard's exec")
        container = environ.read_bytes()
        agent.lift(3)
        assert (await group.finished())[0] == 0
        seen = (tmp_path / "notes" / "environ").read_bytes()
        folder = os.fsencode(tmp_path / "progress")
        own = {b"INPLACE_EPOCH=3", b"INPLACE_RESTART_COUNT=2", b"INPLACE_PROGRESS_DIR=" + folder}
        own |= {b"TORCHELASTIC_ERROR_FILE=" + folder + b"/.torchelastic.error"}
        assert set(seen.split(b"\0")) - set(container.split(b"\0")) == own
        assert set(container.split(b"\0")) <= set(seen.split(b"\0"))


@pytest.mark.asyncio
async def test_an_agent_that_leaves_ends_the_worker_at_once(tmp_path: Path) -> None:
    """Its children as well, also those in another session."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, "daemon(linger)\n" + RUN) as group:
        agent.lift(3)
        await group.noted("lingering")
        began_s = time.monotonic()
        agent.leave()
        code, said = await group.finished()
        assert time.monotonic() - began_s < AT_ONCE_S
        assert (code, agent.deaths) == (143, [])
        assert "the agent left" in said


@pytest.mark.asyncio
async def test_an_agent_that_is_killed_ends_the_worker(tmp_path: Path) -> None:
    """The end of the connection says the same; a worker that takes no signal is killed after its grace."""
    async with working(tmp_path, DEAF, "--grace", "0.2") as (agent, group):
        await agent.close()
        code, said = await group.finished()
        assert code == 137
        assert "did not end within 0.2 s" in said


@pytest.mark.asyncio
async def test_a_guard_that_is_killed_is_a_death_without_a_code(tmp_path: Path) -> None:
    """As when the memory of its container runs out; and the kernel ends the worker."""
    async with working(tmp_path, RUN) as (agent, group):
        group.child.kill()
        await until(lambda: bool(agent.deaths), "the death on the link")
        assert agent.deaths == [(3, None)]
        await until(lambda: group.tree() == [], "the worker's end")


@pytest.mark.asyncio
async def test_the_end_of_the_pod_is_no_death(tmp_path: Path) -> None:
    """Kubelet's SIGTERM is passed on; the worker's own code is the container's."""
    worker = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n" + RUN
    async with working(tmp_path, worker) as (agent, group):
        group.child.send_signal(signal.SIGTERM)
        assert (await group.finished())[0] == 9
        await asyncio.sleep(0.05)
        assert agent.deaths == []


@pytest.mark.asyncio
async def test_a_signal_ends_a_guard_that_waits(tmp_path: Path) -> None:
    """A Pod that is deleted at the barrier does not wait for its grace period."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, RUN) as group:
        await until(lambda: takes(group.child.pid, signal.SIGTERM), "a handler")
        group.child.send_signal(signal.SIGTERM)
        assert (await group.finished())[0] == 143
        assert agent.deaths == []


@pytest.mark.asyncio
async def test_other_signals_reach_the_worker(tmp_path: Path) -> None:
    """SIGUSR1 and its like are for the worker."""
    worker = "signal.signal(signal.SIGUSR1, lambda *_: note('usr1'))\nnote('main')\nwhile True: time.sleep(1)\n"
    async with working(tmp_path, worker) as (agent, group):
        group.child.send_signal(signal.SIGUSR1)
        await group.noted("usr1")
        agent.leave()
        await group.finished()


@pytest.mark.asyncio
async def test_a_worker_that_closes_everything_and_forks_away_is_still_guarded(tmp_path: Path) -> None:
    """It has no descriptor of the link, and its children are found as descendants."""
    worker = "os.closerange(0, 256)\ndaemon(linger)\n" + RUN
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, worker) as group:
        agent.lift(3)
        left = int(await group.noted("lingering"))
        assert left in group.tree()
        agent.leave()
        assert (await group.finished())[0] == 143


@pytest.mark.asyncio
async def test_a_guard_outlives_agents_before_the_lift(tmp_path: Path) -> None:
    """An agent that restarts while the group waits is followed by another; the socket it left is replaced."""
    async with guarded(tmp_path, "sys.exit(5)") as group:
        for _ in range(2):
            async with agent_at(tmp_path / "link"):
                await asyncio.sleep(0.1)
        async with agent_at(tmp_path / "link") as agent:
            agent.lift(2)
            assert (await group.finished())[0] == 5


@pytest.mark.asyncio
async def test_a_peer_that_talks_nonsense_starts_nothing(tmp_path: Path) -> None:
    """It is no agent: the guard says so, and waits for one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"inplace-link 1\nlifted three\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "link"))
    async with server, guarded(tmp_path, RUN) as group:
        assert group.child.stderr is not None
        assert b"expected a line of the link" in await group.child.stderr.readline()
        assert group.tree() == []
        group.child.terminate()
        await group.finished()


@pytest.mark.asyncio
async def test_a_guard_is_small(tmp_path: Path) -> None:
    """It stays beside every worker."""
    async with working(tmp_path, RUN) as (agent, group):
        assert rss_mb(group.child.pid) <= RSS_MB_MAX
        agent.leave()
        await group.finished()


def test_it_loads_nothing_heavy() -> None:
    """It is made while the group waits, on a node that makes all other containers at that moment, too."""
    loaded = modules_loaded_by(
        "import inplace.agent.main, inplace.agent.settings.arguments as a, inplace.agent.guard as g;"
        "from inplace.common.protocol.link import *; LineReader().feed(line_of(Hello()) + line_of(Lifted(3)));"
        "a.parse(['guard', '--', 'true'], {})"
    )
    dear = FORBIDDEN | {"asyncio", "collections", "contextlib", "enum", "functools", "json", "re", "signal", "socket"}
    assert loaded & dear == set()


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["guard", "run"])
async def test_its_command_line_says_nothing_of_its_worker(tmp_path: Path, command: str) -> None:
    """A launch script that ends leftovers by name, as `pkill -f train.py` does, does not end the worker's parent."""
    worker = [sys.executable, "-c", "import time; time.sleep(60)", "train.py", ""]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LINK_FILE": str(tmp_path / "link")}
    options = ["--grace", "5"]
    async with process(env, sys.executable, "-m", "inplace.agent", command, *options, "--", *worker) as child:
        line = Path(f"/proc/{child.pid}/cmdline")
        left = [command.encode(), b"--grace", b"5", b"--"]  # who reads it while it changes sees nothing
        await until(lambda: line.read_bytes().rstrip(b"\0").split(b"\0")[-4:] == left, "one without the worker's")
