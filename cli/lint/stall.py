"""Check the watchdog's limits where they stand: options and variables of the agent, annotations of the JobSet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.arguments import ArgumentsError, RunOptions, parse
from inplace.agent.config import AgentConfig, ConfigError
from inplace.agent.sidecar import UNWATCHED
from inplace.agent.watch_settings import STALL_AFTER, START_STALL_AFTER, WatchSettings, annotated_limits
from inplace.cli.lint.env import agent_environment, settled_environment
from inplace.cli.manifests.finding import Finding
from inplace.cli.manifests.pod_roles import RUN, Container, Member
from inplace.common import wire
from inplace.common.epoch.rank import StallSettings
from inplace.common.kube.resources import KubeObject

SHORT_S: Final = 10.0  # below it an evaluation, a checkpoint or a slow disk is soon a stall
_ANNOTATIONS: Final = (wire.STALL_AFTER, wire.START_STALL_AFTER)


def check_stall(member: Member, agent: Container, jobset: KubeObject) -> Iterator[Finding]:
    """Yield limits that the agent refuses, that nobody can watch by, and those that are likely too short.

    Args:
        member: the Pods.
        agent: their agent's container.
        jobset: has the annotations.
    """
    metadata = jobset.get("metadata") or {}
    annotations, name = metadata.get("annotations") or {}, str(metadata.get("name", ""))
    arguments = agent.arguments(RUN) if member.mode == "supervisor" and not agent.is_upstream_supervisor else None
    try:
        options = parse(arguments, agent_environment(agent, name)) if arguments is not None else None
    except ArgumentsError:
        return  # has a finding of its own
    given = dict(options.variables) if isinstance(options, RunOptions) else {}
    env = settled_environment(agent, name) | given
    try:
        config = AgentConfig.from_env(env)
    except ConfigError as error:
        for problem in error.problems if given else ():
            if problem.partition(":")[0] in given:
                path, fix = f"{agent.path}.command", "see inplace-agent --help"
                yield Finding("agent-command", path, problem, "options that the agent accepts", fix)
        return
    own = config.watch or WatchSettings(folder=config.progress_dir)
    texts = [text if isinstance(text := annotations.get(name), str) else None for name in _ANNOTATIONS]
    limits, _ = annotated_limits(own, StallSettings(), (texts[0], texts[1]))
    if not limits.are_set:
        return
    where = _place(agent, given, own, number=0 if limits.stall_after_s is not None else 1)
    unwatched = UNWATCHED if member.mode == "sidecar" and not config.link_file else ""
    if not unwatched and not own.pattern and not own.folder.startswith("/"):
        unwatched = "expected EPOCH_FILE or LINK_FILE on an emptyDir, or PROGRESS_FILE, but none is set"
    if unwatched:
        fix = "use `inplace inject`, whose worker has a guard; or remove the limit"
        yield Finding("stall-unwatched", where, "a limit", unwatched, fix)
        return
    stall_s, start_s = limits.stall_after_s, limits.start_stall_after_s
    if stall_s is not None and stall_s < SHORT_S:
        fix = "take some ten times the slowest step"
        yield Finding("stall-short", where, f"{stall_s:g} s between two steps", f"at least {SHORT_S:g} s", fix)
    if stall_s is not None and start_s is not None and start_s < stall_s:
        where = _place(agent, given, own, number=1)
        fix = "raise it: the first step loads and compiles"
        yield Finding("stall-start", where, f"{start_s:g} s", f"at least {stall_s:g} s, as between two steps", fix)


def _place(agent: Container, given: dict[str, str], own: WatchSettings, *, number: int) -> str:
    """Return where a limit comes from."""
    variable = (STALL_AFTER, START_STALL_AFTER)[number]
    if variable in given:
        return f"{agent.path}.command"
    if own.decides[number]:
        return f'{agent.path}.env[name="{variable}"]'
    return f'metadata.annotations["{_ANNOTATIONS[number]}"]'
