"""
The console script `inplace-agent`: one process around one `Agent`.

The first thing it does is to take SIGTERM and SIGINT: as a container's first process it would otherwise
ignore them. The second is to import the rest. It owns what an `Agent` does not: the environment, signals, the
loop and the exit code.
"""

from __future__ import annotations

import os
import sys

# What the module `signal` wraps in enums, which costs as much as all else that `wait` loads before it asks.
from _signal import SIGINT, SIGTERM, signal  # type: ignore[import-not-found]

_SIGNALS = (SIGTERM, SIGINT)


def main() -> int:
    """Run the agent until its Pod must restart; return the exit code."""
    for number in _SIGNALS:
        signal(number, _exit_at_once)
    if len(sys.argv) > 1 or os.environ.get("WORKER_COMMAND"):
        from agent.arguments import dispatch

        return dispatch(sys.argv[1:], os.environ)
    from agent.process import run_process

    return run_process(os.environ)


def _exit_at_once(number: int, _frame: object) -> None:
    """Leave before the loop runs: nothing is open, nothing was announced."""
    os._exit(128 + number)
