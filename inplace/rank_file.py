"""
`inplace.progress` and `inplace.busy`: tell the Pod's agent how far this rank is, through one small file.

    import inplace

    for step in range(steps):
        ...
        inplace.progress(step, loss=loss, waited_s=waited_s)  # the two numbers may be left out
        with inplace.busy("checkpoint", up_to_s=600):
            save()

The file lies in the folder INPLACE_PROGRESS_DIR; without that variable nothing is written, so that the script runs
anywhere. At its first step a process also writes `.NAME`, once, so that the agent learns when that was, and once a
second at most `.NAME.numbers` (inplace/rank_numbers.py). Its name is the first of rank-RANK, local-LOCAL_RANK,
jax-JAX_PROCESS_ID and pid-PID that there is: processes of one name share a file. Its content is
common/wire/progress.py's. Folder and names are read at a process's first call.

What goes wrong with the file never reaches the training loop: one line on stderr says it, once a process. Every call
makes sure that its descriptor is still the file's, because a program may close descriptors that are not its own. A call
does wait for a file system that hangs; the folder is an emptyDir, which is local.

In a standby (`inplace.ready`) nothing is written before its release, and a step then ends the process.

This module needs os, sys and time alone and runs under Python 3.8, so that any training image can import it.
"""

from __future__ import annotations

import os
import sys
import time

from inplace.line_file import LineFile, path_of
from inplace.rank_numbers import RankNumbers

TYPE_CHECKING = False  # as in inplace/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable

LINE_BYTES = 64  # one line, padded: each write overwrites all of the last one
STEP_MAX = 10**12 - 1  # 31 years at 1,000 steps a second
BUSY_S_MAX = 604_800  # a week; what takes longer is not watched well by a limit
BUSY_NAME_CHARACTERS_MAX = 16  # what the line has left beside the longest numbers
PHASES_MAX = 16  # one inside the other; a script that ends none of its phases must not pay for each
_RANK_DIGITS_MAX = 10
_NAMES = (("RANK", "rank"), ("LOCAL_RANK", "local"), ("JAX_PROCESS_ID", "jax"))
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_STEP, _UNKNOWN_STEP = b"-", b"?"
_STANDBY = "INPLACE_STANDBY"  # see inplace/standby.py


class RankFile:
    """The file of this process; all its methods return whatever happens."""

    def __init__(self) -> None:
        self._pid = 0  # the process that opened the file; a forked child opens it anew
        self._file = LineFile(LINE_BYTES)
        self._name = ""
        self._is_off = False
        self._has_warned = False
        self._head = b""
        self._step = _NO_STEP
        self._has_begun = False  # its first step is written
        self._count = 0  # of this process's steps, as far as the agent's standby wants to know it
        self._phases: list[BusyPhase] = []  # the innermost is last
        self._numbers = RankNumbers()
        self._hook: object = None  # what sees an exception that ends this process, as of the last step
        self.find_hook: Callable[[], object] = lambda: None  # inplace/last_words.py's; it sees to its own place
        self.has_failed: Callable[[], bool] = lambda: False

    def step(self, number: int, waited_s: float | None = None, loss: float | None = None) -> None:
        """Write a step, and its numbers where they are news."""
        if sys.excepthook is not self._hook:  # at the first step, and where a library has replaced it since
            self._hook = self.find_hook()
        if _STANDBY in os.environ:
            self._tell()
        try:
            step = int(number)
        except Exception as error:  # noqa: BLE001 - it may be any framework's object, and training must go on
            step = -1
            self._warn(f"expected a step number, saw {type(number).__name__} ({error})")
        self._step = b"%d" % step if 0 <= step <= STEP_MAX else _UNKNOWN_STEP
        self.write()
        if not self._has_begun:
            self._write_first()
        waited_s, loss = self._number("waited_s", waited_s), self._number("loss", loss)
        numbers = self._numbers.step(self._step, time.monotonic(), waited_s, loss)
        if numbers is not None:
            self._write_beside(".numbers", b"%s %s" % (self._head, numbers))

    def enter(self, phase: BusyPhase) -> None:
        """Write that a busy phase began."""
        self._phases.append(phase)
        del self._phases[:-PHASES_MAX]
        self._numbers.pause()
        self.write()

    def leave(self, phase: BusyPhase) -> None:
        """Write that a busy phase ended, once; the one around it goes on, with its whole limit anew."""
        if phase in self._phases:
            self._phases.remove(phase)
            self._numbers.pause()
            self.write()

    def write(self, state: bytes = b"") -> None:
        """Write the line; `state` takes the place of a busy phase."""
        try:
            if os.getpid() != self._pid:
                if os.environ.get(_STANDBY, "").startswith("wait"):
                    return  # the rank's file is that of the worker which still runs
                self._begin()
            if self._is_off:
                return
            if not state and self._phases:
                state = self._phases[-1].words
            self._put(b"%s %s %d %s" % (self._head, self._step, self._pid, state))
        except (OSError, ValueError) as error:  # ValueError: a path that cannot be one
            self._warn(f"{type(error).__name__}: {error}")

    def _tell(self) -> None:
        """Let the agent know of the first steps: then it may start the next run's process."""
        from inplace import standby

        if self._count < standby.FIRST_STEPS:
            self._count += 1
            standby.stepped(self._count)

    def _write_first(self) -> None:
        """Leave the first step's line in a file of its own, which no later one overwrites."""
        self._has_begun = True
        self._write_beside("", b"%s %s %d\n" % (self._head, self._step, self._pid))

    def _write_beside(self, suffix: str, line: bytes) -> None:
        """Write a line into a hidden file beside this rank's; what goes wrong costs no more than this line."""
        if self._file.fd < 0 or self._is_off:
            return
        try:
            fd = os.open(path_of(f".{self._name}{suffix}"), _FLAGS, 0o644)
            try:
                os.write(fd, line)
                os.fchmod(fd, 0o644)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            pass

    def _number(self, name: str, value: float | None) -> float | None:
        """Return a number as a float; None where it is none, which is said once."""
        if value is None:
            return None
        try:
            return float(value)
        except Exception as error:  # noqa: BLE001 - it may be any framework's object, and training must go on
            self._warn(f"{name}: expected a number, saw {type(value).__name__} ({error})")
            return None

    def forget_hook(self) -> None:
        """Look for the hook at the next step."""
        self._hook = None

    @property
    def is_of_this_process(self) -> bool:
        """Say whether this very process has told a step or a busy phase."""
        return self._pid == os.getpid()

    def end(self) -> None:
        """Write that this rank's process exits by itself, so that nobody waits for its next step; not if it failed."""
        if self.is_of_this_process and not self.has_failed() and self._file.is_open():
            self.write(b"ended")

    def _begin(self) -> None:
        """Read where to write, in a new process."""
        self._file.close()
        if not self._pid:
            import atexit

            atexit.register(self.end)  # a forked child has it already
        else:
            self._phases.clear()  # the parent's
            self._numbers = RankNumbers()
        self._pid, self._has_begun = os.getpid(), False
        self._name = file_name(os.environ, self._pid)
        if "INPLACE_EPOCH" in os.environ:
            from inplace.rank_stacks import answer_questions

            answer_questions()  # a forked rank, or one whose epoch came late
        self._is_off = not os.environ.get("INPLACE_PROGRESS_DIR")
        epoch = os.environ.get("INPLACE_EPOCH", "")
        self._head = b"v1 %d" % int(epoch) if is_number(epoch) else b"v1 -"

    def _put(self, line: bytes) -> None:
        """Write, or touch: a full disk still takes a new modification time, and that is progress too."""
        try:
            self._file.write(self._name, line)
        except OSError:
            if self._file.fd >= 0:
                os.utime(self._file.fd)
            raise

    def _warn(self, problem: str) -> None:
        """Say what is wrong, once a process."""
        if self._has_warned:
            return
        self._has_warned = True
        text = f"inplace: the agent may not see this rank's steps: {problem[:300]}. Training goes on."
        try:  # noqa: SIM105 - contextlib is not loaded yet
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):  # stderr is closed, or there is none
            pass


