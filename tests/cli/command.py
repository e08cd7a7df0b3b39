"""Run `inplace` as a user does: a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 120.0


def command(*arguments: str) -> list[str]:
    """Return the command line of `inplace`."""
    return [sys.executable, "-m", "inplace.cli", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed."""
    return subprocess.run(
        command(*arguments), cwd=REPOSITORY, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )


def run_bytes(*arguments: str) -> bytes:
    """Run a command that succeeds; return its output, line ends as they are."""
    return subprocess.run(
        command(*arguments), cwd=REPOSITORY, capture_output=True, timeout=RUN_S_MAX, check=True
    ).stdout
