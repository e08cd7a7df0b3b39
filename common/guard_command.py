"""Recognise a guard by its container's command: the controller's tools and the simulator have no other sign of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

AGENT_COMMAND: Final = "inplace-agent"


def is_guarded(command: Sequence[str]) -> bool:
    """Say whether a container's command is a guard with its worker, started from the image or from a file."""
    return any(
        word == "guard" and PurePosixPath(program).name.startswith(AGENT_COMMAND) for program, word in pairwise(command)
    )
