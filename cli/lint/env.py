"""
Check the agent's variables, as kubelet will fill them in, with the agent's own reader.

The values of variables from a ConfigMap or a Secret are not known here and count as correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.exit_code import UPSTREAM_RESTART_IN_PLACE
from inplace.agent.settings.herd import GROUP_FREE
from inplace.common.injection.agent_pieces import ADDRESS, HERD, IDENTITY
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_roles import Container, field_path
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import UPSTREAM_PATH, UPSTREAM_PORT

_UPSTREAM: Final = {
    "STARTUP_PROBE_PATH": UPSTREAM_PATH,
    "STARTUP_PROBE_PORT": str(UPSTREAM_PORT),
    "IN_PLACE_RESTART_EXIT_CODE": str(UPSTREAM_RESTART_IN_PLACE),
}
_PROBLEM: Final = re.compile(r"(?P<name>\w+)[^:]*: expected (?P<needed>.*), (?:saw (?P<found>.*)|but it is not set)")


_FIELDS: Final[Mapping[str, str]] = {**IDENTITY, **HERD, **ADDRESS}  # that variables must come from
_MAY_BE_FIXED: Final = ("NAMESPACE", "JOBSET_NAME", *HERD, *ADDRESS)
_RECOMMENDED: Final = ("POD_UID", "JOBSET_UID", "PREVIOUS_EPOCH")
_LOOPBACK: Final = ("127.", "::1", "localhost")


def settled_environment(agent: Container) -> dict[str, str]:
    """Return the agent's variables with what it takes when nothing is set.

    That is the mounted account's namespace, and upstream's defaults where no variable of ours switches to ours.
    """
    env = agent.values
    if "NAMESPACE" in agent.env:
        return env
    return (_UPSTREAM if agent.has_upstream_names else {}) | env | {"NAMESPACE": "default"}


def check_env(agent: Container, group_pods: int) -> Iterator[Finding]:
    """Yield variables that are missing, malformed, contradict each other or come from the wrong place."""
    env = settled_environment(agent)
    try:
        AgentConfig.from_env(env)
    except ConfigError as error:
        for problem in error.problems:
            yield from _refused(agent, env, problem)
    for name in _FIELDS:
        if name in agent.env:
            yield from _misfilled(agent, name)
    for name in _RECOMMENDED:
        if name not in agent.env:
            needed = f"fieldRef {_FIELDS[name]}"
            yield Finding("agent-env-recommended", agent.path_of(name), "nothing", needed, "`inplace inject` adds it")
    if group_pods > GROUP_FREE and "GROUP_SIZE" not in agent.env and not env.get("START_WINDOW_S"):
        path, needed = agent.path_of("GROUP_SIZE"), f"fieldRef {_FIELDS['GROUP_SIZE']}"
        fix = f'add it and GROUP_OFFSET; or apply deploy/apf and annotate {wire.START_WINDOW}: "0"'
        yield Finding("herd", path, f"nothing, for {group_pods} Pods", needed, fix)


def _refused(agent: Container, env: Mapping[str, str], problem: str) -> Iterator[Finding]:
    """Turn the agent's own words into a finding, unless the cluster fills the variable in."""
    said = _PROBLEM.fullmatch(problem)
    name = said["name"] if said else problem.partition(":")[0]
    comes_later = name in agent.env and name not in env
    if not comes_later:
        found, needed = (
            (said["found"] or "nothing", said["needed"]) if said else (problem, "a setting that can be used")
        )
        yield Finding("agent-env", agent.path_of(name), found, needed, "correct it; docs/agent.md")


def _misfilled(agent: Container, name: str) -> Iterator[Finding]:
    entry, needed = agent.env[name], _FIELDS[name]
    field = field_path(entry)
    allowed = {needed}
    if name != "PREVIOUS_EPOCH":
        allowed.add(needed.replace("metadata.annotations[", "metadata.labels["))
    found = None
    if field is not None:
        found = f"fieldRef {field}" if field not in allowed else None
    elif "value" in entry:
        value = entry["value"]
        is_other = name == "JOBSET_NAME" and value != agent.annotations[wire.JOBSET_NAME]
        is_loopback = name == "BARRIER_ADDRESS" and str(value).startswith(_LOOPBACK)
        found = shown(value) if name not in _MAY_BE_FIXED or is_other or is_loopback else None
    if found is not None:
        fix = f"use valueFrom: {{fieldRef: {{fieldPath: {needed}}}}}"
        yield Finding("agent-env-source", agent.path_of(name), found, f"fieldRef {needed}", fix)
