"""Check that the agents keep the leases that the JobSet's annotation asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.arguments import ArgumentsError, GuardOptions, parse
from inplace.cli.lint.env import agent_environment, settled_environment
from inplace.cli.manifests.finding import Finding
from inplace.cli.manifests.pod_roles import GUARD, Container, Member
from inplace.common import wire
from inplace.common.epoch.lease import END_S
from inplace.common.kube.resources import KubeObject

VARIABLE: Final = "FENCE_AFTER_S"
_FIELD: Final = f"metadata.annotations['{wire.FENCE_AFTER}']"


def check_fence(member: Member, agent: Container, jobset: KubeObject) -> Iterator[Finding]:
    """Yield an agent that keeps no lease where one is asked for, one that cannot, and a guard that takes too long."""
    metadata = jobset.get("metadata") or {}
    name, asked = str(metadata.get("name", "")), wire.FENCE_AFTER in (metadata.get("annotations") or {})
    env = settled_environment(agent, name)
    where = f'{agent.path}.env[name="{VARIABLE}"]'
    if VARIABLE not in agent.env:
        if asked:
            yield Finding("fence-env", where, "nothing", f"fieldRef {_FIELD}", "add it to the agent's container")
        return
    if member.mode == "sidecar" and env.get("RESTART_DEPTH", "").lower() != wire.PROCESS:
        fix = "set RESTART_DEPTH=process beside a guard, or use a supervisor"
        yield Finding("fence-depth", where, "a lease", "an agent that stays while its worker ends", fix)
        return
    for worker in member.workers if member.is_guarded else ():
        if (grace_s := _grace_s(worker, name)) > END_S:
            fix = "lower the guard's --grace (WORKER_GRACE_S)"
            yield Finding("fence-grace", f"{worker.path}.command", f"{grace_s:g} s", f"at most {END_S} s", fix)


def _grace_s(worker: Container, jobset_name: str) -> float:
    arguments = worker.arguments(GUARD)
    try:
        options = parse(arguments, agent_environment(worker, jobset_name)) if arguments is not None else None
    except ArgumentsError:
        return 0.0
    return options.grace_s if isinstance(options, GuardOptions) else 0.0
