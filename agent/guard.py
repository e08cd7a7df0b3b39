"""
`inplace-agent guard`: the worker's parent in the worker's own container, beside a sidecar agent.

It starts the worker when the agent lifts the barrier, tells the agent at once how the worker ended, and ends the
worker's process tree at once when the agent leaves. So kubelet finds every container of the Pod ended at its first
look, and no startup probe stands on the way. `common.protocol.guard` decides; this module performs.

It stays beside every worker, so it loads very little: no asyncio, and the C modules below `signal` and `socket`.
Without an agent it waits, and says so. It holds no token and sends no request.
"""

from __future__ import annotations

import os
import select
import time
from _signal import (  # type: ignore[import-not-found]
    SIGCHLD,
    SIGCONT,
    SIGINT,
    SIGKILL,
    SIGPIPE,
    SIGTERM,
    SIGXFSZ,
    set_wakeup_fd,
    signal,
)
from _socket import AF_UNIX, SOCK_STREAM, socket

from inplace.agent.link.address import LINK_FILE, PROGRESS_DIR, SAVE_FILE, progress_dir, reachable, save_file
from inplace.agent.report.guard_log import GUARD_LOG, PATIENCE_S, Patience
from inplace.agent.start.arguments import GuardOptions
from inplace.agent.worker.command import NOT_EXECUTABLE, epoch_variables
from inplace.agent.worker.outside_signals import OutsideSignals
from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.guard import (
    RUNNING,
    WAITING,
    AgentSignal,
    BarrierLifted,
    GraceOver,
    GuardState,
    KillWorker,
    Leave,
    LinkEnded,
    PassOn,
    Signalled,
    StartWorker,
    StayOn,
    StopWorker,
    TellAbsent,
    TellEnd,
    TellEnding,
    WorkerEnded,
    step,
)
from inplace.common.protocol.link import (
    CONTAINERS,
    PROCESS,
    Absent,
    Ended,
    Ending,
    Examine,
    Failed,
    Hello,
    Leaving,
    Lifted,
    LineReader,
    Signal,
    Started,
    Unfit,
    line_of,
)
from inplace.common.wire.unfit import CODE as UNFIT

if TYPE_CHECKING:
    from inplace.agent.worker.cleaning import Cleaner
    from inplace.agent.worker.guard_asides import Asides
    from inplace.agent.worker.saving_time import SavingTime
    from inplace.common.protocol.guard import Action, Event
    from inplace.common.protocol.link import Message

RECONNECT_S: Final = 0.02  # on a file system in memory, for an agent that is not there yet
READ_BYTES_MAX: Final = 4096
STARTED: Final = "worker_started"  # the simulator looks for this event


