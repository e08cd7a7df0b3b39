"""
Take the signals that somebody sends to a worker's parent, and tell the end of its Pod from an ordinary one.

A Pod may end by any signal: `lifecycle.stopSignal`, or its image's STOPSIGNAL, which no manifest shows. The same
signals mean other things as well: SIGUSR1 rotates logs. Four things tell them apart, the surest first:

* SIGTERM and SIGINT end the Pod, as does the signal that --stop-signal names (`inplace inject` copies `stopSignal`);
* the sender: kubelet's signals come from outside the container's PID namespace, where the sender has no process id. Who
  sends from inside (`kubectl exec`, a shared PID namespace) has one, and so has a terminal's driver no user's code;
* where the parent shares the node's PID namespace, every sender has an id. Then the worker's behaviour decides: one
  that ends within ENDS_WITHIN_S of a signal whose default action is its end was told to end by it;
* a worker that runs on after that was not: its next end is an ordinary one.

A handler is not told the sender; sigwaitinfo is. So a thread waits for these signals, which are blocked everywhere
else. A child must unblock them (`agent.worker.spawn` does). Source: sigwaitinfo(2), pid_namespaces(7), signal(7).

On the guard's start path: it loads no module but C ones. docs/adr/0081
"""

from __future__ import annotations

import os
import time
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_UNBLOCK,
    SIGCHLD,
    SIGCONT,
    SIGINT,
    SIGKILL,
    SIGSTOP,
    SIGTERM,
    SIGTSTP,
    SIGTTIN,
    SIGTTOU,
    SIGURG,
    SIGWINCH,
    pthread_sigmask,
    sigwaitinfo,
    valid_signals,
)
from _thread import start_new_thread

from inplace.common.bare.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ENDS_WITHIN_S: Final = 2.0
"""A worker that ends so soon after a signal ended by it. One that saves may take longer, but kubelet's own signals are
known by their sender. The longer this is, the more often a worker that completes after a log rotation runs again."""
NOT_TAKEN: Final = frozenset((SIGKILL, SIGSTOP, SIGCHLD))  # the kernel's own, and the news of children
HARMLESS: Final = frozenset(
    (SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU)
)  # end no process; signal(7)
_ENDS_ALWAYS: Final = frozenset((SIGTERM, SIGINT))
_USERS: Final = 0  # si_code of kill(2), and below it of sigqueue and tgkill; the kernel's own codes are above
READ_BYTES_MAX: Final = 512


class OutsideSignals:
    """The signals that this process gets, but SIGTERM, SIGINT and SIGCHLD, whose handlers are the caller's.

    Args:
        stop_signal: by which the Pod ends, as far as its manifest says; 0: it does not.
    """

    def __init__(self, stop_signal: int = 0) -> None:
        self._stop_signal = stop_signal
        self._last = 0  # the last signal that may have ended the worker, and when it was passed on
        self._last_s = 0.0
        self.descriptor, write_end = os.pipe2(os.O_CLOEXEC)
        taken = valid_signals() - NOT_TAKEN - _ENDS_ALWAYS
        pthread_sigmask(SIG_BLOCK, taken | _ENDS_ALWAYS | {SIGCHLD})  # BEFORE the thread, which inherits it
        start_new_thread(_collect, (taken, write_end))
        pthread_sigmask(SIG_UNBLOCK, _ENDS_ALWAYS | {SIGCHLD})

    def read(self) -> list[tuple[int, bool]]:
        """Return the signals that came, each with whether it ends the Pod; call it when the descriptor is readable."""
        records = os.read(self.descriptor, READ_BYTES_MAX)
        signals = [(number, bool(kubelets) or number == self._stop_signal) for number, kubelets in _pairs(records)]
        for number, _ in signals:
            if number not in HARMLESS:
                self._last, self._last_s = number, time.monotonic()
        return signals

    def ended_worker(self) -> int:
        """Return the signal by which a worker was told to end that ends now; 0: it ended by itself."""
        number, self._last = self._last, 0
        return number if number and time.monotonic() - self._last_s <= ENDS_WITHIN_S else 0


def _pairs(records: bytes) -> Iterable[tuple[int, int]]:
    return zip(records[::2], records[1::2], strict=True)  # each was written in one piece


def _collect(taken: set[int], write_end: int) -> None:
    """Write each signal to the pipe, and whether its sender is outside of this PID namespace; for ever."""
    while True:
        info = sigwaitinfo(taken)
        os.write(write_end, bytes((info.si_signo, info.si_code <= _USERS and info.si_pid == 0)))
