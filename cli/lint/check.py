"""Check the check before joining: its failure must end the Pod, and below a guard its agent must wait for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.arguments import ArgumentsError, GuardOptions, RunOptions, parse
from inplace.cli.lint.env import agent_environment, settled_environment
from inplace.cli.manifests.finding import Finding, shown
from inplace.cli.manifests.pod_roles import GUARD, RUN, Container, Member
from inplace.cli.manifests.restart_rules import Ending, ending
from inplace.common.unfit import CODE

_VARIABLE: Final = "CHECKS_BEFORE_ANNOUNCE"


def check_before_announce(member: Member, agent: Container, jobset_name: str) -> Iterator[Finding]:
    """Yield a check whose failure does not end its Pod, and an agent that waits for another number of checks."""
    if agent.is_upstream_supervisor:
        return
    verb, workers = (RUN, (agent,)) if member.mode == "supervisor" else (GUARD, member.workers)
    checking = [worker for worker in workers if _has_check(worker, verb, jobset_name)]
    for worker in checking:
        after = ending(worker.raw, CODE, str(member.pod_spec.get("restartPolicy") or "Never"))
        if after is not Ending.STAYS:
            fix = f"add {CODE} to the values of the rule's NotIn; then the Job replaces the Pod"
            path, found = f"{worker.path}.restartPolicyRules", f"after exit code {CODE} {after.value}"
            yield Finding("check-restarts", path, found, "the container stays down", fix)
    awaited = settled_environment(agent, jobset_name).get(_VARIABLE) or "0"
    if verb == GUARD and awaited != str(len(checking)):
        where, fix = f'{agent.path}.env[name="{_VARIABLE}"]', "set it to the number of guards with --before-announce"
        yield Finding("check-unawaited", where, shown(awaited), str(len(checking)), fix)


def _has_check(container: Container, verb: str, jobset_name: str) -> bool:
    arguments = container.arguments(verb)
    try:
        options = parse(arguments, agent_environment(container, jobset_name)) if arguments is not None else None
    except ArgumentsError:
        return False  # has a finding of its own
    return isinstance(options, RunOptions | GuardOptions) and bool(options.before_announce)
