"""
The guard's process: refuse what cannot work, guard the worker, clean after it.

`run_both` has the agent in the same container: the guard forks it off. The guard is the container's main process, so
kubelet's signals and the worker's exit code go the way that they go beside a sidecar.
"""

from __future__ import annotations

import os
from _signal import SIGKILL  # type: ignore[import-not-found]
from _socket import AF_UNIX, SOCK_STREAM, socketpair

from inplace.agent.report.guard_log import GUARD_LOG
from inplace.agent.report.line_writer import STDERR
from inplace.agent.settings.address import LINK_FILE, make_progress_dir, progress_dir
from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.command import PROGRESS_DIR
from inplace.agent.worker.cleaning import Cleaning
from inplace.agent.worker.prctl import PR_SET_PDEATHSIG, keep_to_itself, prctl
from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping

if TYPE_CHECKING:
    from inplace.agent.link.client import OwnAgent

CONFIG: Final = 2  # as `agent.settings.exit_code` has it, which loads enum


def run_guard(options: WorkerOptions, env: Mapping[str, str]) -> int:
    """Guard the worker until it ends; return the exit code."""
    keep_to_itself(GUARD_LOG)  # BEFORE any code of the user's: the link is the guard's alone
    if os.getpid() != 1:
        from inplace.agent.worker.process_tree import become_reaper

        become_reaper()
    link = env.get("LINK_FILE") or LINK_FILE
    progress = progress_dir(env.get(PROGRESS_DIR, ""), link)
    cleaning = Cleaning(options.clean, f"{progress}/.clean", link.rpartition("/")[0], env)
    return _run(options, env, cleaning, progress, progress_dir("", link), None)


def run_both(options: WorkerOptions, env: Mapping[str, str]) -> int:
    """Guard the worker with an agent of its own; return the exit code, in the agent's process its own."""
    keep_to_itself(GUARD_LOG)  # BEFORE the fork, which inherits it
    memory = env.get("EPOCH_FILE", "")
    folder = memory.rpartition("/")[0]
    cleaning = Cleaning(options.clean, memory, folder, env)
    if cleaning.refused:
        return _refuse(cleaning)
    from inplace.agent.settings.exit_code import StartError
    from inplace.agent.worker.leftovers import SUPERVISOR, end_what_was_left, supervisor_mark
    from inplace.agent.worker.process_tree import become_reaper

    try:
        become_reaper()
        end_what_was_left(env, GUARD_LOG)
    except StartError as error:
        GUARD_LOG.error(error.event, message=str(error), then=f"exit {error.code}; nothing was announced")
        STDERR.flush()
        return error.code
    link, theirs = socketpair(AF_UNIX, SOCK_STREAM)
    guard = os.getpid()
    STDERR.flush()  # BEFORE the fork: what waits would be written twice
    agent = os.fork()
    if agent == 0:
        link.close()
        _follow(guard)
        from inplace.agent.start.sidecar import run_below_guard

        return run_below_guard(options, env, theirs.detach())
    theirs.close()
    from inplace.agent.link.client import OwnAgent  # AFTER the fork: the announcement does not wait for it

    env = {**env, SUPERVISOR: supervisor_mark(env)}
    progress = progress_dir(env.get(PROGRESS_DIR, ""), memory)
    return _run(options, env, cleaning, progress, folder, OwnAgent(agent, link))


def _follow(guard: int) -> None:
    """End with the guard, and leave a terminal's signals to it."""
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != guard:  # it died before the kernel knew whose death to wait for
        os._exit(128 + SIGKILL)
    os.setpgid(0, 0)


def _run(
    options: WorkerOptions, env: Mapping[str, str], cleaning: Cleaning, progress: str, tails: str, own: OwnAgent | None
) -> int:
    """Guard the worker; return the exit code."""
    try:
        if cleaning.refused:
            return _refuse(cleaning)
        from inplace.agent.guard import Guard

        make_progress_dir(progress)
        return Guard(options, env, cleaning, progress, tails=tails, own=own).run()
    finally:
        STDERR.flush()


def _refuse(cleaning: Cleaning) -> int:
    for problem in cleaning.refused:
        GUARD_LOG.error("setting_refused", message=problem, then=f"exit {CONFIG}")
    STDERR.flush()
    return CONFIG
