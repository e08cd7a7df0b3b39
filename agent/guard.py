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
from _signal import SIGCHLD, SIGINT, SIGKILL, SIGTERM, set_wakeup_fd, signal  # type: ignore[import-not-found]
from _socket import AF_UNIX, SOCK_STREAM, socket

from inplace.agent.report.guard_log import GUARD_LOG, PATIENCE_S, Patience
from inplace.agent.settings.address import LINK_FILE, SAVE_FILE, reachable, save_file, tail_folder
from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.command import ELASTIC_ERROR_FILE, ELASTIC_FILE, PROGRESS_DIR, epoch_variables
from inplace.agent.worker.host import WorkerHost
from inplace.agent.worker.outside_signals import OutsideSignals
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping
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
    LINK_PROCESS,
    Absent,
    Checking,
    Ended,
    Ending,
    Examine,
    Examines,
    Failed,
    Fit,
    Hello,
    Leaving,
    Lifted,
    LineReader,
    Signal,
    Started,
    TakeStacks,
    Unfit,
    line_of,
)
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE as UNFIT

if TYPE_CHECKING:
    from inplace.agent.worker.cleaning import Cleaning
    from inplace.agent.worker.save_requests import SaveRequests
    from inplace.common.protocol.guard import Action, Event
    from inplace.common.protocol.link import Message

RECONNECT_S: Final = 0.02  # on a file system in memory, for an agent that is not there yet
READ_BYTES_MAX: Final = 4096
STARTED: Final = "worker_started"  # the simulator looks for this event


