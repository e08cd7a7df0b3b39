"""Read the options of an agent or a guard with the agent's own parser. Pure."""

from __future__ import annotations

from inplace.agent.start.arguments import ArgumentsError, GuardOptions, RunOptions, parse
from inplace.common.agent_command import GUARD
from inplace.controller.injection.pod_roles import RUN, Container


def guard_options(worker: Container) -> GuardOptions | None:
    """Return a guard's options; None where there is none, or they cannot be read, which another rule says."""
    options = _options(worker, GUARD)
    return options if isinstance(options, GuardOptions) else None


def run_options(agent: Container) -> RunOptions | None:
    """Return a supervisor's options; None where it is none, or they cannot be read, which another rule says."""
    options = _options(agent, RUN)
    return options if isinstance(options, RunOptions) else None


def _options(container: Container, verb: str) -> object:
    arguments = container.arguments(verb)
    try:
        return parse(arguments, container.values) if arguments is not None else None
    except ArgumentsError:
        return None
