"""
Copy the agent, as one file, to an emptyDir from which the worker's container starts it.

A guard runs from there in a worker's image that lacks the agent. An init container could copy the file
too, but init containers run again at every restart of the Pod, before everything else.
"""

from __future__ import annotations

from inplace.agent.shared_file import read_shared, write_shared
from inplace.common.bare.typed import Final

IN_IMAGE: Final = "/opt/inplace/inplace-agent.pyz"  # Containerfile


def leave_agent_file(path: str, source: str = IN_IMAGE) -> str | None:
    """Copy the file unless it is there, of this user and byte by byte; return the problem, None when it is there."""
    try:
        with open(source, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms on the start path
            content = file.read()
        if not _is_there(path, content):
            write_shared(path, content, 0o755)  # the worker may be another user
    except OSError as error:
        return f"AGENT_FILE: cannot copy {source} to {path}: {error.strerror}"
    return None


def _is_there(path: str, content: bytes) -> bool:
    try:
        return read_shared(path, len(content)) == content
    except OSError:
        return False
