"""Check that the agents keep the leases that the JobSet's annotation asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from inplace.cli.lint.env import settled_environment
from inplace.cli.lint.options import guard_options
from inplace.cli.manifests.finding import Finding
from inplace.cli.manifests.pod_roles import Container, Member
from inplace.common.protocol.lease import END_S
from inplace.common.wire import names as wire

VARIABLE: Final = "FENCE_AFTER_S"
_FIELD: Final = f"metadata.annotations['{wire.FENCE_AFTER}']"


def check_fence(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield an agent that keeps no lease where one is asked for, one that cannot, and a guard that takes too long."""
    where = agent.path_of(VARIABLE)
    if VARIABLE not in agent.env:
        if wire.FENCE_AFTER in member.annotations:
            yield Finding("fence-env", where, "nothing", f"fieldRef {_FIELD}", "add it to the agent's container")
        return
    if not _can_keep(member, settled_environment(agent)):
        fix = "set RESTART_DEPTH=process beside a guard, or use a supervisor"
        yield Finding("fence-depth", where, "a lease", "an agent that stays while its worker ends", fix)
        return
    for worker in member.workers if member.is_guarded else ():
        options = guard_options(worker)
        if options is not None and options.grace_s > END_S:
            fix = "lower the guard's --grace (WORKER_GRACE_S)"
            yield Finding("fence-grace", f"{worker.path}.command", f"{options.grace_s:g} s", f"at most {END_S} s", fix)


def lease_s(member: Member, agent: Container, asked_s: int | None) -> int:
    """Return the length of the workers' leases; 0 where the agent keeps none.

    Args:
        member: the Pods.
        agent: their agent's container.
        asked_s: what the JobSet's annotation says; None for nothing.
    """
    env = settled_environment(agent)
    if VARIABLE not in agent.env or not _can_keep(member, env):
        return 0
    own = env.get(VARIABLE, "")
    return int(own) if own.isdecimal() else asked_s or 0


def _can_keep(member: Member, env: Mapping[str, str]) -> bool:
    """Say whether the agent stays while its worker ends."""
    return member.mode == "supervisor" or env.get("RESTART_DEPTH", "").lower() == wire.DEPTH_PROCESS
