"""Read the options of an agent or a guard with the agent's own parser. Pure."""

from __future__ import annotations

from inplace.agent.start.arguments import ArgumentsError, WorkerOptions, parse
from inplace.controller.injection.pod_roles import Container


def options_of(container: Container, verb: str) -> WorkerOptions | None:
    """Return a guard's or a supervisor's options; None where it is none, or they cannot be read (another rule's)."""
    arguments = container.arguments(verb)
    try:
        return parse(arguments, container.values) if arguments is not None else None
    except ArgumentsError:
        return None
