"""Check the agent's container with the agent's own code. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.agent.barrier.http import preferred_wait_s
from inplace.agent.settings.arguments import ArgumentsError, WorkerOptions, parse
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.exit_code import ExitCode
from inplace.cli.lint.env import check_env, settled_environment
from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import CONTAINER_RESTART
from inplace.common.injection.depth import holds_back, kubelets_own, probed_too_early
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import RUN, Container, Member
from inplace.common.injection.restart_rules import CODES, Ending, codes_that, ending, spell
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PATH, UPSTREAM_PATH, WORKER_QUERY

PATIENCE_S: Final = 24 * 3600
PERIOD_S: Final = 1
_PROBE_DEFAULTS: Final = {"periodSeconds": 10, "failureThreshold": 3, "initialDelaySeconds": 0}  # core/v1


def check_sidecar(member: Member, agent: Container, group_pods: int) -> Iterator[Finding]:
    """Yield problems of an agent beside its worker."""
    alone = codes_that(agent.raw, Ending.ALONE_RESTARTS, CODES[1:]) if agent.is_sidecar else []
    if alone:
        fix = "add action RestartAllContainers for exitCodes NotIn [0]"
        found = f"exit codes {spell(alone)}, after which it alone starts again"
        path = f"{agent.path}.restartPolicyRules"
        yield Finding("agent-restart-rules", path, found, "a restart of all containers after 1-255", fix)
    if agent.raw.get("livenessProbe"):
        yield Finding("liveness-probe", f"{agent.path}.livenessProbe", "a probe", "none", "remove it")
    yield from check_env(agent, group_pods)
    yield from _epoch_file(member, agent)
    config = _config(agent)
    if holds_back(member) or not member.is_guarded:
        yield from _probe(agent, config)
    else:
        yield from _probes_beside_guard(agent)
    yield from _probed(member)
    yield from _ports(member, agent, config)


def check_supervisor(member: Member, agent: Container, group_pods: int) -> Iterator[Finding]:
    """Yield problems of an agent around its worker."""
    yield from check_env(agent, group_pods)
    yield from _epoch_file(member, agent)
    yield from _ports(member, agent, _config(agent))
    yield from _probed(member)
    if not agent.is_upstream_supervisor:
        yield from check_command(agent, RUN)
        yield from _container_restart(member, agent)


def _probed(member: Member) -> Iterator[Finding]:
    """Yield workers whose containers kubelet probes while no worker runs in them."""
    for worker in probed_too_early(member):
        fields = " and ".join(kubelets_own(worker))
        found = f"{fields} in a container that runs before its barrier lifts, and stays at a restart"
        fix = "use a sidecar"
        if member.sidecar_agent is not None:
            is_deep = member.sidecar_agent.restart_depth == wire.DEPTH_CONTAINERS
            fix = (
                "let `inplace inject` add the agent's startup probe"
                if is_deep
                else f"set {wire.RESTART_DEPTH}: containers"
            )
        fix += ", or let the probes wait longer than a barrier and a start do"
        needed = "a container that starts at the lift, for each run of its worker"
        yield Finding("worker-probe", worker.path, found, needed, fix)


def _container_restart(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a supervisor without a rule that starts its container again, or without the exit code of that rule."""
    text = agent.values.get(CONTAINER_RESTART)
    if text is None and ExitCode.RESTART_IN_PLACE in final_codes(member.job_spec, agent.name):
        return  # the Pod ends at nearly every failure, and `inject` adds nothing
    if text is None:
        needed = "the exit code after which kubelet starts the container again"
        fix = "`inplace inject --mode supervisor` adds it, and a rule with action Restart (Kubernetes 1.35)"
        yield Finding("supervisor-restarts", agent.path_of(CONTAINER_RESTART), "nothing", needed, fix)
        return
    policy = str(member.pod_spec.get("restartPolicy"))
    if text.isdecimal() and ending(agent.raw, int(text), policy) is Ending.STAYS:
        path, needed = f"{agent.path}.restartPolicyRules", f"action Restart for exitCodes In [{text}]"
        fix = "add the rule, with restartPolicy: Never; or remove the variable"
        yield Finding("supervisor-restarts", path, f"no rule for exit code {text}", needed, fix)


def check_command(container: Container, subcommand: str) -> Iterator[Finding]:
    """Yield what the agent's program refuses of its arguments."""
    arguments = container.arguments(subcommand)
    if arguments is None:
        return
    try:
        parse(arguments, container.values)
    except ArgumentsError as error:
        rule, who = ("guard-command", "guard") if subcommand == GUARD else ("agent-command", "agent")
        needed, fix = f"a command line that the {who} accepts", "see inplace-agent --help"
        yield Finding(rule, f"{container.path}.command", str(error), needed, fix)


def options_of(container: Container, verb: str) -> WorkerOptions | None:
    """Return a guard's or a supervisor's options; None where it is none, or they cannot be read (another rule's)."""
    arguments = container.arguments(verb)
    try:
        return parse(arguments, container.values) if arguments is not None else None
    except ArgumentsError:
        return None


def _config(agent: Container) -> AgentConfig | None:
    """Return the settings as the agent will read them; None when it will refuse them."""
    try:
        return AgentConfig.from_env(settled_environment(agent))
    except ConfigError:
        return None


