"""
Write where each rank of a worker is to the container's log, one JSON line for each thread: a process of its own.

    python -c "from inplace.agent.stacks.look import main; main()" MAIN_PROCESS REQUEST

A rank that answers questions is asked by SIGURG, whose default action is to do nothing: no process ends of it, whatever
became of the handler. Any other rank is looked at by py-spy, if that is in PATH, without stopping it; or else through
/proc: its state, and where in the kernel its threads are. Nothing of a rank's memory is printed but the names of
functions and files, and line numbers. Every line is written at once and is short enough for that (pipe(7)).

`agent.worker.stacks_command` starts this process, and kills it if it takes too long. docs/adr/0099
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from inplace.agent.report.log_line import log_line
from inplace.agent.settings.command import PROGRESS_DIR, find_program
from inplace.agent.stacks.rank_processes import RankProcess, rank_processes
from inplace.agent.stacks.stack_text import THREADS_MAX, Thread, fit, kernel_frames, read_faulthandler, read_py_spy
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.stall_command import kill_tree
from inplace.common.wire.stacks import TAKEN, THREAD

STOPPED: Final = ("T", "t", "Z", "X", "")  # such a process answers nothing
ANSWER_S_MAX: Final = 2.0  # for a rank's handler, which takes some milliseconds
QUIET_S: Final = 0.05  # an answer is complete when it has not grown for this long
PY_SPY_S_MAX: Final = 5.0  # for all ranks together
TEXT_BYTES_MAX: Final = 262_144  # of one rank's answer
LINE_BYTES_MAX: Final = 4_000  # PIPE_BUF is 4,096
ALL_BYTES_MAX: Final = 262_144  # of all lines; the main threads come first, and always fit


class Found(NamedTuple):
    """What is known of one rank.

    Args:
        by: faulthandler, py-spy or kernel.
        state: of its process: one letter of /proc/PID/stat.
        note: why there is no more.
        silent: it was asked, and did not answer.
    """

    rank: RankProcess
    by: str
    state: str
    threads: Sequence[Thread]
    note: str = ""
    silent: bool = False


def main() -> int:
    """Run the program; return the exit code."""
    worker, request = int(sys.argv[1]), int(sys.argv[2])
    began_s = time.monotonic()
    ranks = rank_processes(worker, os.environ.get(PROGRESS_DIR, ""))
    found = look_at(ranks, find_program("py-spy", os.environ) or "")
    write_lines(found, request, lambda line: os.write(2, line))
    took_s = round(time.monotonic() - began_s, 3)
    fields = {"request": request, "ranks": len(found), "took_s": took_s}
    os.write(2, f"{log_line(time.time(), 'info', TAKEN, fields)}\n".encode("ascii"))
    os._exit(0)  # a thread that hangs in /proc is not waited for


def look_at(ranks: Sequence[RankProcess], py_spy: str) -> list[Found]:
    """Return where each rank is.

    Args:
        ranks: those of one worker.
        py_spy: path of the program, "" if there is none.
    """
    states = {rank.pid: state_of(rank.pid) for rank in ranks}
    asked = [(one.pid, one.answers) for one in ranks if one.answers is not None and states[one.pid] not in STOPPED]
    answers = ask(asked)
    by_s = time.monotonic() + PY_SPY_S_MAX
    found = []
    for rank in ranks:
        state, note, silent = states[rank.pid], "", False
        if rank.answers is not None:
            threads = read_faulthandler(answers.get(rank.pid, ""))
            if threads:
                found.append(Found(rank, "faulthandler", state, threads))
                continue
            note, silent = f"it did not answer within {ANSWER_S_MAX:g} s", True
            if state in STOPPED:
                note = "its process is stopped or has ended, so it was not asked"
        elif py_spy and state not in ("D", *STOPPED):
            threads, note = _spied(py_spy, rank.pid, by_s)
            if threads:
                found.append(Found(rank, "py-spy", state, threads))
                continue
        found.append(Found(rank, "kernel", state_of(rank.pid), in_kernel(rank.pid), note, silent))
    return found


def ask(processes: Sequence[tuple[int, int]]) -> Mapping[int, str]:
    """Let processes write their stacks; return what each that answered in time wrote.

    Args:
        processes: (process id, descriptor of its file for answers).
    """
    files: dict[int, int] = {}
    for pid, descriptor in processes:
        with suppress(OSError):  # it is gone, or another user's
            file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(file)
                if not stat.S_ISREG(found.st_mode) or found.st_nlink:
                    raise OSError(errno.EINVAL, "expected a file without a name, as `memfd_create` makes it")
                os.ftruncate(file, 0)  # it is appended to
                os.kill(pid, signal.SIGURG)
            except OSError:
                os.close(file)
                continue
            files[pid] = file
    by_s, sizes, answers = time.monotonic() + ANSWER_S_MAX, dict.fromkeys(files, 0), dict[int, str]()
    while len(answers) < len(files) and time.monotonic() < by_s:
        time.sleep(QUIET_S)
        for pid in [pid for pid in files if pid not in answers]:
            size, before = os.fstat(files[pid]).st_size, sizes[pid]
            sizes[pid] = size
            if size and size == before:
                answers[pid] = os.pread(files[pid], TEXT_BYTES_MAX, 0).decode("utf-8", "replace")
    for file in files.values():
        os.close(file)
    return answers


def state_of(pid: int) -> str:
    """Return the letter of a process's state, as ps has it; "" if it is gone."""
    return _proc(f"{pid}/stat").rpartition(")")[2].strip()[:1]


