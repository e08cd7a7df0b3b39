"""Check that the agents keep the leases that the JobSet's annotation asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.cli.lint.agent import options_of
from inplace.common.agent_command import GUARD
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.protocol.lease import END_S
from inplace.common.wire import names as wire

VARIABLE: Final = "FENCE_AFTER_S"


def check_fence(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield an agent that cannot keep the lease that it is asked for, and a guard that takes too long."""
    if not agent.values.get(VARIABLE):
        return
    if not _can_keep(member, agent):
        where, fix = agent.path_of(VARIABLE), f"set {wire.RESTART_DEPTH} to process beside a guard, or use a supervisor"
        yield Finding("fence-depth", where, "a lease", "an agent that stays while its worker ends", fix)
        return
    for worker in member.workers if member.is_guarded else ():
        options = options_of(worker, GUARD)
        if options is not None and options.grace_s > END_S:
            fix = "lower the guard's --grace (WORKER_GRACE_S)"
            yield Finding("fence-grace", f"{worker.path}.command", f"{options.grace_s:g} s", f"at most {END_S} s", fix)


def lease_s(member: Member, agent: Container) -> int:
    """Return the length of the workers' leases; 0 where the agent keeps none."""
    length = agent.values.get(VARIABLE, "")
    return int(length) if length.isdecimal() and _can_keep(member, agent) else 0


def _can_keep(member: Member, agent: Container) -> bool:
    """Say whether the agent stays while its worker ends."""
    return member.mode == "supervisor" or agent.restart_depth == wire.DEPTH_PROCESS