class Guard:
    """One worker's parent.

    Args:
        cleaning: cleans after a worker.
    """

    def __init__(self, options: GuardOptions, env: Mapping[str, str], cleaning: Cleaner) -> None:
        self._cleaning = cleaning
        self._command = list(options.command)
        self._env = env
        self._grace_s = options.grace_s
        self._asides: Asides | None = None
        if options.before_announce or options.on_stall or options.standby:
            from inplace.agent.worker.guard_asides import Asides

            self._asides = Asides(options, env, tell=self._tell, leave=self._leave, log=GUARD_LOG)
        self._path = env.get("LINK_FILE") or LINK_FILE
        self._saving: SavingTime | None = None
        if options.save_within_s > 0:
            from inplace.agent.worker.saving_time import SavingTime

            self._saving = SavingTime(save_file(self._path), options.save_within_s)
        self._state = GuardState(final_codes=options.final_codes)
        self._link: socket | None = None
        self._lines = LineReader()
        self._main = 0  # the worker's process id until it is reaped
        self._kill_at_s: float | None = None
        self._code: int | None = None
        self._patience = Patience(self._path)
        self._wakes, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (SIGCHLD, SIGTERM, SIGINT):
            signal(number, _take)
        self._outside = OutsideSignals(options.stop_signal)

    def run(self) -> int:
        """Follow the link, signals and the worker until there is an exit code."""
        self._clean()
        if self._asides is not None:
            self._asides.check()
        while self._code is None:
            if self._link is None:
                self._connect()
            poll = select.poll()
            poll.register(self._wakes, select.POLLIN)
            poll.register(self._outside.descriptor, select.POLLIN)
            if self._link is not None:
                poll.register(self._link.fileno(), select.POLLIN)
            if self._asides is not None:
                self._asides.register(poll)
            ready = poll.poll(self._wait_s() * 1000)
            for descriptor, _ in ready:
                if self._code is not None:
                    break
                if descriptor == self._wakes:
                    self._woken()
                elif descriptor == self._outside.descriptor:
                    for number, ends in self._outside.read():
                        self._signalled(number, ends=ends)
                elif self._link is not None and descriptor == self._link.fileno():
                    self._read()
                elif self._asides is not None:
                    self._asides.read(descriptor)
            if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
                self._kill_at_s = None
                self._take(GraceOver())
            if self._saving is not None and self._saving.is_over():
                self._take(Signalled(self._saving.number, ends=True))
            if self._asides is not None:
                self._asides.go_on()
            if self._state.phase == WAITING:
                self._patience.go_on()
        self._clean()
        return self._code

    def _clean(self) -> None:
        """Clean what a worker left; one is cleaned after BEFORE its Pod announces again."""
        for problem in self._cleaning.clean():
            GUARD_LOG.info("cleaned", message=problem)

    def _wait_s(self) -> float:
        """Return how long the guard may sleep when nothing happens."""
        waits = [RECONNECT_S if self._link is None else PATIENCE_S]
        save_by_s = self._saving.by_s if self._saving is not None else None
        dues_s = [self._kill_at_s, save_by_s, *(self._asides.dues_s() if self._asides is not None else ())]
        waits += [max(0.0, at_s - time.monotonic()) for at_s in dues_s if at_s is not None]
        return min(waits)

    def _take(self, event: Event) -> None:
        """Advance the machine, and perform its actions in order."""
        if self._code is not None:
            return
        self._state, actions = step(self._state, event)
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case StartWorker(epoch):
                self._start(epoch)
            case PassOn(number):
                self._kill(number)
            case StopWorker():
                self._stop()
            case KillWorker():
                message = f"the worker did not end within {self._grace_s:g} s of the agent's end"
                GUARD_LOG.warning("worker_killed", message=message)
                self._kill(SIGKILL)
            case TellEnding(epoch):
                self._tell(Ending(epoch))
            case TellEnd(epoch, code, failed):
                self._tell((Failed if failed else Ended)(epoch, code))
            case TellAbsent():
                self._clean()
                if self._asides is not None and self._state.epoch:  # BEFORE the agent hears that it may announce
                    self._asides.check()
                self._tell(Absent(round(self._grace_s * 1000)))
                if self._state.epoch:
                    self._patience.begin()
            case Leave(code):
                self._leave(code)

    def _start(self, epoch: int) -> None:
        """Execute the worker in a session of its own, with no signal blocked."""
        self._cut_asides("the barrier is lifted")
        self._cleaning.begin()
        own = epoch_variables(epoch)
        progress = progress_dir(self._env.get(PROGRESS_DIR, ""), self._path)
        if os.path.isdir(progress):  # noqa: PTH112 - the agent made it BEFORE the lift, if it watches
            own[PROGRESS_DIR] = progress
        if self._saving is not None:
            own[SAVE_FILE] = save_file(self._path)
        try:
            if self._asides is not None and self._asides.can_hold(stays=self._state.stays):
                self._main = self._asides.start(own)
            elif os.getpid() == 1:
                name, env = self._command[0], {**self._env, **own}
                self._main = os.posix_spawnp(
                    name, self._command, env, setsid=True, setsigmask=(), setsigdef=(SIGPIPE, SIGXFSZ)
                )
            else:
                from inplace.agent.worker.spawn import spawn

                self._main = spawn(self._command, {**self._env, **own})
        except OSError as error:
            message = f"cannot execute {self._command[0]!r}: {error.strerror}"
            GUARD_LOG.error("worker_not_started", message=message, then=f"exit {NOT_EXECUTABLE}")
            self._code = NOT_EXECUTABLE
            return
        self._tell(Started(epoch))
        GUARD_LOG.info(STARTED, epoch=epoch or None)

    def _stop(self) -> None:
        """Let the worker end, for a while."""
        self._close()
        self._cut_asides("the agent left")
        GUARD_LOG.info("worker_stopping", why="the agent left", grace_s=self._grace_s)
        self._kill_at_s = time.monotonic() + self._grace_s
        self._kill(SIGTERM if self._grace_s > 0 else SIGKILL)

    def _kill(self, number: int) -> None:
        """Send a signal to the worker's process group; until the worker is reaped, the number is nobody else's.

        A stopped process takes SIGTERM only when it goes on: it would use up its grace.
        """
        if self._main:
            try:
                os.killpg(self._main, number)
                if number == SIGTERM:
                    os.killpg(self._main, SIGCONT)
            except (ProcessLookupError, PermissionError):
                pass

    def _woken(self) -> None:
        """Take in the signals that came."""
        for number in os.read(self._wakes, READ_BYTES_MAX):
            if number == SIGCHLD:
                self._reap()
            else:
                self._signalled(number, ends=True)

    def _signalled(self, number: int, *, ends: bool) -> None:
        """Pass a signal on, unless it is held back while the worker saves."""
        if self._saving is None or not ends or not self._saving.begins(number, self._state):
            self._take(Signalled(number, ends))

    def _reap(self) -> None:
        """Reap every child that ended; orphans are adopted, and end unnoticed."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if self._asides is not None:
                self._asides.ends(ended.si_pid, _code_of(ended))
            if ended.si_pid != self._main:
                os.waitpid(ended.si_pid, 0)
                if self._asides is not None:
                    self._asides.reaped(ended.si_pid, _code_of(ended))
                continue
            self._kill(SIGKILL)  # BEFORE the reaping: until then the group's number is ours
            os.waitpid(ended.si_pid, 0)
            self._main = 0
            code, epoch = _code_of(ended), self._state.epoch
            told_to_end = self._outside.ended_worker()  # BEFORE the sweep, which takes seconds on a busy machine
            # The kernel kills what process 1 leaves behind; a guard that stays leaves nothing behind itself.
            is_tree_gone = True
            if self._state.stays or os.getpid() != 1:
                from inplace.agent.worker.sweep import sweep

                is_tree_gone = self._asides.sweep() if self._asides is not None else sweep()
            if self._saving is not None and self._saving.ends():  # it saved because its Pod ends: this is no completion
                self._take(Signalled(self._saving.number, ends=True))
            if told_to_end:
                self._take(Signalled(told_to_end, ends=True))
            if self._asides is not None:
                self._asides.swept()  # or it ends with process 1
            self._take(WorkerEnded(code, is_tree_gone))
            GUARD_LOG.info("worker_exited", epoch=epoch or None, exit_code=code)
            return

    def _connect(self) -> None:
        """Try to reach the agent, at most once."""
        if self._state.phase != WAITING:
            return  # another link would be another agent's
        link = socket(AF_UNIX, SOCK_STREAM)
        try:
            with reachable(self._path) as address:
                link.connect(address)
            words = [Hello(), *(self._asides.words() if self._asides is not None else ())]
            link.sendall(b"".join(map(line_of, words)))
        except OSError as error:
            link.close()
            self._patience.note(f"no agent there yet ({error.strerror})")
            return
        link.setblocking(False)
        self._link, self._lines = link, LineReader((CONTAINERS, PROCESS))

    def _read(self) -> None:
        """Take in what the agent says, or that it is gone."""
        if self._link is None:
            return
        try:
            received = self._link.recv(READ_BYTES_MAX)
            messages = self._lines.feed(received)
        except BlockingIOError:
            return
        except OSError:
            received, messages = b"", []
        except RemoteProtocolError as error:
            received, messages = b"", []
            self._patience.refuse(str(error))
        for message in messages:
            self._patience.note("the barrier is up")
            if isinstance(message, Lifted):
                self._take(BarrierLifted(message.epoch))
            elif isinstance(message, Signal):
                if self._state.phase == RUNNING:
                    self._cut_asides("the worker is to end")
                self._take(AgentSignal(message.number))
            elif isinstance(message, Examine) and self._asides is not None:
                self._asides.examine(message, self._main if self._state.phase == RUNNING else 0, self._state.epoch)
            elif isinstance(message, Hello) and message.version == PROCESS:
                self._take(StayOn())
            elif isinstance(message, Leaving):
                self._take(LinkEnded())
            elif isinstance(message, Unfit) and self._state.phase == WAITING:
                GUARD_LOG.error("check_failed", message="the check of another container of this Pod failed")
                self._leave(UNFIT)
        if not received:
            self._close()
            self._take(LinkEnded())

    def _cut_asides(self, why: str) -> None:
        """Kill the commands beside the worker, if they run."""
        if self._asides is not None:
            self._asides.cut(why)

    def _leave(self, code: int) -> None:
        """End the guard."""
        if self._asides is not None:
            self._asides.end("the guard leaves")
        self._code = code

    def _tell(self, message: Message) -> None:
        """Say something to the agent, if it is there."""
        if self._link is not None:
            try:  # noqa: SIM105
                self._link.sendall(line_of(message))
            except OSError:
                pass  # gone: the end of the link says so

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _code_of(ended: os.waitid_result) -> int:
    """Return the exit code of a process, 128 + n after signal n."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status


def _take(_number: int, _frame: object) -> None:
    """Do nothing: the number is read from the pipe."""
