"""
Hold the next run's process ready: it starts while the present worker runs, imports, and waits in `inplace.ready`.

It belongs to no epoch until `start` releases it. Nothing tells a process that imports from one that trains. So a
command is started early only when its own process has called `inplace.ready` in this very run. A standby that has not
done so when the present worker ends is killed with it; one that has is stopped from then to its release. So the
announcement's promise holds: what is left waits.

With `--standby=always` the user promises that the command calls `inplace.ready`. Then one is started also while this
Pod waits for a barrier without a worker. One that is not ready when the barrier lifts is killed BEFORE the start.

While it imports, the process runs in turns: SIGSTOP and SIGCONT. A lower priority could not be taken back without
CAP_SYS_NICE. docs/adr/0068

Nothing waits here: `agent.worker.host` calls `go_on` after a message and when the time has come.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from inplace.agent.settings.command import EPOCH
from inplace.agent.worker.process_tree import continue_session, descendants, kill_adopted, lists_children, stop_session
from inplace.agent.worker.stall_command import kill_tree
from inplace.common.bare.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Protocol

    from inplace.agent.report.log import Log

    class Readers(Protocol):
        """Calls back when there is something to read; an event loop, or a guard."""

        def add_reader(self, fd: int, callback: Callable[[], None]) -> object:
            """Call back whenever `fd` can be read."""

        def remove_reader(self, fd: int) -> object:
            """Do so no more."""


VARIABLE: Final = "INPLACE_STANDBY"  # inplace/standby.py has the other end
STEPS_S_MAX: Final = 60.0
"""The standby of a worker that tells no steps starts so long after it was ready: most have compiled and made steps by
then. A worker that fails sooner fails at its start, where another process's imports would only slow it down."""
LIFT_S: Final = 1.0  # a barrier whose Pods are all there lifts sooner, and an ordinary start is as quick then
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
        readers: calls back when there is a message.
        on_news: called after a message.
    """

    def __init__(self, word: str, readers: Readers, on_news: Callable[[], None]) -> None:
        self._readers = readers
        self._on_news = on_news
        self._end, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._theirs.set_inheritable(True)
        self._left = MESSAGES_MAX
        self._place = f"{self._theirs.fileno()}:{os.fstat(self._theirs.fileno()).st_ino}"
        self.variable = {VARIABLE: f"{word}:{self._place}"}
        self.pid = 0
        self.stranger = 0  # another process that called ready
        self.is_ready = False
        self.has_stepped = False

    def open(self, pid: int) -> None:
        """Listen to process `pid`, which has its end."""
        self.pid = pid
        self._theirs.close()
        self._readers.add_reader(self._end.fileno(), self.read)

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
        self._readers.remove_reader(self._end.fileno())

    def _take(self, message: bytes) -> None:
        what, _, pid = message.partition(b" ")
        if what == b"stepped":
            self.has_stepped = True
        elif what == b"ready" and pid == b"%d" % self.pid:
            self.is_ready = True
        elif what == b"ready" and pid.isdigit():
            self.stranger = int(pid)
        self._on_news()

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
            self._readers.remove_reader(self._end.fileno())
            self._end.close()


def standby_here(readers: Readers, log: Log, on_news: Callable[[], None]) -> Standby | None:
    """Return what holds a Pod's next process; None where a worker's end could not be told from a standby's."""
    if lists_children():
        return Standby(readers=readers, log=log, on_news=on_news)
    message = "expected a kernel that lists a process's children (CONFIG_PROC_CHILDREN), saw none"
    log.warning("standby_unavailable", message=message, then="every start is an ordinary one")
    return None


