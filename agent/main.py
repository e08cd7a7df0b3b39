"""
The console script `inplace-agent`: the process of one agent.

First it handles SIGTERM and SIGINT, because a container's first process ignores them otherwise. Then it imports the
rest. It owns what no agent does: the environment, signals, the loop and the exit code.
"""

from __future__ import annotations

import os
import sys

# What the module `signal` wraps in enums, which costs as much as all else that a guard loads before it runs.
from _signal import SIGINT, SIGTERM, signal  # type: ignore[import-not-found]

_SIGNALS = (SIGTERM, SIGINT)


def main() -> int:
    """Run the agent until its Pod must restart; return the exit code."""
    for number in _SIGNALS:
        signal(number, _exit_at_once)
    if len(sys.argv) > 1 or os.environ.get("WORKER_COMMAND"):
        return _follow(sys.argv[1:])
    from inplace.agent.start.sidecar import run_sidecar

    return run_sidecar(os.environ)


def _follow(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    from inplace.agent.settings.arguments import USAGE, ArgumentsError, parse

    if arguments == ["--version"]:
        from inplace.agent.version import VERSION

        print(f"inplace-agent {VERSION}")
        return 0
    try:
        options = parse(arguments, os.environ)
    except ArgumentsError as error:
        from inplace.agent.settings.exit_code import ExitCode  # enum is dear, and a guard starts beside each worker

        print(f"inplace-agent: {error}\nTry 'inplace-agent --help'.", file=sys.stderr)
        return ExitCode.CONFIG
    if options is None:
        print(USAGE, end="")
        return 0
    from inplace.agent.settings.command import hide_command, restore_locale

    restore_locale()  # the worker gets what is in os.environ
    hide_command(options.command)
    from inplace.agent.start.guard_main import run_both, run_guard

    return (run_guard if arguments[:1] == ["guard"] else run_both)(options, os.environ)


def _exit_at_once(number: int, _frame: object) -> None:
    """Leave before the loop runs: nothing is open, nothing was announced."""
    os._exit(128 + number)