class Guard:
    """One worker's parent.

    Args:
        cleaning: cleans after a worker.
        progress: the folder of the ranks' progress.
    """

    def __init__(self, options: WorkerOptions, env: Mapping[str, str], cleaning: Cleaning, progress: str) -> None:
        self._cleaning = cleaning
        self._options = options
        self._env = env
        self._path = env.get("LINK_FILE") or LINK_FILE
        self._progress = progress
        self._callbacks: dict[int, Callable[[], object]] = {}  # by descriptor
        folder = tail_folder(self._path, "")
        self._host = WorkerHost(options, env, owner=self, readers=self, log=GUARD_LOG, tail_folder=folder)
        self._saves: SaveRequests | None = None
        if options.save_within_s > 0:
            from inplace.agent.worker.save_requests import SaveRequests

            self._saves = SaveRequests(save_file(progress), options.save_within_s, GUARD_LOG)
        self._state = GuardState(final_codes=options.final_codes)
        self._link: socket | None = None
        self._lines = LineReader()
        self._kill_at_s: float | None = None
        self._exit_code = 0  # of the worker that ended last
        self._code: int | None = None
        self._patience = Patience(self._path)
        self._wakes, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (SIGCHLD, SIGTERM, SIGINT):
            signal(number, _take)
        self._outside = OutsideSignals(options.stop_signal)
        self.add_reader(self._wakes, self._woken)
        self.add_reader(self._outside.descriptor, self._hear_outside)

    def run(self) -> int:
        """Follow the link, signals and the worker until there is an exit code."""
        self._clean()
        self._check()
        while self._code is None:
            if self._link is None:
                self._connect()
            poll = select.poll()
            for descriptor in self._callbacks:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(self._wait_s() * 1000):
                if self._code is None and descriptor in self._callbacks:
                    self._callbacks[descriptor]()
            self._go_on()
        self._clean()
        return self._code

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Call back whenever `fd` can be read."""
        self._callbacks[fd] = callback

    def remove_reader(self, fd: int) -> None:
        """Do so no more."""
        self._callbacks.pop(fd, None)

    def _go_on(self) -> None:
        """Do what is due."""
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._kill_at_s = None
            self._take(GraceOver())
        if self._saves is not None and self._saves.by_s is not None and time.monotonic() >= self._saves.by_s:
            self._end_saving()
        self._host.go_on()
        if self._state.phase == WAITING:
            self._patience.go_on()

    def _clean(self) -> None:
        """Clean what a worker left; one is cleaned after BEFORE its Pod announces again."""
        for problem in self._cleaning.clean():
            GUARD_LOG.info("cleaned", message=problem)

    def _check(self) -> None:
        """Check this container, if that was asked for, BEFORE the agent hears that it may announce."""
        if self._options.before_announce:
            self._host.check({})
            if self._host.is_checking:
                self._tell(self._check_word())

    def _check_word(self) -> Checking | Fit:
        """Return what the agent is told of the check now."""
        return Checking(round(self._options.check_timeout_s * 1000)) if self._host.is_checking else Fit()

    def _wait_s(self) -> float:
        """Return how long the guard may sleep when nothing happens."""
        waits = [RECONNECT_S if self._link is None else PATIENCE_S]
        save_by_s = self._saves.by_s if self._saves is not None else None
        dues_s = (self._kill_at_s, save_by_s, self._host.due_s())
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
                self._host.signal(number)
            case StopWorker():
                self._stop()
            case KillWorker():
                message = f"the worker did not end within {self._options.grace_s:g} s of the agent's end"
                GUARD_LOG.warning("worker_killed", message=message)
                self._host.signal(SIGKILL)
            case TellEnding(epoch):
                self._tell(Ending(epoch))
            case TellEnd(epoch, code, failed):
                self._tell((Failed if failed else Ended)(epoch, code))
            case TellAbsent():
                self._clean()
                if self._state.epoch:  # else `run` has begun it
                    self._check()
                self._tell(Absent(round(self._options.grace_s * 1000)))
                if self._state.epoch:
                    self._patience.begin()
            case Leave(code):
                self._leave(code)

    def _start(self, epoch: int) -> None:
        """Execute the worker."""
        self._cleaning.begin()
        own = epoch_variables(epoch)
        if os.path.isdir(self._progress):  # noqa: PTH112
            own[PROGRESS_DIR] = self._progress
            own[ELASTIC_ERROR_FILE] = f"{self._progress}/{ELASTIC_FILE}"
        if self._saves is not None:
            own[SAVE_FILE] = self._saves.path
        stays, wants = self._state.stays, self._options.standby
        if wants and not stays:
            message = "it needs inplace.dev/restart: process on the JobSet"
            GUARD_LOG.warning("standby_unavailable", message=message, then="every start is an ordinary one")
        self._host.start(own, outlives=stays, holds_next=wants and stays and epoch > 0)
        self._tell(Started(epoch))
        GUARD_LOG.info(STARTED, epoch=epoch or None)

    def _stop(self) -> None:
        """Let the worker end, for a while."""
        self._close()
        self._host.cut("the agent left")
        grace_s = self._options.grace_s
        GUARD_LOG.info("worker_stopping", why="the agent left", grace_s=grace_s)
        self._kill_at_s = time.monotonic() + grace_s
        self._host.signal(SIGTERM if grace_s > 0 else SIGKILL)

    def _woken(self) -> None:
        """Take in the signals that came."""
        for number in os.read(self._wakes, READ_BYTES_MAX):
            if number == SIGCHLD:
                self._host.reap()
            else:
                self._signalled(number, ends=True)

    def _hear_outside(self) -> None:
        """Take in the other signals."""
        for number, ends in self._outside.read():
            self._signalled(number, ends=ends)

    def _signalled(self, number: int, *, ends: bool) -> None:
        """Pass a signal on, unless it is held back while the worker saves."""
        epoch = self._state.epoch if self._state.phase == RUNNING else 0
        if self._saves is None or not ends or not self._saves.hold(number, epoch, time.monotonic()):
            self._take(Signalled(number, ends))

    def _end_saving(self) -> None:
        """Pass the signal on that was held back, if one was."""
        if self._saves is not None and self._saves.let_go():
            self._take(Signalled(self._saves.held, ends=True))

    def worker_exited(self, code: int) -> None:
        """Take note of how the worker ended; one that was told to end because its Pod ends did not complete."""
        self._exit_code, self._kill_at_s = code, None
        self._end_saving()
        if told_to_end := self._outside.ended_worker():
            self._take(Signalled(told_to_end, ends=True))

    def worker_gone(self, *, entirely: bool) -> None:
        """Tell the agent, or end: nothing of the worker is left, or it survives SIGKILL."""
        code, epoch = self._exit_code, self._state.epoch
        self._take(WorkerEnded(code, entirely))
        GUARD_LOG.info("worker_exited", epoch=epoch or None, exit_code=code)

    def pod_checked(self, unfit: str) -> None:
        """Tell the agent that this container may join, or end it: its Job replaces the Pod."""
        if not unfit:
            self._tell(self._check_word())
            return
        GUARD_LOG.error("check_failed", message=unfit, then="the Pod ends")
        self._tell(Unfit())
        self._leave(UNFIT)

    def worker_examined(self, problem: str) -> None:
        """Tell the agent that the command of --on-stall does not run."""
        if problem:
            GUARD_LOG.warning("stall_examined", message=problem)
        self._tell(Examines())

    def _connect(self) -> None:
        """Try to reach the agent, at most once."""
        if self._state.phase != WAITING:
            return  # another link would be another agent's
        link = socket(AF_UNIX, SOCK_STREAM)
        try:
            with reachable(self._path) as address:
                link.connect(address)
            words: list[Message] = [Hello()]
            if self._options.on_stall:
                words.append(Examines())
            if self._options.before_announce:
                words.append(self._check_word())
            link.sendall(b"".join(map(line_of, words)))
        except OSError as error:
            link.close()
            self._patience.note(f"no agent there yet ({error.strerror})")
            return
        link.setblocking(False)
        self._link, self._lines = link, LineReader()
        self.add_reader(link.fileno(), self._read)

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
                    self._host.cut("the worker is to end")
                self._take(AgentSignal(message.number))
            elif isinstance(message, Examine):
                self._examine(message)
            elif isinstance(message, TakeStacks):
                self._host.take_stacks(message.request)
            elif isinstance(message, Hello) and message.depth == LINK_PROCESS:
                self._take(StayOn())
            elif isinstance(message, Leaving):
                self._take(LinkEnded())
            elif isinstance(message, Unfit) and self._state.phase == WAITING:
                GUARD_LOG.error("check_failed", message="the check of another container of this Pod failed")
                self._leave(UNFIT)
        if not received:
            self._close()
            self._take(LinkEnded())

    def _examine(self, asked: Examine) -> None:
        """Look at a worker that hangs; the agent waits for the end of that."""
        if not self._options.on_stall:
            return
        if self._state.phase == RUNNING:
            self._host.examine(asked.pid, asked.silent_s)
        else:
            self._tell(Examines())

    def _leave(self, code: int) -> None:
        """End the guard."""
        self._code = code
        self._host.end()

    def _tell(self, message: Message) -> None:
        """Say something to the agent, if it is there."""
        if self._link is not None:
            try:  # noqa: SIM105
                self._link.sendall(line_of(message))
            except OSError:
                pass  # gone: the end of the link says so

    def _close(self) -> None:
        if self._link is not None:
            self.remove_reader(self._link.fileno())
            self._link.close()
            self._link = None


def _take(_number: int, _frame: object) -> None:
    """Do nothing: the number is read from the pipe."""