class Standby:
    """One Pod's standby, run after run.

    Args:
        on_news: called when `go_on` may have something to do.

    Attributes:
        is_settled: nothing more is to be done in this run.
    """

    def __init__(self, *, readers: Readers, log: Log, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._readers = readers
        self._log = log
        self._worker: Channel | None = None  # of the process that runs
        self._held: Channel | None = None  # of the process that is held
        self._problem = ""  # why the held process was killed
        self.is_settled = False
        self._wanted_at_s: float | None = (
            None  # then the held process starts, steps or not; None: `ready` was neither called nor promised
        )
        self._keeps_promise = True
        self._began_s = 0.0  # the held process's start
        self._is_stopped = False
        self._turn_ends_s = 0.0

    def start(self, spawn: Callable[[Mapping[str, str]], int], env: Mapping[str, str]) -> int:
        """Release the process that is held, or start one; return its id.

        Raises:
            OSError: the command cannot be executed, or no descriptor is left.
        """
        assert not self.is_coming, "expected one that waits, or none"
        held, self._held = self._held, None
        self.is_settled, self._wanted_at_s = False, None
        if held is not None and held.release(env):
            continue_session(held.pid)  # whoever stopped it
            held.has_stepped = False
            self._worker = held
            self._log.info("standby_released", epoch=int(env[EPOCH] or 0), pid=held.pid)
            return held.pid
        if held is not None:
            self._end(held)
        self._worker = self._spawn(spawn, "tell", env)
        return self._worker.pid

    @property
    def is_coming(self) -> bool:
        """Say whether a process is held that does not wait yet."""
        if self._held is not None:
            self._held.read()
        return self._held is not None and not (self._held.is_ready and not self._problem)

    def await_lift(self, now_s: float) -> None:
        """Let `go_on` start a process while no worker runs: the user promised that it calls `ready`."""
        if self._held is None and self._keeps_promise:
            self.is_settled, self._wanted_at_s = False, now_s + LIFT_S

    def go_on(self, spawn: Callable[[Mapping[str, str]], int], now_s: float) -> float | None:
        """Start the next run's process once the present worker is well under way, and let it run until it waits.

        Args:
            spawn: starts a process with these variables.
            now_s: of a monotonic clock.

        Returns:
            After how many seconds to call again, messages aside; None: only after one.
        """
        if self.is_settled:
            return None
        if self._held is None:
            wait_s = self._until_wanted(now_s)
            if wait_s is None or wait_s > 0:
                return wait_s
            try:
                self._held = self._spawn(spawn, "wait", {})
            except OSError:
                self.is_settled = True  # the start itself will say what is wrong
                return None
            self._problem, self._is_stopped = "", False
            self._began_s = self._turn_ends_s = now_s
        return self._bring_up(self._held, now_s)

    def _until_wanted(self, now_s: float) -> float | None:
        """Return the seconds until a standby is wanted: once the worker has called `inplace.ready` and made steps."""
        worker = self._worker
        if worker is None:
            return None if self._wanted_at_s is None else max(0.0, self._wanted_at_s - now_s)
        if not (worker.is_ready or worker.stranger):
            return None
        if self._wanted_at_s is None:
            self._wanted_at_s = now_s + STEPS_S_MAX
        if worker.is_ready and worker.has_stepped:
            return 0.0
        if now_s < self._wanted_at_s:  # a child may call it before the command's own process does
            return self._wanted_at_s - now_s
        if worker.is_ready:
            return 0.0
        self.is_settled = True
        message = f"expected inplace.ready() in the command's process {worker.pid}, saw it in {worker.stranger}"
        then = "an ordinary start each time; a shell can exec the command, a launcher can call it"
        self._log.warning("standby_unavailable", message=message, then=then)
        return None

    def _bring_up(self, held: Channel, now_s: float) -> float | None:
        """Let the process run in turns until it waits; return the seconds until its next turn or pause."""
        if held.is_ready and self._worker is None and not stop_session(held.pid):
            self._kill(held, "it forks faster than it can be stopped")
        elif held.is_ready:
            if self._worker is not None:
                _signal(held.pid, signal.SIGCONT)
            self.is_settled = True
            took_s, rss_mb = round(now_s - self._began_s, 3), round(_rss_bytes(held.pid) / 1e6, 1)
            self._log.info("standby_ready", pid=held.pid, took_s=took_s, rss_mb=rss_mb)
        elif held.has_stepped:
            self._kill(held, "it made a step before inplace.ready()")
        elif now_s - self._began_s > READY_S_MAX:
            self._kill(held, f"it did not call inplace.ready() within {READY_S_MAX:g} s")
        elif now_s >= self._turn_ends_s:
            self._is_stopped = not self._is_stopped
            _signal(held.pid, signal.SIGSTOP if self._is_stopped else signal.SIGCONT)
            self._turn_ends_s = now_s + (PAUSE_S if self._is_stopped else TURN_S)
        return None if self.is_settled else self._turn_ends_s - now_s

    def left_alone(self) -> int:
        """Return the process that waits and so may outlive the worker, 0 for none; forget one that does not wait.

        It said itself that it waits, and may train on. So it is stopped until its release, with all below it.
        """
        held = self._held
        if held is None:
            return 0
        if not self.is_coming and stop_session(held.pid):
            return held.pid
        self._held = None
        held.close()
        before = "the barrier lifted" if self._worker is None and self._wanted_at_s is not None else "the worker ended"
        self._log.info("standby_ended", message=f"{before} before it was ready", then="an ordinary start")
        return 0

    def ended(self, pid: int, code: int) -> None:
        """Take note of the end of a child, BEFORE it is reaped."""
        if self._worker is not None and pid == self._worker.pid:
            self._worker.close()
            self._worker = self._wanted_at_s = None
        if self._held is not None and pid == self._held.pid:
            held, self._held = self._held, None
            self.is_settled = True
            self._end(held)
            kill_adopted(pid)
            message, then = self._problem or "it ended by itself", "an ordinary start"
            if not held.is_ready and self._worker is None and self._wanted_at_s is not None:
                self._keeps_promise = False
                then += " each time; --standby=always promises that the command waits in inplace.ready()"
            self._log.warning("standby_ended", message=message, exit_code=code, then=then)

    def end(self) -> None:
        """Be done with the process that is held, if there is one."""
        held, self._held = self._held, None
        if held is not None:
            self._end(held)

    def _spawn(self, spawn: Callable[[Mapping[str, str]], int], word: str, env: Mapping[str, str]) -> Channel:
        channel = Channel(word, self._readers, self._on_news)
        try:
            channel.open(spawn({**env, **channel.variable}))
        except BaseException:
            channel.close()
            raise
        return channel

    def _kill(self, held: Channel, problem: str) -> None:
        self._problem = problem
        self.is_settled = True
        kill_tree(held.pid)

    def _end(self, held: Channel) -> None:
        """Be done with a process that ends, or is to."""
        held.close()
        kill_tree(held.pid)


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
