"""The guard's process: refuse what cannot work, guard the worker, clean after it."""

from __future__ import annotations

import os

from inplace.agent.guard import Guard
from inplace.agent.report.guard_log import GUARD_LOG
from inplace.agent.report.line_writer import STDERR
from inplace.agent.settings.address import LINK_FILE, make_progress_dir, progress_dir
from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.command import PROGRESS_DIR
from inplace.agent.worker.cleaning import Cleaning
from inplace.agent.worker.prctl import keep_to_itself
from inplace.common.bare.typed import Final, Mapping

CONFIG: Final = 2  # as `agent.settings.exit_code` has it, which loads enum


def run_guard(options: WorkerOptions, env: Mapping[str, str]) -> int:
    """Guard the worker until it ends; return the exit code."""
    try:
        return _run(options, env)
    finally:
        STDERR.flush()


def _run(options: WorkerOptions, env: Mapping[str, str]) -> int:
    keep_to_itself(GUARD_LOG)  # BEFORE any code of the user's: the link is the guard's alone
    if os.getpid() != 1:
        from inplace.agent.worker.process_tree import become_reaper

        become_reaper()
    link = env.get("LINK_FILE") or LINK_FILE
    progress = progress_dir(env.get(PROGRESS_DIR, ""), link)
    make_progress_dir(progress)
    cleaning = Cleaning(options.clean, f"{progress}/.clean", link.rpartition("/")[0], env)
    if cleaning.refused:
        for problem in cleaning.refused:
            GUARD_LOG.error("setting_refused", message=problem, then=f"exit {CONFIG}")
        return CONFIG
    return Guard(options, env, cleaning, progress).run()
