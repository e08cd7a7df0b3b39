"""The guard's process: refuse what cannot work, guard the worker, clean after it."""

from __future__ import annotations

import os

from inplace.agent.guard import Guard
from inplace.agent.link.address import LINK_FILE
from inplace.agent.report.guard_log import GUARD_LOG
from inplace.agent.report.line_writer import STDERR
from inplace.agent.start.arguments import WorkerOptions
from inplace.agent.worker.cleaning import Cleaning
from inplace.agent.worker.command import refuse_program
from inplace.common.bare.typed import Final, Mapping

CONFIG: Final = 2  # as `agent.start.exit_code` has it, which loads enum


def run_guard(options: WorkerOptions, env: Mapping[str, str]) -> int:
    """Guard the worker until it ends; return the exit code."""
    try:
        return _run(options, env)
    finally:
        STDERR.flush()


def _run(options: WorkerOptions, env: Mapping[str, str]) -> int:
    if refused := refuse_program(options.command[0], env):
        message, code = refused
        GUARD_LOG.error("worker_not_started", message=message, then=f"exit {code}")
        return code
    if os.getpid() != 1:
        from inplace.agent.worker.process_tree import become_reaper

        become_reaper()
    cleaning = Cleaning(options.clean, env.get("LINK_FILE") or LINK_FILE, env)
    if cleaning.refused:
        for problem in cleaning.refused:
            GUARD_LOG.error("setting_refused", message=problem, then=f"exit {CONFIG}")
        return CONFIG
    return Guard(options, env, cleaning).run()