def in_kernel(pid: int) -> list[Thread]:
    """Return where the threads of a process are in the kernel, as far as may be read; the main thread first."""
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=lambda thread: (thread != str(pid), thread))  # noqa: PTH208
    except OSError:
        return []
    found = []
    for thread in threads[:THREADS_MAX]:
        at = f"{pid}/task/{thread}"
        frames = kernel_frames(_proc(f"{at}/stack"), _proc(f"{at}/wchan"))
        comm = "".join(letter if "!" <= letter <= "~" else "_" for letter in _proc(f"{at}/comm").strip())
        found.append(Thread("main" if thread == str(pid) else comm[:40], frames))
    return found


def write_lines(found: Sequence[Found], request: int, write: Callable[[bytes], object]) -> None:
    """Write a line for each thread: the main threads of all ranks, then the others as far as there is room."""
    left = ALL_BYTES_MAX
    for number in range(THREADS_MAX):
        for one in found:
            if number and number >= len(one.threads):
                continue
            line = _thread_line(one, number, request)
            left -= len(line)
            if number and left < 0:
                return
            write(line)


def _thread_line(one: Found, number: int, request: int) -> bytes:
    thread = one.threads[number] if one.threads else Thread("main", ())
    rank = one.rank
    fields: dict[str, Any] = {"request": request, "rank": rank.name, "pid": rank.pid, "step": rank.step}
    fields |= {"by": one.by, "state": one.state, "thread": thread.name}
    if number == 0:
        fields |= {"silent": one.silent, "message": one.note[:200] or None}
    frames, left_out = fit(thread.frames, LINE_BYTES_MAX - len(_line(fields)) - 50)
    return _line(fields | {"frames": frames, "left_out": left_out or thread.left_out})


def _line(fields: Mapping[str, Any]) -> bytes:
    return log_line(time.time(), "info", THREAD, fields).encode("ascii") + b"\n"


def _spied(py_spy: str, pid: int, by_s: float) -> tuple[list[Thread], str]:
    """Return the threads as py-spy sees them without stopping the process; if it does not, why."""
    if time.monotonic() >= by_s:
        return [], f"py-spy took longer than {PY_SPY_S_MAX:g} s for the ranks before it"
    text, code = _output([py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], by_s)
    threads = read_py_spy(text, pid)
    return threads, "" if threads else f"py-spy did not read it (exit code {code}); it needs SYS_PTRACE"


def _output(command: list[str], by_s: float) -> tuple[bytes, int]:
    """Return the output of a command that is killed at a moment of the monotonic clock, and its exit code."""
    read_end, write_end = os.pipe()
    try:
        child = spawn(command, os.environ, write_end)
    except OSError:
        return b"", 127
    finally:
        os.close(write_end)
    poll, text = select.poll(), b""
    poll.register(read_end, select.POLLIN)
    while len(text) < TEXT_BYTES_MAX and poll.poll(max(0.0, by_s - time.monotonic()) * 1000):
        if not (received := os.read(read_end, 65_536)):
            break
        text += received
    os.close(read_end)
    kill_tree(child)
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _proc(path: str) -> str:
    """Return a file below /proc; "" if it may not be read."""
    try:
        with open(f"/proc/{path}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(65_536)
    except OSError:
        return ""
