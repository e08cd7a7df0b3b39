"""Check what an agent, a guard and a worker do with what they are given, by their own readers. Pure.

The values of variables from a ConfigMap or a Secret are not known here and count as correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from inplace.agent.settings.arguments import STANDBY_ON, ArgumentsError, WorkerOptions, parse
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.exit_code import UPSTREAM_RESTART_IN_PLACE
from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import IDENTITY
from inplace.common.injection.depth import kubelets_own, probed_too_early
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import RUN, Container, Member, field_path
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import UPSTREAM_PATH, UPSTREAM_PORT

_UPSTREAM: Final = {
    "STARTUP_PROBE_PATH": UPSTREAM_PATH,
    "STARTUP_PROBE_PORT": str(UPSTREAM_PORT),
    "IN_PLACE_RESTART_EXIT_CODE": str(UPSTREAM_RESTART_IN_PLACE),
}
_PROBLEM: Final = re.compile(r"(?P<name>\w+)[^:]*: expected (?P<needed>.*), (?:saw (?P<found>.*)|but it is not set)")


def settled_environment(agent: Container) -> dict[str, str]:
    """Return the agent's variables with what it takes when nothing is set.

    That is the mounted account's namespace, and upstream's defaults where no variable of ours switches to ours.
    """
    env = agent.values
    if env.get("MEMBERS"):
        env = {"JOB_COMPLETION_INDEX": "0"} | env  # which Kubernetes adds to each container of an Indexed Job
    if "NAMESPACE" in agent.env:
        return env
    return (_UPSTREAM if agent.has_upstream_names else {}) | env | {"NAMESPACE": "default"}


def config_of(agent: Container) -> AgentConfig | None:
    """Return the settings as the agent will read them; None when it will refuse them."""
    try:
        return AgentConfig.from_env(settled_environment(agent))
    except ConfigError:
        return None


def check_env(agent: Container) -> Iterator[Finding]:
    """Yield variables that are malformed or contradict each other; missing ones differ from what is injected."""
    env = settled_environment(agent)
    try:
        AgentConfig.from_env(env)
    except ConfigError as error:
        for problem in error.problems:
            yield from _refused(agent, env, problem)


def _refused(agent: Container, env: Mapping[str, str], problem: str) -> Iterator[Finding]:
    """Turn the agent's own words into a finding, unless the cluster fills the variable in."""
    said = _PROBLEM.fullmatch(problem)
    name = said["name"] if said else problem.partition(":")[0]
    comes_later = name in agent.env and name not in env
    is_missing = name in IDENTITY and name not in agent.env
    if not (comes_later or is_missing):
        found, needed = (
            (said["found"] or "nothing", said["needed"]) if said else (problem, "a setting that can be used")
        )
        yield Finding("agent-env", agent.path_of(name), found, needed, "correct it; docs/agent.md")


def check_agent(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield what an agent of either mode refuses, and what disturbs its barrier."""
    yield from check_env(agent)
    yield from _probed(member)
    yield from _ports(member, agent, config_of(agent))
    if member.place == "supervisor" and not agent.is_upstream_supervisor:
        yield from check_command(agent, RUN)


def _probed(member: Member) -> Iterator[Finding]:
    """Yield workers whose containers kubelet probes while no worker runs in them."""
    for worker in probed_too_early(member):
        fields = " and ".join(kubelets_own(worker))
        found = f"{fields} in a container that runs before its barrier lifts, and stays at a restart"
        fix = "use a sidecar"
        if member.sidecar_agent is not None:
            is_deep = member.sidecar_agent.restart_depth == wire.DEPTH_CONTAINERS
            fix = "let `inplace inject` add the agent's startup probe" if is_deep else f"set {wire.RESTART}: containers"
        fix += ", or let the probes wait longer than a barrier and a start do"
        needed = "a container that starts at the lift, for each run of its worker"
        yield Finding("worker-probe", worker.path, found, needed, fix)


def check_command(container: Container, subcommand: str) -> Iterator[Finding]:
    """Yield what the agent's program refuses of its arguments."""
    arguments = container.arguments(subcommand)
    if arguments is None:
        return
    try:
        parse(arguments, container.values)
    except ArgumentsError as error:
        needed = f"a command line that the {'guard' if subcommand == GUARD else 'agent'} accepts"
        yield Finding("agent-command", f"{container.path}.command", str(error), needed, "see inplace-agent --help")


def options_of(container: Container, verb: str) -> WorkerOptions | None:
    """Return a guard's or a supervisor's options; None where it is none, or they cannot be read (another rule's)."""
    arguments = container.arguments(verb)
    try:
        return parse(arguments, container.values) if arguments is not None else None
    except ArgumentsError:
        return None


def _ports(member: Member, agent: Container, config: AgentConfig | None) -> Iterator[Finding]:
    """Yield ports of others that the agent needs."""
    if config is None:
        return
    for container in member.every_container:
        for index, port in enumerate(container.raw.get("ports") or ()):
            if container.path != agent.path and port.get("containerPort") == config.barrier_port:
                path = f"{container.path}.ports[{index}].containerPort"
                needed, fix = "another port", "change it, or BARRIER_PORT and the startup probe"
                yield Finding("port-conflict", path, str(config.barrier_port), needed, fix)


_EPOCHS: Final = {f"metadata.annotations['{key}']" for key in (wire.EPOCH, wire.ATTEMPT)}


def check_start(worker: Container, agent: Container) -> Iterator[Finding]:
    """Yield a worker that only the agent's startup probe holds back."""
    if not agent.has_upstream_names:  # upstream's agent has no guards
        needed = "inplace-agent guard -- COMMAND"
        found = "the startup probe alone"
        if worker.has_entrypoint_guard:
            found = (
                "nothing: its image's ENTRYPOINT gets a guard if that program uses glibc, else the startup probe alone"
            )
        fix = "write the image's ENTRYPOINT as the command (`docker inspect` shows it)"
        if worker.raw.get("command"):
            fix = "remove the agent's container: `inplace inject` then adds it with a guard"
        yield Finding("worker-start", f"{worker.path}.command", found, needed, fix)


def check_guard(worker: Container, agent: Container) -> Iterator[Finding]:
    """Yield options that a guard refuses or cannot use, and variables that are one epoch behind below it."""
    yield from check_command(worker, GUARD)
    options = options_of(worker, GUARD)
    if options is not None and options.standby == STANDBY_ON and agent.restart_depth != wire.DEPTH_PROCESS:
        found = "--standby in a container that ends with its worker, so that no process can wait in it"
        needed = f"{wire.RESTART}: {wire.DEPTH_PROCESS}"
        yield Finding("no-effect", f"{worker.path}.command", found, needed, "annotate the JobSet")
    for name, entry in worker.env.items() if worker.calls(GUARD) else ():
        if field_path(entry) in _EPOCHS:
            fix = "read INPLACE_EPOCH instead, and remove it"
            yield Finding("guard-epoch", worker.path_of(name), f"fieldRef {field_path(entry)}", "INPLACE_EPOCH", fix)
