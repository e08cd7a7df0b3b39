"""
Hold the next run's process ready: it starts while the present worker runs, imports, and waits in `inplace.ready`.

It belongs to no epoch until `start` releases it. Nothing tells a process that imports from one that trains. So a
command is started early only when its own process has called `inplace.ready` in this very run. A standby that has not
done so when the present worker ends is killed with it. So the announcement's promise holds: what is left waits.

While it imports, the process runs in turns: SIGSTOP and SIGCONT. A lower priority could not be taken back without
CAP_SYS_NICE. docs/adr/0068
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from inplace.agent.exit_code import StartError
from inplace.agent.log import Log
from inplace.agent.metrics import AgentMetrics
from inplace.agent.process_tree import descendants, kill_adopted
from inplace.agent.stall_command import kill_tree
from inplace.agent.worker_command import EPOCH
from inplace.common.kube.clock import Clock
from inplace.common.typed import Final

VARIABLE: Final = "INPLACE_STANDBY"  # inplace/standby.py has the other end
STEPS_S_MAX: Final = 60.0
"""The standby of a worker that tells no steps starts so long after it was ready: most have compiled and made steps by
then. A worker that fails sooner fails at its start, where another process's imports would only slow it down."""
READY_S_MAX: Final = 300.0  # imports of 30 s take 2 minutes in turns; what takes longer hangs, or trains
TURN_S: Final = 0.02
PAUSE_S: Final = 0.06
"""A quarter of one thread's time, and no step of the worker waits longer than a turn for a core."""
MESSAGE_BYTES_MAX: Final = 32
MESSAGES_MAX: Final = 64  # of one process and its children; what comes after is not read


