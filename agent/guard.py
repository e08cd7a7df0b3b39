"""
The guard: the worker's parent in the worker's own container. Its agent is a sidecar, or its own child.

It starts the worker when the agent lifts the barrier, tells the agent at once how the worker ended, and ends the
worker's process tree at once when the agent leaves. So kubelet finds every container of the Pod ended at its first
look, and no startup probe stands on the way. `common.protocol.guard` decides; this module performs.

It stays beside every worker, so it loads very little: no asyncio, and the C modules below `signal` and `socket`.
Without a sidecar it waits, and says so. With an agent that is its child (`inplace-agent run`) the end of either is the
container's. It holds no token and sends no request.
"""

from __future__ import annotations

import os
import select
import time
from _signal import SIGCHLD, SIGINT, SIGKILL, SIGTERM, set_wakeup_fd, signal  # type: ignore[import-not-found]

from inplace.agent.link.client import READ_BYTES_MAX, LinkClient, OwnAgent
from inplace.agent.report.guard_log import GUARD_LOG, PATIENCE_S
from inplace.agent.settings.address import LINK_FILE, SAVE_FILE, save_file
from inplace.agent.settings.arguments import STANDBY_ON, WorkerOptions
from inplace.agent.settings.command import RESUME_STEP, run_variables
from inplace.agent.worker.host import WorkerHost
from inplace.agent.worker.outside_signals import OutsideSignals
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping
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
    Completed,
    Ended,
    Ending,
    Examine,
    Examines,
    Failed,
    Fit,
    Hello,
    Leaving,
    Lifted,
    Signal,
    Started,
    TakeStacks,
    Unfit,
)
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE as UNFIT

if TYPE_CHECKING:
    from _socket import socket

    from inplace.agent.worker.cleaning import Cleaning
    from inplace.agent.worker.save_requests import SaveRequests
    from inplace.common.protocol.guard import Action, Event
    from inplace.common.protocol.link import Message

RECONNECT_S: Final = 0.02  # on a file system in memory, for an agent that is not there yet
STUCK: Final = 5  # as `agent.settings.exit_code` has it, which loads enum: the agent waited for the worker's end
STARTED: Final = "worker_started"  # the simulator looks for these two events
EXITED: Final = "worker_exited"


