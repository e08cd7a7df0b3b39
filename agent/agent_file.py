"""
Copy the agent, as one file, to an emptyDir from which the worker's container starts it.

`inplace-agent wait` runs from there in a worker's image that lacks the agent. An init container could copy the file
too, but init containers run again at every restart of the Pod, before everything else.
"""

from __future__ import annotations

import os

from inplace.common.typed import Final

IN_IMAGE: Final = "/opt/inplace/inplace-agent.pyz"  # Containerfile


def leave_agent_file(path: str, source: str = IN_IMAGE) -> str | None:
    """Copy the file unless it is there; return the problem, None when the file is there."""
    temporary = f"{path}.new"
    try:
        if os.path.exists(path) and os.path.getsize(path) == os.path.getsize(source):  # noqa: PTH110, PTH202
            return None
        with open(source, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms on the start path
            content = file.read()
        with open(temporary, "wb") as file:  # noqa: PTH123
            file.write(content)
        os.chmod(temporary, 0o755)  # noqa: PTH101, S103 - the worker may be another user
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        return f"AGENT_FILE: cannot copy {source} to {path}: {error.strerror}"
    return None