class BusyPhase:
    """A stretch of work without steps; it began when it was made, and `end` or the end of a `with` block ends it."""

    def __init__(self, file: RankFile, name: str, up_to_s: float) -> None:
        self._file = file
        self.words = b"%s %d" % (_busy_name(name).encode("ascii"), _busy_s(up_to_s))
        file.enter(self)

    def end(self) -> None:
        """End the phase; a second end does nothing."""
        self._file.leave(self)

    def __enter__(self) -> BusyPhase:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def progress(step: int, *, loss: float | None = None, waited_s: float | None = None) -> None:
    """Say that this rank reached `step`, an int from 0 to STEP_MAX; anything else counts as a step without number.

    A tensor on a device makes the call wait for that device: pass the loop's own counter, and a float of the loss that
    the script has anyway.

    Args:
        step: the newest step.
        loss: of this step, as this rank sees it. The agent tells of one that is no finite number for many steps.
        waited_s: of the seconds since the last call, how long this rank waited for others, in collectives for example.
            With it the agent can tell a rank that got slower from those that wait for it.
    """
    _FILE.step(step, waited_s, loss)


def busy(name: str, *, up_to_s: float) -> BusyPhase:
    """Say that no step comes for a while; call it in a `with` statement, or keep what it returns and call its `end`.

    Args:
        name: for people, at most 16 letters, digits, '_' and '-'; what does not fit is cut or replaced.
        up_to_s: seconds after which it counts as a stall, from 1 to a week.
    """
    return BusyPhase(_FILE, name, up_to_s)


def this_rank() -> RankFile:
    """Return this process's file."""
    return _FILE


def file_name(env: os._Environ[str] | dict[str, str], pid: int) -> str:
    """Return the name of a process's file."""
    for variable, kind in _NAMES:
        text = env.get(variable, "")
        if is_number(text):
            return f"{kind}-{int(text)}"
    return f"pid-{pid}"


def is_number(text: str) -> bool:
    """Say whether a variable's text is a number."""
    return text.isascii() and text.isdigit() and len(text) <= _RANK_DIGITS_MAX


def _busy_name(name: str) -> str:
    text = "".join(character if character in _SAFE else "_" for character in str(name)[:BUSY_NAME_CHARACTERS_MAX])
    return text if text.strip("-") and text != "ended" else "busy"


def _busy_s(up_to_s: float) -> int:
    """Round up, into the range that the line can hold; what is no number gets the longest time."""
    try:
        return int(min(max(-(-float(up_to_s) // 1), 1), BUSY_S_MAX))
    except (TypeError, ValueError):
        return BUSY_S_MAX


_FILE = RankFile()
