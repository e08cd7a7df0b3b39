"""The error of a command that failed: its message and its exit code."""

from __future__ import annotations

from enum import IntEnum


class CliExit(IntEnum):
    """How a command that talks to a cluster ends; docs/cli.md has the same table, and a test compares the two."""

    DONE = 0
    NOT_DONE = 1  # the command failed
    USAGE = 2  # typer's own, for bad options
    NO_CLUSTER = 3  # no kubeconfig, no such context, no answer, or refused credentials
    NOT_ALLOWED = 4  # RBAC says no
    NOT_FOUND = 5  # there is no such JobSet
    INTERRUPTED = 130


class RefusalError(Exception):
    """The command ends here; the message says what was expected, what was seen and what to do."""

    def __init__(self, message: str, code: CliExit = CliExit.NOT_DONE) -> None:
        super().__init__(message)
        self.code = code