def _probe(agent: Container, config: AgentConfig | None) -> Iterator[Finding]:
    """Yield reasons why the startup probe is not the barrier."""
    path, probe = f"{agent.path}.startupProbe", agent.raw.get("startupProbe") or {}
    get = probe.get("httpGet")
    if not isinstance(get, dict):
        found = next((kind for kind in ("exec", "tcpSocket", "grpc") if kind in probe), "nothing")
        fix = f"set httpGet: {{path: {OUR_PATH}, port: 8080}}"
        yield Finding("startup-probe", path, found, "httpGet of the barrier", fix)
        return
    if config is not None:
        yield from _target(agent, get, config)
    timeout_s = _number(probe, "timeoutSeconds", 1)
    if preferred_wait_s(_prefer(get)) >= timeout_s:
        found, fix = f"{timeout_s:g} s for an answer that may be held as long", "raise it above the header's wait"
        yield Finding("startup-probe-hold", f"{path}.timeoutSeconds", found, "more than Prefer: wait", fix)
    times = {name: _number(probe, name, default) for name, default in _PROBE_DEFAULTS.items()}
    if times["periodSeconds"] > PERIOD_S or times["initialDelaySeconds"] > 0:
        name = "periodSeconds" if times["periodSeconds"] > PERIOD_S else "initialDelaySeconds"
        found, needed = f"{times[name]:g} s", f"{PERIOD_S if name == 'periodSeconds' else 0} s"
        yield Finding("startup-probe-period", f"{path}.{name}", found, needed, f"set it to {needed[:-2]}")
    if times["periodSeconds"] * times["failureThreshold"] < PATIENCE_S:
        found = f"{times['failureThreshold']:g} probes, {times['periodSeconds']:g} s apart"
        fix = "set it to 2147483647"
        yield Finding("startup-probe-patience", f"{path}.failureThreshold", found, f"at least {PATIENCE_S} s", fix)


def _probes_beside_guard(agent: Container) -> Iterator[Finding]:
    """Yield what slows a guarded Pod down, and a Pod that is ready before its worker may start."""
    if agent.raw.get("startupProbe"):
        fix = "remove it: the guard holds the worker back"
        yield Finding("guard-startup-probe", f"{agent.path}.startupProbe", "a probe", "none", fix)
    if not (agent.raw.get("readinessProbe") or {}).get("httpGet"):
        fix = f"set httpGet: {{path: {OUR_PATH}?{WORKER_QUERY}, port: 8080}}; `inplace inject` adds it"
        yield Finding("guard-readiness", f"{agent.path}.readinessProbe", "nothing", "httpGet of the barrier", fix)


def _target(agent: Container, get: Mapping[str, Any], config: AgentConfig) -> Iterator[Finding]:
    """Yield a probe that does not ask the agent; the barrier answers on both default paths and the configured one."""
    path = f"{agent.path}.startupProbe.httpGet"
    paths = {config.barrier_path, OUR_PATH, UPSTREAM_PATH}
    if get.get("path") not in paths:
        needed = config.barrier_path
        yield Finding("startup-probe-target", f"{path}.path", shown(get.get("path")), needed, f"set it to {needed}")
    named = {port.get("name"): port.get("containerPort") for port in agent.raw.get("ports") or ()}
    port = named.get(get.get("port"), get.get("port"))
    if str(port) != str(config.barrier_port):
        needed = str(config.barrier_port)
        fix = f"set it to {needed}, or BARRIER_PORT to the probe's"
        yield Finding("startup-probe-target", f"{path}.port", shown(get.get("port")), needed, fix)
    if get.get("scheme", "HTTP") != "HTTP":
        yield Finding("startup-probe-target", f"{path}.scheme", shown(get["scheme"]), "HTTP", "remove it")


def _prefer(get: Mapping[str, Any]) -> str:
    """Return the probe's header Prefer, "" when it has none."""
    headers = (one for one in get.get("httpHeaders") or () if str(one.get("name", "")).lower() == "prefer")
    return ",".join(str(one.get("value", "")) for one in headers)


def _epoch_file(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a last announcement that is kept nowhere, too short or too long."""
    path, file = agent.path_of("EPOCH_FILE"), agent.env.get("EPOCH_FILE", {}).get("value")
    if not isinstance(file, str) or not file:
        if member.mode == "supervisor" and CONTAINER_RESTART not in agent.env:
            return  # it remembers, and its container does not restart
        fix = "set it to a file on an emptyDir; `inplace inject` adds both"
        yield Finding("epoch-file", path, "nothing", "a file on an emptyDir", fix)
        return
    mount = agent.mount_of(file)
    if mount is None:
        fix = "mount an emptyDir at its folder"
        yield Finding("epoch-file-volume", path, f"{file}, in the container itself", "a file on an emptyDir", fix)
        return
    volume: Mapping[str, Any] = next(
        (one for one in member.pod_spec.get("volumes") or () if one.get("name") == mount.get("name")), {}
    )
    if "emptyDir" not in volume:
        kind = next((kind for kind in volume if kind != "name"), "no such volume")
        fix = "mount an emptyDir there: other Pods must not see this Pod's epoch"
        yield Finding("epoch-file-volume", path, f"{file} on {kind}", "a file on an emptyDir", fix)
    elif mount.get("readOnly"):
        yield Finding("epoch-file-volume", path, f"{file}, read-only", "a file that can be written", "remove readOnly")
    for worker in member.workers if agent.is_init else ():
        for position, other in enumerate(worker.raw.get("volumeMounts") or ()):
            if other.get("name") == mount.get("name") and not (other.get("readOnly") or other.get("subPath")):
                path, needed = f"{worker.path}.volumeMounts[{position}]", "readOnly: true"
                found = f"{other['name']}, where the agent has {file}"
                fix = f"set that, and mount another emptyDir at {file.rpartition('/')[0]}/progress in both containers"
                yield Finding("epoch-file-worker", path, found, needed, fix)


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


def _number(probe: Mapping[str, Any], name: str, default: int) -> float:
    value = probe.get(name)
    return value if isinstance(value, int | float) else default
