"""Check the time that workers have to save before a planned stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from inplace.cli.lint.env import settled_environment
from inplace.cli.lint.options import guard_options, run_options
from inplace.cli.manifests.finding import Finding
from inplace.cli.manifests.pod_roles import Container, Member

GRACE_S_DEFAULT: Final = 30  # core/v1, terminationGracePeriodSeconds
_VARIABLE: Final = "SAVE_WITHIN_S"


def check_saving(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a time to save that kubelet cuts short, and one that only the agent or only the guard knows."""
    if agent.is_upstream_supervisor:
        return
    own_s = _own_s(member, agent)
    if member.mode == "supervisor":
        yield from _grace(member, own_s, f"{agent.path}.command")
        return
    for worker in member.workers if member.is_guarded else ():
        guards_s = _guards_s(worker)
        yield from _grace(member, guards_s, f"{worker.path}.command")
        if (guards_s > 0) != (own_s > 0):
            where, knows = (agent.path_of(_VARIABLE), "the guard") if guards_s else (worker.path, "the agent")
            fix = f"set {_VARIABLE} in both containers, or in none"
            yield Finding("save-half", where, "nothing", f"{_VARIABLE}, as {knows} has it", fix)


def save_within_s(member: Member, agent: Container) -> float:
    """Return how long workers may take to save before a planned stop; 0 where one of them is not asked."""
    if agent.is_upstream_supervisor:
        return 0.0
    times = [_own_s(member, agent)]
    if member.mode != "supervisor":
        times += map(_guards_s, member.workers)
    return min(times)


def _grace(member: Member, within_s: float, where: str) -> Iterator[Finding]:
    grace = member.pod_spec.get("terminationGracePeriodSeconds", GRACE_S_DEFAULT)
    if isinstance(grace, int) and within_s > 0 and grace <= within_s:
        fix = f"raise terminationGracePeriodSeconds above {within_s:g}, by the time that the worker takes to end"
        yield Finding("save-grace", where, f"{within_s:g} s to save of {grace} s until SIGKILL", "less", fix)


def _own_s(member: Member, agent: Container) -> float:
    """Return the agent's time to save: a supervisor's option, or the variable."""
    options = run_options(agent) if member.mode == "supervisor" else None
    given = dict(options.variables) if options is not None else {}
    with suppress(ValueError):
        return float(given.get(_VARIABLE) or settled_environment(agent).get(_VARIABLE) or 0)
    return 0.0


def _guards_s(worker: Container) -> float:
    options = guard_options(worker)
    return options.save_within_s if options is not None else 0.0
