"""Check what an agent promises: a time to save, a check before joining, a lease for a dead node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.start.sidecar import UNASKED
from inplace.cli.lint.agent import options_of
from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import SAVE_WITHIN
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import RUN, Container, Member
from inplace.common.jobset.settings import BARRIER, RESTART
from inplace.common.protocol.lease import END_S
from inplace.common.wire import names as wire

GRACE_S_DEFAULT: Final = 30  # core/v1, terminationGracePeriodSeconds


def check_saving(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a time to save that kubelet cuts short, and an agent without a guard that would ask the worker."""
    if member.place == "sidecar" and not agent.values.get("LINK_FILE") and _seconds(agent) > 0:
        fix = f"use `inplace inject`, whose worker has a guard; or remove {RESTART.named('save-within')}"
        yield Finding("agent-env", agent.path_of(SAVE_WITHIN), "a time to save", UNASKED, fix)
    within_s = save_within_s(member, agent)
    grace = member.pod_spec.get("terminationGracePeriodSeconds", GRACE_S_DEFAULT)
    if isinstance(grace, int) and within_s > 0 and grace <= within_s:
        fix = f"raise terminationGracePeriodSeconds above {within_s:g}, by the time that the worker takes to end"
        found = f"{within_s:g} s to save of {grace} s until SIGKILL"
        yield Finding("save-grace", f"{member.pod_path}.terminationGracePeriodSeconds", found, "less", fix)


def save_within_s(member: Member, agent: Container) -> float:
    """Return how long workers may take to save before a planned stop; 0 where one of them is not asked."""
    if agent.is_upstream_supervisor:
        return 0.0
    guards = [worker for worker in member.workers if worker not in member.helpers]
    return min(map(_seconds, (agent,) if member.place == "supervisor" else (agent, *guards)))


def _seconds(container: Container) -> float:
    with suppress(ValueError):
        return float(container.values.get(SAVE_WITHIN) or 0)
    return 0.0


def check_before_announce(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a check that outlasts the barrier."""
    deadline_s = _deadline_s(member)
    for worker, options in checks_of(member, agent):
        if deadline_s is not None and options.check_timeout_s >= deadline_s:
            path, found = f"{worker.path}.command", f"{options.check_timeout_s:g} s for the check"
            fix = f"lower --before-announce-timeout, or raise the deadline in {BARRIER.key}"
            yield Finding("check-deadline", path, found, f"less than the barrier's {deadline_s} s", fix)


def checks_of(member: Member, agent: Container) -> list[tuple[Container, WorkerOptions]]:
    """Return the containers that run a check before each announcement, with their options."""
    if agent.is_upstream_supervisor:
        return []
    if member.place == "supervisor":
        options = [(agent, options_of(agent, RUN))]
    else:
        options = [(worker, options_of(worker, GUARD)) for worker in member.workers]
    return [(container, found) for container, found in options if found is not None and found.before_announce]


def _deadline_s(member: Member) -> int | None:
    """Return the deadline that somebody chose for the barrier; None for none, or one that cannot be read."""
    seconds: int = BARRIER.read_or_default(member.annotations).get("deadline", 0)
    return seconds or None


VARIABLE: Final = "FENCE_AFTER_S"


def check_fence(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield an agent that cannot keep the lease that it is asked for, and a guard that takes too long."""
    if not agent.values.get(VARIABLE):
        return
    if not _can_keep(member, agent):
        where, fix = agent.path_of(VARIABLE), f"set {wire.RESTART} to process beside a guard, or use a supervisor"
        yield Finding("fence", where, "a lease", "an agent that stays while its worker ends", fix)
        return
    for worker in member.workers if member.is_guarded else ():
        options = options_of(worker, GUARD)
        if options is not None and options.grace_s > END_S:
            fix = "lower the guard's --grace (WORKER_GRACE_S)"
            yield Finding("fence", f"{worker.path}.command", f"{options.grace_s:g} s", f"at most {END_S} s", fix)


def lease_s(member: Member, agent: Container) -> int:
    """Return the length of the workers' leases; 0 where the agent keeps none."""
    length = agent.values.get(VARIABLE, "")
    return int(length) if length.isdecimal() and _can_keep(member, agent) else 0


def _can_keep(member: Member, agent: Container) -> bool:
    """Say whether the agent stays while its worker ends."""
    return member.place == "supervisor" or agent.restart_depth == wire.DEPTH_PROCESS
