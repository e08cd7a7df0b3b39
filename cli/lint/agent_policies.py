"""Check what an agent promises: a limit of silence, time to save, a check before joining, a lease. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.watch_settings import STALL_AFTER, START_STALL_AFTER, WatchSettings, annotated_limits
from inplace.agent.start.sidecar import UNASKED, UNWATCHED
from inplace.cli.lint.agent import options_of, settled_environment
from inplace.cli.lint.stored import as_stored
from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import SAVE_WITHIN
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import RUN, Container, Member, group_of
from inplace.common.jobset.notices import restart_on
from inplace.common.jobset.settings import BARRIER, RESTART
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import END_S
from inplace.common.protocol.rank import StallSettings
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


_GUARDED: Final = "use `inplace inject`, whose worker has a guard"
SHORT_S: Final = 10.0  # below it an evaluation, a checkpoint or a slow disk is soon a stall


def check_stall(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield limits that the agent refuses, limits without a watchdog, and limits that are likely too short."""
    try:
        limits, own, problem = _watchdog(member, agent)
    except ConfigError:
        return  # has a finding of its own
    if not limits.are_set:
        return
    where = _place(agent, own, number=0 if limits.stall_after_s is not None else 1)
    if problem:
        yield Finding("stall-unwatched", where, "a limit", problem, f"{_GUARDED}; or remove the limit")
        return
    stall_s, start_s = limits.stall_after_s, limits.start_stall_after_s
    if stall_s is not None and stall_s < SHORT_S:
        fix = "take some ten times the slowest step"
        yield Finding("stall-limits", where, f"{stall_s:g} s between two steps", f"at least {SHORT_S:g} s", fix)
    if stall_s is not None and start_s is not None and start_s < stall_s:
        where = _place(agent, own, number=1)
        fix = "raise it: the first step loads and compiles"
        yield Finding("stall-limits", where, f"{start_s:g} s", f"at least {stall_s:g} s, as between two steps", fix)


def stall_limits(member: Member, agent: Container) -> StallSettings:
    """Return the limits by which an agent watches its worker; none where it does not, or they cannot be read."""
    try:
        limits, _, problem = _watchdog(member, agent)
    except ConfigError:
        return StallSettings()
    return StallSettings() if problem else limits


def is_watched(member: Member, agent: Container) -> bool:
    """Say whether an agent sees the steps that its worker's ranks report, be there a limit or not."""
    try:
        return not _watchdog(member, agent)[2]
    except ConfigError:
        return False


def is_unwatched(jobset: KubeObject) -> bool:
    """Say whether no agent of the group can watch its worker: then no Pod tells its steps."""
    return not any(is_watched(member, agent) for member in group_of(jobset) if (agent := member.agent) is not None)


def check_unwatched(jobset: KubeObject) -> Iterator[Finding]:
    """Yield what judges the numbers of the ranks where nobody looks at them."""
    try:
        parsed = as_stored(jobset)
        is_blind = is_unwatched(jobset)
    except RemoteProtocolError:
        return  # has a finding of its own
    if is_blind and restart_on(parsed.annotations):
        path, found = f'metadata.annotations["{wire.RESTART_ON}"]', "kinds of notices, and no agent that sees steps"
        yield Finding("no-effect", path, found, "an agent that watches its worker", _GUARDED)


def _watchdog(member: Member, agent: Container) -> tuple[StallSettings, WatchSettings, str]:
    """Return the limits that hold, from wherever they come; the agent's own settings; why it cannot watch, or ""."""
    config = AgentConfig.from_env(settled_environment(agent))
    own = config.watch or WatchSettings(folder=config.progress_dir)
    text = member.annotations.get(wire.STALL)
    limits, _ = annotated_limits(own, StallSettings(), text if isinstance(text, str) else None)
    problem = UNWATCHED if member.place == "sidecar" and not config.link_file else ""
    if not problem and not own.pattern and not own.folder.startswith("/"):
        problem = "expected EPOCH_FILE or LINK_FILE on an emptyDir, or PROGRESS_FILE, but none is set"
    return limits, own, problem


def _place(agent: Container, own: WatchSettings, *, number: int) -> str:
    """Return where a limit comes from."""
    if own.decides[number]:
        return agent.path_of((STALL_AFTER, START_STALL_AFTER)[number])
    return f'metadata.annotations["{wire.STALL}"]'
