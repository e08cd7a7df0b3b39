"""Find the agent's program in a container's command: the controller, its tools and the simulator have no other sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

AGENT_COMMAND: Final = "inplace-agent"
GUARD: Final = "guard"  # the agent's subcommand beside a worker
GUARD_PROGRAM: Final = "/inplace/bin/guard"  # the same, in the agent's image (docs/adr/0085)
ENTRYPOINT_GUARD: Final = "ENTRYPOINT_GUARD"  # a worker's variable: that command, before a program of its image


def agent_arguments(command: Sequence[str]) -> list[str] | None:
    """Return what follows the agent's program in a command, its subcommand first; None where it is not there.

    The program may stand behind an interpreter and its options, in any folder.
    """
    for place, word in enumerate(command):
        if word == GUARD_PROGRAM:
            return [GUARD, *command[place + 1 :]]
        if word.rpartition("/")[2] == AGENT_COMMAND:
            return list(command[place + 1 :])
        if word == "--":
            return None  # a worker's own words
    return None


def is_guarded(command: Sequence[str]) -> bool:
    """Say whether a container's command is a guard with its worker."""
    return (agent_arguments(command) or [""])[0] == GUARD