class Channel:
    """The agent's end of one process's socket.

    Args:
        word: `tell` for a worker, `wait` for a standby.
    """

    def __init__(self, word: str) -> None:
        self._end, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs.set_inheritable(True)
        self._left = MESSAGES_MAX
        self._place = f"{self._theirs.fileno()}:{os.fstat(self._theirs.fileno()).st_ino}"
        self.variable = {VARIABLE: f"{word}:{self._place}"}
        self.pid = 0
        self.stranger = 0  # another process that called ready
        self.news = asyncio.Event()  # there was a message
        self.is_ready = False
        self.has_stepped = False

    def open(self, pid: int) -> None:
        """Listen to process `pid`, which has its end."""
        self.pid = pid
        self._theirs.close()
        asyncio.get_running_loop().add_reader(self._end, self.read)

    def read(self) -> None:
        """Take in what there is."""
        if self._end.fileno() < 0:
            return
        for _ in range(self._left):
            try:
                message = self._end.recv(MESSAGE_BYTES_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                break
            if not message:
                break
            self._left -= 1
            self._take(message)
        asyncio.get_running_loop().remove_reader(self._end)

    def _take(self, message: bytes) -> None:
        what, _, pid = message.partition(b" ")
        if what == b"stepped":
            self.has_stepped = True
        elif what == b"ready" and pid == b"%d" % self.pid:
            self.is_ready = True
        elif what == b"ready" and pid.isdigit():
            self.stranger = int(pid)
        self.news.set()

    def release(self, env: Mapping[str, str]) -> bool:
        """Let the process go with these variables; say whether it was still there."""
        variables = {**env, VARIABLE: f"tell:{self._place}"}
        release = b"\0".join(os.fsencode(f"{name}={value}") for name, value in variables.items())
        try:
            self._end.send(release, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Hang up: a process that waits ends."""
        self._theirs.close()
        if self._end.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._end)
            self._end.close()


class Standby:
    """One Pod's standby, run after run."""

    def __init__(self, *, clock: Clock, log: Log, metrics: AgentMetrics) -> None:
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._worker: Channel | None = None  # of the process that runs
        self._held: Channel | None = None  # of the process that is held
        self._problem = ""  # why the held process was killed

    def start(self, spawn: Callable[[Mapping[str, str]], int], env: Mapping[str, str]) -> int:
        """Release the process that is held, or start one; return its id.

        Raises:
            WorkerStartError: the command cannot be executed.
        """
        held, self._held = self._held, None
        self._metrics.standby_rss_bytes = 0
        if held is not None and held.release(env):
            _signal(held.pid, signal.SIGCONT)  # whoever stopped it
            held.has_stepped = False
            self._worker = held
            self._log.info("standby_released", epoch=int(env[EPOCH] or 0), pid=held.pid)
            return held.pid
        if held is not None:
            self._end(held)
        self._worker = self._spawn(spawn, "tell", env)
        return self._worker.pid

    async def keep(self, spawn: Callable[[Mapping[str, str]], int]) -> None:
        """Start the next run's process once the present worker is well under way; cancelled when that one ends."""
        if self._worker is None or not await self._is_wanted(self._worker):
            return
        try:
            self._held = self._spawn(spawn, "wait", {})
        except (StartError, OSError):  # OSError: no descriptor is left
            return  # the start itself will say what is wrong
        self._problem = ""
        await self._bring_up(self._held)

    async def _is_wanted(self, worker: Channel) -> bool:
        """Wait for the worker's call of `inplace.ready` and for its first steps; return whether it made the call."""
        while not (worker.is_ready or worker.stranger):
            await _news(worker)
        with suppress(TimeoutError):  # a child may call it before the command's own process does
            async with self._clock.timeout(STEPS_S_MAX):
                while not (worker.is_ready and worker.has_stepped):
                    await _news(worker)
        if not worker.is_ready:
            message = f"expected inplace.ready() in the command's process {worker.pid}, saw it in {worker.stranger}"
            then = "an ordinary start each time; a shell can exec the command, a launcher can call it"
            self._log.warning("standby_unavailable", message=message, then=then)
        return worker.is_ready

    async def _bring_up(self, held: Channel) -> None:
        """Let the process run in turns until it waits."""
        began_s = self._clock.monotonic_s()
        try:
            while not held.is_ready and held is self._held and not self._problem:
                if held.has_stepped:
                    self._kill(held, "it made a step before inplace.ready()")
                elif self._clock.monotonic_s() - began_s > READY_S_MAX:
                    self._kill(held, f"it did not call inplace.ready() within {READY_S_MAX:g} s")
                else:
                    _signal(held.pid, signal.SIGSTOP)
                    await self._clock.sleep(PAUSE_S)
                    if held is self._held:
                        _signal(held.pid, signal.SIGCONT)
                    with suppress(TimeoutError):
                        async with self._clock.timeout(TURN_S):
                            await _news(held)
        finally:
            if held is self._held:
                _signal(held.pid, signal.SIGCONT)
        if held is self._held and held.is_ready:
            rss_bytes = self._metrics.standby_rss_bytes = _rss_bytes(held.pid)
            took_s = round(self._clock.monotonic_s() - began_s, 3)
            self._log.info("standby_ready", pid=held.pid, took_s=took_s, rss_mb=round(rss_bytes / 1e6, 1))

    def left_alone(self) -> int:
        """Return the process that waits and so may outlive the worker, 0 for none; forget one that does not wait."""
        held = self._held
        if held is None:
            return 0
        held.read()
        if held.is_ready and not self._problem:
            return held.pid
        self._held = None
        held.close()
        self._log.info("standby_ended", message="the worker ended before it was ready", then="an ordinary start")
        return 0

    def ended(self, pid: int, code: int) -> None:
        """Take note of the end of a child, BEFORE it is reaped."""
        if self._worker is not None and pid == self._worker.pid:
            self._worker.close()
            self._worker = None
        if self._held is not None and pid == self._held.pid:
            held, self._held = self._held, None
            self._end(held)
            kill_adopted(pid)
            self._metrics.standby_rss_bytes = 0
            message = self._problem or "it ended by itself"
            self._log.warning("standby_ended", message=message, exit_code=code, then="an ordinary start")

    def _spawn(self, spawn: Callable[[Mapping[str, str]], int], word: str, env: Mapping[str, str]) -> Channel:
        channel = Channel(word)
        try:
            channel.open(spawn({**env, **channel.variable}))
        except BaseException:
            channel.close()
            raise
        return channel

    def _kill(self, held: Channel, problem: str) -> None:
        self._problem = problem
        kill_tree(held.pid)

    def _end(self, held: Channel) -> None:
        """Be done with a process that ends, or is to."""
        held.close()
        kill_tree(held.pid)


async def _news(channel: Channel) -> None:
    await channel.news.wait()
    channel.news.clear()


def _signal(pid: int, number: int) -> None:
    """Signal a child's group; until the child is reaped, the number is nobody else's."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _rss_bytes(root: int) -> int:
    """Return the resident memory of a process and all below it; what they share counts each time."""
    pages = 0
    for pid in (root, *descendants(root)):
        with suppress(OSError), open(f"/proc/{pid}/statm", encoding="ascii") as statm:  # noqa: PTH123
            pages += int(statm.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
