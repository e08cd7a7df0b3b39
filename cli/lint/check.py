"""Check the check before joining: its failure must end the Pod, and below a guard its agent must wait for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.settings.arguments import WorkerOptions
from inplace.cli.lint.agent import options_of
from inplace.cli.lint.env import settled_environment
from inplace.common.agent_command import GUARD
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_roles import RUN, Container, Member
from inplace.common.injection.restart_rules import Ending, ending
from inplace.common.jobset.requests import read_deadline
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE

_VARIABLE: Final = "CHECKS_BEFORE_ANNOUNCE"


def check_before_announce(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a check that does not end its Pod, one that outlasts the barrier, and an agent that waits for others."""
    if agent.is_upstream_supervisor:
        return
    checks = checks_of(member, agent)
    deadline_s = _deadline_s(member)
    for worker, options in checks:
        after = ending(worker.raw, CHECK_FAILED_EXIT_CODE, str(member.pod_spec.get("restartPolicy") or "Never"))
        if after is not Ending.STAYS:
            fix = f"add {CHECK_FAILED_EXIT_CODE} to the values of the rule's NotIn; then the Job replaces the Pod"
            path, found = f"{worker.path}.restartPolicyRules", f"after exit code {CHECK_FAILED_EXIT_CODE} {after.value}"
            yield Finding("check-restarts", path, found, "the container stays down", fix)
        if deadline_s is not None and options.check_timeout_s >= deadline_s:
            path, found = f"{worker.path}.command", f"{options.check_timeout_s:g} s for the check"
            fix = f"lower --before-announce-timeout, or raise {wire.BARRIER_DEADLINE}"
            yield Finding("check-deadline", path, found, f"less than the barrier's {deadline_s} s", fix)
    awaited = settled_environment(agent).get(_VARIABLE) or "0"
    if member.mode != "supervisor" and awaited != str(len(checks)):
        fix = "set it to the number of guards with a check"
        yield Finding("check-unawaited", agent.path_of(_VARIABLE), shown(awaited), str(len(checks)), fix)


def checks_of(member: Member, agent: Container) -> list[tuple[Container, WorkerOptions]]:
    """Return the containers that run a check before each announcement, with their options."""
    if member.mode == "supervisor":
        options = [(agent, options_of(agent, RUN))]
    else:
        options = [(worker, options_of(worker, GUARD)) for worker in member.workers]
    return [(container, found) for container, found in options if found is not None and found.before_announce]


def _deadline_s(member: Member) -> int | None:
    """Return the barrier's deadline; None for none, or one that cannot be read, which another rule says."""
    try:
        deadline = read_deadline(member.annotations)
    except RemoteProtocolError:
        return None
    return deadline.seconds if deadline is not None else None