class Guard:
    """One worker's parent.

    Args:
        cleaning: cleans after a worker.
        progress: the folder of the ranks' progress.
        tails: the folder for the tail of each run's output; "" keeps none.
        own: its agent, if that is its child; None: it is elsewhere.
    """

    def __init__(
        self,
        options: WorkerOptions,
        env: Mapping[str, str],
        cleaning: Cleaning,
        progress: str,
        *,
        tails: str,
        own: OwnAgent | None = None,
    ) -> None:
        self._cleaning = cleaning
        self._options = options
        env = self._env = {name: value for name, value in env.items() if name != RESUME_STEP}  # another run's
        self._progress = progress
        self._callbacks: dict[int, Callable[[], object]] = {}  # by descriptor
        self._own = own
        pid = own.pid if own is not None else 0
        self._host = WorkerHost(options, env, owner=self, readers=self, log=GUARD_LOG, tail_folder=tails, agent=pid)
        self._saves: SaveRequests | None = None
        if options.save_within_s > 0:
            from inplace.agent.worker.save_requests import SaveRequests

            self._saves = SaveRequests(save_file(progress), options.save_within_s, GUARD_LOG)
        self._state = GuardState(final_codes=options.final_codes)
        self._lifted = Lifted(0)  # that the guard waits for, or that stands
        self._link = LinkClient(env.get("LINK_FILE") or LINK_FILE)
        self._kill_at_s: float | None = None
        self._exit_code = 0  # of the worker that ended last
        self._code: int | None = None
        self._wakes, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (SIGCHLD, SIGTERM, SIGINT):
            signal(number, lambda *_: None)  # the number is read from the pipe
        self._outside = OutsideSignals(options.stop_signal)
        self.add_reader(self._wakes, self._woken)
        self.add_reader(self._outside.descriptor, self._hear_outside)

    def run(self) -> int:
        """Follow the link, signals and the worker until there is an exit code."""
        self._clean()
        self._check()
        if self._own is not None:
            self._greet(self._own.link)
            self._host.reap()  # it may have ended BEFORE this process took SIGCHLD
        while self._code is None:
            if not self._link.is_open:
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
        if self._state.phase == WAITING and self._own is None:
            self._link.patience.go_on()

    def _clean(self) -> None:
        """Clean what a worker left; one is cleaned after BEFORE its Pod announces again."""
        for problem in self._cleaning.clean():
            GUARD_LOG.info("cleaned", message=problem)

    def _check(self) -> None:
        """Check this container, if that was asked for, BEFORE the agent hears that it may announce."""
        if self._options.before_announce:
            self._host.check()
            if self._host.is_checking:
                self._link.tell(self._check_word())

    def _check_word(self) -> Checking | Fit:
        """Return what the agent is told of the check now."""
        return Checking(round(self._options.check_timeout_s * 1000)) if self._host.is_checking else Fit()

    def _wait_s(self) -> float:
        """Return how long the guard may sleep when nothing happens."""
        waits = [PATIENCE_S if self._link.is_open or self._own is not None else RECONNECT_S]
        dues_s = (self._kill_at_s, self._saves.by_s if self._saves else None, self._host.due_s())
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
                self._link.tell(Ending(epoch))
            case TellEnd(epoch, code, failed):
                self._link.tell((Failed if failed else Ended)(epoch, code))
            case TellAbsent():
                self._clean()
                if self._state.epoch:  # else `run` has begun it
                    self._check()
                self._link.tell(Absent(round(self._options.grace_s * 1000)))
                if self._state.epoch:
                    self._link.patience.begin()
                self._host.await_lift()
            case Leave(code):
                # Where the agent is a child, a signal that ends the Pod gives the code: no agent elsewhere tells of it.
                told = self._state.signal if self._own is not None else 0
                self._leave(128 + told if told and code not in self._options.final_codes else code)

    def _start(self, epoch: int) -> None:
        """Execute the worker."""
        self._cleaning.begin()
        own, command = run_variables(epoch, self._progress, self._lifted.step), self._options.command
        if self._saves is not None:
            own[SAVE_FILE] = self._saves.path
        if (played := self._lifted.played) is not None:
            from inplace.agent.worker.rank_variables import rank_command, rank_variables

            own |= rank_variables(played, self._env)
            command = rank_command(played, command)
        stays, wants = self._state.stays, self._options.standby
        if wants == STANDBY_ON and not stays:
            message = "it needs inplace.dev/restart: process on the JobSet"
            GUARD_LOG.warning("standby_unavailable", message=message, then="every start is an ordinary one")
        self._host.start(own, outlives=stays, holds_next=bool(wants) and stays and epoch > 0, command=command)
        self._link.tell(Started(epoch))
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
        GUARD_LOG.info(EXITED, epoch=epoch or None, exit_code=code)

    def pod_checked(self, unfit: str) -> None:
        """Tell the agent that this container may join, or end it: its Job replaces the Pod."""
        if not unfit:
            self._link.tell(self._check_word())
            self._host.await_lift()
            return
        GUARD_LOG.error("check_failed", message=unfit, then="the Pod ends")
        self._link.tell(Unfit())
        self._leave(UNFIT)

    def worker_examined(self, problem: str) -> None:
        """Tell the agent that the command of --on-stall does not run."""
        if problem:
            GUARD_LOG.warning("stall_examined", message=problem)
        self._link.tell(Examines())

    def agent_ended(self, code: int) -> None:
        """Leave as the agent below this guard did, once nothing of the worker is left."""
        assert self._own is not None
        self._own.code = code
        if self._code is None:
            self._lose_agent()
        if self._state.phase == WAITING or code == STUCK:
            self._leave(code)

    def _lose_agent(self) -> None:
        """End the worker, whose agent is gone or ends now."""
        if self._own is not None:
            self._own.left_first = True
        self._take(LinkEnded())

    def _connect(self) -> None:
        """Try to reach the sidecar, at most once."""
        if self._state.phase != WAITING or self._own is not None:
            return  # another link would be another agent's
        link = self._link.connect()
        if link is not None:
            self._greet(link)

    def _greet(self, link: socket) -> None:
        """Send the guard's first words to the agent, and read what the agent says from now on."""
        # The last one also without a check: the agent may wait for guards that run no worker.
        words: list[Message] = [Hello(), *([Examines()] if self._options.on_stall else ()), self._check_word()]
        self._link.open(link, words)
        if self._link.is_open:
            self.add_reader(self._link.descriptor, self._read)
            self._host.await_lift()

    def _read(self) -> None:
        """Take in what the agent says, or that it is gone."""
        messages, goes_on = self._link.read()
        for message in messages:
            self._link.patience.note("the barrier is up")
            self._hear(message)
        if not goes_on:
            self._close()
            self._lose_agent()

    def _hear(self, message: Message) -> None:
        if isinstance(message, Lifted):
            self._lifted = message if self._state.phase == WAITING else self._lifted
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
            self._lose_agent()
        elif isinstance(message, Completed) and self._state.phase == WAITING:
            GUARD_LOG.info("spare_completed", message="the group has completed", then="exit 0")
            self._leave(0)
        elif isinstance(message, Unfit) and self._state.phase == WAITING:
            GUARD_LOG.error("check_failed", message="the check of another container of this Pod failed")
            self._leave(UNFIT)

    def _examine(self, asked: Examine) -> None:
        """Look at a worker that hangs; the agent waits for the end of that."""
        if self._options.on_stall and self._state.phase == RUNNING:
            self._host.examine(asked.pid, asked.silent_s)
        elif self._options.on_stall:
            self._link.tell(Examines())

    def _leave(self, code: int) -> None:
        """End the guard: with this code, or as its own agent, if that left first."""
        if self._code is not None:
            return
        self._code = code
        self._close()
        if self._own is not None:
            self._own.await_end(self._host.reap)
            if self._own.left_first and self._own.code is not None:
                self._code = self._own.code
        self._host.end()

    def _close(self) -> None:
        self.remove_reader(self._link.descriptor)
        self._link.close()
