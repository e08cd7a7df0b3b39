"""
`inplace.ready`: wait until this process may train, and learn its epoch, rank and coordinator.

    import inplace
    import jax  # whatever takes long, and touches no device, no port and no other worker

    start = inplace.ready()
    jax.distributed.initialize(...)

Under `inplace-agent run --standby` the next run's process starts while the present worker still trains, and this call
is where it waits. Any other process gets the environment's values at once. docs/adr/0068

The agent's end of a socket is at the other side of the descriptor that INPLACE_STANDBY names. The word before it says
`tell` to a worker, which tells the agent that its script waits where it should, and `wait` to a standby. The release is
one packet of variables. It is looked at and never taken away, so that all threads, and all processes that were forked
before it came, see it.

A standby that cannot wait, is not needed any more, or makes a step before its release ends its process: it must not
train beside the worker. This module needs Python 3.8 and nothing else, as `inplace.rank_file` does.
"""

from __future__ import annotations

import os
import stat
import sys

VARIABLE = "INPLACE_STANDBY"  # WORD:DESCRIPTOR:INODE, of the environment
TELL, WAIT = "tell", "wait"
READY, STEPPED = b"ready", b"stepped"  # what a process tells the agent, each with its process id
RELEASE_BYTES_MAX = 8192
FIRST_STEPS = 3  # calls of `inplace.progress`: the first ones compile and allocate, and fail if anything does
NOT_NEEDED, NOT_WAITING = 0, 70  # exit codes of a standby
_NUMBER_DIGITS_MAX = 10


class RankStart:
    """What a rank starts with.

    Attributes:
        epoch: of the run; 0 when nobody restarts this process in place.
        rank: of RANK, of JAX_PROCESS_ID, or of JOB_INDEX x PODS_PER_JOB + JOB_COMPLETION_INDEX; None if unknown.
        coordinator: the address of COORDINATOR or MASTER_ADDR; "" if there is none.
    """

    __slots__ = ("coordinator", "epoch", "rank")

    def __init__(self, epoch: int, rank: int | None, coordinator: str) -> None:
        self.epoch = epoch
        self.rank = rank
        self.coordinator = coordinator

    def __repr__(self) -> str:
        return f"RankStart(epoch={self.epoch}, rank={self.rank}, coordinator={self.coordinator!r})"


def ready() -> RankStart:
    """Return when this process may train, with what the environment then says.

    A standby returns once its epoch has lifted; INPLACE_EPOCH is set then. Any other process returns at once. Later
    calls, and calls from other threads and from forked processes, return the same.
    """
    word, fd = _channel()
    if word == WAIT:
        from inplace.rank_stacks import answer_questions  # BEFORE it waits, as all that a rank uses

        try:
            _wait(fd)
        except BaseException as error:  # noqa: BLE001 - a script that went on behind it would train beside the worker
            _end(NOT_WAITING, f"inplace.ready() was interrupted by {type(error).__name__}")
        answer_questions()
    elif word == TELL and fd >= 0:
        _say(fd, READY)
    return RankStart(number_in("INPLACE_EPOCH") or 0, _rank(), _text("COORDINATOR") or _text("MASTER_ADDR"))


def stepped(count: int) -> None:
    """Take note of one of this process's first steps; `inplace.progress` calls it FIRST_STEPS times."""
    word, fd = _channel()
    if word == WAIT:
        if fd >= 0:
            _say(fd, STEPPED)
        _end(NOT_WAITING, "a step was made before inplace.ready() returned")
    if word == TELL and fd >= 0 and count == FIRST_STEPS:
        _say(fd, STEPPED)


def _wait(fd: int) -> None:
    """Wait for the release, and take its variables over."""
    import select
    import socket

    if fd < 0:
        _end(NOT_WAITING, "expected the descriptor of INPLACE_STANDBY to be open")
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    _say(fd, READY)  # should the agent not hear it, it makes an ordinary start
    end = socket.socket(fileno=fd)
    release = b""
    try:
        while not release:
            poll.poll()
            try:
                release = end.recv(RELEASE_BYTES_MAX, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not release:
                _end(NOT_NEEDED)
    except OSError:  # the agent is gone
        _end(NOT_NEEDED)
    finally:
        end.detach()
    for variable in release.split(b"\0"):
        name, _, value = variable.partition(b"=")
        os.environ[os.fsdecode(name)] = os.fsdecode(value)


def _say(fd: int, what: bytes) -> None:
    """Tell the agent something; it listens to a bounded number of words."""
    import socket

    end = socket.socket(fileno=fd)
    try:
        os.set_inheritable(fd, False)  # a program that this process starts does not speak for it
        end.send(b"%s %d" % (what, os.getpid()), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        pass
    finally:
        end.detach()


def _channel() -> tuple[str, int]:
    """Return the word of INPLACE_STANDBY and the descriptor; -1 when that is closed, or another file's by now."""
    word, _, rest = os.environ.get(VARIABLE, "").partition(":")
    fd, _, inode = rest.partition(":")
    try:
        found = os.fstat(int(fd))
    except (OSError, ValueError, OverflowError):
        return word, -1
    is_ours = stat.S_ISSOCK(found.st_mode) and str(found.st_ino) == inode
    return word, int(fd) if is_ours else -1


def _end(code: int, problem: str = "") -> None:
    """End this process from any thread."""
    if problem:
        try:  # noqa: SIM105 - as in inplace.rank_file
            print(f"inplace: a standby ends: {problem}", file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(code)


def _rank() -> int | None:
    for name in ("RANK", "JAX_PROCESS_ID"):
        rank = number_in(name)
        if rank is not None:
            return rank
    index, job, per_job = (number_in(name) for name in ("JOB_COMPLETION_INDEX", "JOB_INDEX", "PODS_PER_JOB"))
    if index is None or not job:
        return index
    return None if per_job is None else job * per_job + index


def number_in(name: str) -> int | None:
    """Return a variable's number; None if it has none."""
    text = _text(name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX else None


def _text(name: str) -> str:
    return os.environ.get(name, "")
