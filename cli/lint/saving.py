"""Check the time that workers have to save before a planned stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.arguments import ArgumentsError, RunOptions, parse
from inplace.cli.lint.env import agent_environment, settled_environment
from inplace.cli.lint.guard import guard_options
from inplace.cli.manifests.finding import Finding
from inplace.cli.manifests.pod_roles import RUN, Container, Member

GRACE_S_DEFAULT: Final = 30  # core/v1, terminationGracePeriodSeconds
_VARIABLE: Final = "SAVE_WITHIN_S"


def check_saving(member: Member, agent: Container, jobset_name: str) -> Iterator[Finding]:
    """Yield a time to save that kubelet cuts short, and one that only the agent or only the guard knows."""
    if agent.is_upstream_supervisor:
        return
    own = settled_environment(agent, jobset_name).get(_VARIABLE, "")
    if member.mode == "supervisor":
        own = dict(_variables(agent, jobset_name)).get(_VARIABLE, own)
        yield from _grace(member, _number(own), f"{agent.path}.command")
        return
    for worker in member.workers if member.is_guarded else ():
        guards_s = _guards_s(worker, jobset_name)
        yield from _grace(member, guards_s, f"{worker.path}.command")
        if (guards_s > 0) != (_number(own) > 0):
            where, knows = (
                (f'{agent.path}.env[name="{_VARIABLE}"]', "the guard") if guards_s else (worker.path, "the agent")
            )
            fix = f"set {_VARIABLE} in both containers, or in none"
            yield Finding("save-half", where, "nothing", f"{_VARIABLE}, as {knows} has it", fix)


def _grace(member: Member, within_s: float, where: str) -> Iterator[Finding]:
    grace = member.pod_spec.get("terminationGracePeriodSeconds", GRACE_S_DEFAULT)
    if isinstance(grace, int) and within_s > 0 and grace <= within_s:
        fix = f"raise terminationGracePeriodSeconds above {within_s:g}, by the time that the worker takes to end"
        yield Finding("save-grace", where, f"{within_s:g} s to save of {grace} s until SIGKILL", "less", fix)


def _variables(agent: Container, jobset_name: str) -> tuple[tuple[str, str], ...]:
    """Return the settings that a supervisor's options give; none where they cannot be read, which another rule says."""
    arguments = agent.arguments(RUN)
    try:
        options = parse(arguments, agent_environment(agent, jobset_name)) if arguments is not None else None
    except ArgumentsError:
        return ()
    return options.variables if isinstance(options, RunOptions) else ()


def _guards_s(worker: Container, jobset_name: str) -> float:
    options = guard_options(worker, jobset_name)
    return options.save_within_s if options is not None else 0.0


def _number(text: str) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
