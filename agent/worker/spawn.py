"""
Execute a command as a child that cannot outlive this process.

When process 1 of a container ends, the kernel ends all its processes. A supervisor that is not process 1 (behind a
shell, or in a shared PID namespace) can be killed alone; its worker would then run on beside its successor's
announcement. So the kernel is asked to kill the child when its parent dies: PR_SET_PDEATHSIG. The child asks for that
itself BEFORE it executes the command, which takes a fork. Process 1 uses posix_spawn, which is quicker.

What this does not do: the command's own children do not die with it (`agent.worker.leftovers` finds them before the
next announcement), and the kernel drops the request when the command changes its user, or its file is set-user-id.

Source: PR_SET_PDEATHSIG(2const), fork(2), credentials(7).
"""

from __future__ import annotations

import os
from _signal import SIG_DFL, SIG_SETMASK, SIGKILL, SIGPIPE, SIGXFSZ, pthread_sigmask, signal  # type: ignore[import-not-found]
from errno import EIO

from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping

if TYPE_CHECKING:
    from typing import NoReturn

# CPython ignores these; a program that is executed inherits that, and a pipe's writer would never end.
_IGNORED_BY_PYTHON: Final = (SIGPIPE, SIGXFSZ)


def spawn(command: list[str], env: Mapping[str, str], output: int = -1) -> int:
    """Execute a command, looked for in PATH, in a session of its own, with no signal blocked; return its process id.

    Args:
        command: argv.
        env: its whole environment.
        output: a descriptor for its standard output and error; -1 for this process's own.

    Raises:
        OSError: it cannot be executed.
    """
    if os.getpid() == 1:
        actions = [(os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)] if output >= 0 else []
        return os.posix_spawnp(
            command[0], command, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_IGNORED_BY_PYTHON
        )
    import threading

    from inplace.agent.worker.prctl import c_function

    # The kernel means the thread that forks, not the process.
    assert threading.current_thread() is threading.main_thread(), "expected the thread that lives as long as the agent"
    c_function("prctl")  # BEFORE the fork: another thread may hold the loader's lock
    parent = os.getpid()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        become(command, env, parent, write_end, output)
    os.close(write_end)
    with open(read_end, "rb") as report:  # noqa: PTH123 - ends with the exec, or with the child
        failure = report.read()
    if failure:
        os.waitpid(child, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return child


def become(command: list[str], env: Mapping[str, str], parent: int, report: int, output: int = -1) -> NoReturn:
    """Execute the command in this child, or report the error's number and exit.

    Args:
        command: argv; the program is looked for in PATH.
        env: its whole environment.
        parent: who forked; when it is not the parent any more, nothing is executed.
        report: a pipe's write end, closed by the execution.
        output: as `spawn` has it.
    """
    from inplace.agent.worker.prctl import PR_SET_PDEATHSIG, prctl

    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != parent:  # it died before the kernel knew whose death to wait for
            os._exit(128 + SIGKILL)
        for number in _IGNORED_BY_PYTHON:
            signal(number, SIG_DFL)
        pthread_sigmask(SIG_SETMASK, ())
        if output >= 0:
            os.dup2(output, 1)
            os.dup2(output, 2)
        os.execvpe(command[0], command, env)  # noqa: S606 - the command comes from the manifest
    except OSError as error:
        os.write(report, b"%d" % (error.errno or EIO))
    finally:
        os._exit(1)
