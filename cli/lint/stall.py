"""Check the watchdog's limits where they stand: variables of the agent, annotations of the JobSet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.watch_settings import STALL_AFTER, START_STALL_AFTER, WatchSettings, annotated_limits
from inplace.agent.start.sidecar import UNWATCHED
from inplace.cli.lint.agent import settled_environment
from inplace.cli.lint.stored import as_stored
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container, Member, group_of
from inplace.common.jobset.notices import restart_on
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire

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
