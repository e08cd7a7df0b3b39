"""
Read the pieces of a template that injection makes, each as a text that tells whether it is as good. Pure.

A legal choice has the same text as what the controller makes: another port, file or volume, a patient probe, a variable
from a ConfigMap. What only the user decides is no piece: images, resources, more variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from inplace.agent.barrier.http import preferred_wait_s
from inplace.agent.settings.address import progress_dir
from inplace.agent.settings.command import PROGRESS_DIR
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.settings.herd import GROUP_FREE
from inplace.cli.lint.agent import config_of, settled_environment
from inplace.common.agent_command import GUARD
from inplace.common.injection import index_backoff
from inplace.common.injection.agent_pieces import (
    ADDRESS,
    CONTAINER_RESTART,
    HERD,
    IDENTITY,
    JOB_FIELDS,
    LINK_FILE,
    PREFIX,
)
from inplace.common.injection.depth import holds_back, probed_too_early
from inplace.common.injection.finding import shown
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import Container, Member, field_path
from inplace.common.injection.policies import CHECK, CHECKS, checks
from inplace.common.injection.restart_rules import CODES, RESTART_ALL, Ending, codes_that, ending, spell
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PATH, UPSTREAM_PATH, WORKER_QUERY
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE

NOTHING: Final = shown(None)
PATIENCE_S: Final = 24 * 3600
PERIOD_S: Final = 1
_PROBE_DEFAULTS: Final = {"periodSeconds": 10, "failureThreshold": 3, "initialDelaySeconds": 0}  # core/v1
_FIELDS: Final[Mapping[str, str]] = {**IDENTITY, **HERD, **ADDRESS}  # that variables must come from
_MAY_BE_FIXED: Final = ("NAMESPACE", "JOBSET_NAME", *HERD, *ADDRESS)
_REQUIRED: Final = ("POD_NAME", "JOBSET_NAME")
_RECOMMENDED: Final = ("POD_UID", "JOBSET_UID", "PREVIOUS_EPOCH")
_LOOPBACK: Final = ("127.", "::1", "localhost")
_KEPT: Final = "a file on an emptyDir"
_SHARED: Final = "one emptyDir in both containers"


class Reason(Enum):
    """What a difference costs: an error where the restart does not work or is not safe, else a warning."""

    BACKOFF_LIMIT = "error", "a failed Pod must be replaced; with a limit it fails its Job, and all Pods are recreated"
    REPLACEMENT = "error", "a new Pod that starts before the old one has ended is a second Pod in its slot"
    COMPLETIONS = "error", "the barrier waits for all Pods of a Job, so all must run at the same time"
    COMPLETION_MODE = "error", "the barrier counts Pods by their completion index"
    INDEX_LIMIT = "error", "the Job never replaces an index that failed for good, and the barrier waits for ever"
    POD_POLICY = "error", "under OnFailure a Job counts the restarts of containers, and fails at its backoffLimit"
    PLACEMENT = "error", "only beside a sidecar does kubelet start the workers after its barrier"
    ORDER = "warning", "an init container after the agent runs only when the barrier has lifted, and the workers wait"
    REFUSED = "error", "the agent refuses its environment and ends with exit code 2 at every start"
    SOURCE = "error", "the variable must come from the Pod's own metadata"
    RECOMMENDED = "warning", "without it the agent works, but protects less, or needs one request more"
    HERD = (
        "warning",
        (
            "more than 300 agents at once overflow one account's queue in the API server (docs/adr/0010); or apply "
            f"deploy/apf and annotate {wire.RESTART}: window=0"
        ),
    )
    SETTING = "error", "an annotation changes nothing if the variable does not read it (docs/adr/0084); or remove it"
    NO_EPOCH_FILE = (
        "warning",
        "kubelet may give the agent an older announcement; a file is never behind (docs/adr/0007)",
    )
    EPOCH_FILE = "error", "the file must survive the containers and end with the Pod, and no other Pod may see it"
    WRITABLE = (
        "warning",
        (
            "a worker that can write the agent's memory, or put another socket in the link's place, can hold its group "
            "up, or run on beside the next epoch (docs/adr/0007); its ranks write on an emptyDir at progress/"
        ),
    )
    LINK = "error", "guard and agent meet at one socket; if they do not, the worker never starts"
    NO_GUARD = "error", "beside guarded workers no startup probe holds this one back: it starts at once"
    PROGRAM = "error", "the worker's command is a file that no container creates"
    AGENT_ALONE = "error", "an agent that restarts alone announces that the old worker has ended while it still runs"
    LIVENESS = (
        "error",
        (
            "after a liveness probe restarted the agent, kubelet may consider it started before its barrier lifted "
            "(kubernetes #141155); the agent needs no liveness probe"
        ),
    )
    ALONE = "error", "a worker that restarts alone runs twice in one epoch"
    SUCCESS = "error", "a worker that ends with success restarts its group again and again"
    NOT_IN_PLACE = "warning", "a failing worker fails its Pod, and the Pod must be recreated"
    CHECK = "error", "a Pod that fails its check must end, or it starts again on the same node, again and again"
    AWAITED = (
        "error",
        "the agent announces before its guards say that this Pod may, or waits for ever for one that never comes",
    )
    SUPERVISOR = (
        "warning",
        (
            "a worker that fails again and again gets the same container each time, also where only a new one helps, "
            "as after the loss of its GPUs (docs/adr/0064; the rule needs Kubernetes 1.35)"
        ),
    )
    PROBE = "error", "the startup probe is the barrier: without it the worker starts at once"
    TARGET = "error", "the probe must ask the agent; any other target never succeeds, or succeeds too early"
    PATIENCE = "warning", "the group waits at the barrier for its last Pod, and a new node may take a day"
    PERIOD = "warning", "the worker starts up to a whole period after the barrier has lifted"
    HOLD = "warning", "kubelet closes the connection before the agent answers (Prefer: wait), and asks again"
    SECOND_BARRIER = "warning", "a guard holds the worker back; behind a probe it starts up to a second later"
    READINESS = "warning", "the Pod is ready before its barrier lifts; dependsOn and Services take it for running"

    def __init__(self, severity: Literal["error", "warning"], why: str) -> None:
        self.severity: Literal["error", "warning"] = severity
        self.why = why


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece.

    Args:
        place: the path of its container, Pod or Job template.
        key: where it stands there; "" for the place itself.
        text: what it is.
        reason: what it costs if this is not what the controller makes.
    """

    place: str
    key: str
    text: str
    reason: Reason


def pieces_of(member: Member, group_pods: int) -> Iterator[Piece]:
    """Yield the pieces of one replicatedJob, those of the agent if it is there once."""
    yield from _job(member)
    agent = member.agent
    if agent is None or (member.supervisor is not None and member.sidecar_agent is not None):
        return
    yield from _identity(agent, group_pods)
    yield from _epoch_file(member, agent)
    if member.place == "supervisor":
        if not agent.is_upstream_supervisor:
            yield from _supervisor(member, agent)
        return
    yield from _sidecar(member, agent)
    for worker in member.workers:
        if worker not in member.helpers:
            yield from _worker(member, worker, agent)


def _job(member: Member) -> Iterator[Piece]:
    spec, path = member.job_spec, member.job_path
    for field, reason in zip(JOB_FIELDS, (Reason.BACKOFF_LIMIT, Reason.REPLACEMENT), strict=True):
        yield Piece(path, field, shown(spec.get(field)), reason)
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    is_whole = isinstance(parallelism, int) and parallelism == completions
    text = "as parallelism" if is_whole else f"{shown(completions)} and parallelism {shown(parallelism)}"
    yield Piece(path, "completions", text, Reason.COMPLETIONS)
    yield Piece(path, "completionMode", shown(spec.get("completionMode") or "Indexed"), Reason.COMPLETION_MODE)
    limit = spec[index_backoff.FIELD] if index_backoff.is_limited(spec) else index_backoff.LIMIT
    yield Piece(path, index_backoff.FIELD, shown(limit), Reason.INDEX_LIMIT)
    # Where each container has a policy, and the Job counts without a limit, the Pod's own rules nothing.
    rules_nothing = spec.get("backoffLimit") == JOB_FIELDS["backoffLimit"] and all(
        container.raw.get("restartPolicy") for container in member.containers
    )
    policy = "Never" if rules_nothing else member.pod_spec.get("restartPolicy")
    yield Piece(member.pod_path, "restartPolicy", shown(policy), Reason.POD_POLICY)


def _identity(agent: Container, group_pods: int) -> Iterator[Piece]:
    """Yield where the agent's variables come from."""
    is_herd = group_pods > GROUP_FREE and not settled_environment(agent).get("START_WINDOW_S")
    missing = dict.fromkeys(_REQUIRED, Reason.REFUSED) | dict.fromkeys(_RECOMMENDED, Reason.RECOMMENDED)
    missing |= {"GROUP_SIZE": Reason.HERD} if is_herd else {}
    for name, field in _FIELDS.items():
        entry = agent.env.get(name)
        is_there = entry is not None or name not in missing
        text = (_misfilled(agent, name) if entry is not None else "") or f"fieldRef {field}"
        yield Piece(agent.path, env(name), text if is_there else NOTHING, Reason.SOURCE if is_there else missing[name])


def _misfilled(agent: Container, name: str) -> str:
    """Return what a variable wrongly is; "" for a value that may be right."""
    entry, needed = agent.env[name], _FIELDS[name]
    if (field := field_path(entry)) is not None:
        may_be_label = name != "PREVIOUS_EPOCH" and field == needed.replace(".annotations[", ".labels[")
        return "" if field == needed or may_be_label else f"fieldRef {field}"
    if "value" not in entry:
        return ""
    value = entry["value"]
    is_other = name == "JOBSET_NAME" and value != agent.annotations[wire.JOBSET_NAME]
    is_loopback = name == "BARRIER_ADDRESS" and str(value).startswith(_LOOPBACK)
    return shown(value) if name not in _MAY_BE_FIXED or is_other or is_loopback else ""


def _epoch_file(member: Member, agent: Container) -> Iterator[Piece]:
    """Yield where the last announcement is kept, and which workers can write there."""
    key, file = env("EPOCH_FILE"), agent.env.get("EPOCH_FILE", {}).get("value")
    if not isinstance(file, str) or not file:
        # A supervisor whose container never starts again remembers.
        if member.place != "supervisor" or CONTAINER_RESTART in agent.env:
            yield Piece(agent.path, key, NOTHING, Reason.NO_EPOCH_FILE)
        return
    mount = agent.mount_of(file)
    text = _KEPT
    if mount is None:
        text = f"{file}, in the container itself"
    elif (kind := _kind_of(member, mount)) != "emptyDir":
        text = f"{file} on {kind}"
    elif mount.get("readOnly"):
        text = f"{file}, read-only"
    yield Piece(agent.path, key, text, Reason.EPOCH_FILE)
    if mount is None or not agent.is_init:
        return
    for worker in member.workers:
        mounts = [one for one in worker.raw.get("volumeMounts") or () if one.get("name") == mount.get("name")]
        is_writable = any(not (one.get("readOnly") or one.get("subPath")) for one in mounts)
        text = f"nothing, for {mount.get('name')}, where the agent has {file}" if is_writable else "true"
        yield Piece(worker.path, "volumeMounts.readOnly", text, Reason.WRITABLE)


def _kind_of(member: Member, mount: Mapping[str, Any]) -> str:
    """Return the kind of a mount's volume."""
    volumes = member.pod_spec.get("volumes") or ()
    volume: Mapping[str, Any] = next((one for one in volumes if one.get("name") == mount.get("name")), {})
    return next((kind for kind in volume if kind != "name"), "no such volume")


def _supervisor(member: Member, agent: Container) -> Iterator[Piece]:
    """Yield the exit code after which kubelet starts a supervisor's container again, and the rule for it."""
    code = agent.values.get(CONTAINER_RESTART)
    if code is None and ExitCode.RESTART_IN_PLACE in final_codes(member.job_spec, agent.name):
        return  # the Pod ends at nearly every failure, and `inject` adds nothing
    yield Piece(agent.path, env(CONTAINER_RESTART), NOTHING if code is None else code, Reason.SUPERVISOR)
    if code is not None and code.isdecimal():
        stays = ending(agent.raw, int(code), str(member.pod_spec.get("restartPolicy"))) is Ending.STAYS
        text = f"no rule for exit code {code}" if stays else f"action Restart for exitCodes In [{code}]"
        yield _rules(member, agent, text, Reason.SUPERVISOR)


def _sidecar(member: Member, agent: Container) -> Iterator[Piece]:
    """Yield place, barrier and link of an agent beside its worker."""
    kind = f"an init container with restartPolicy {shown(agent.raw.get('restartPolicy'))}"
    yield Piece(agent.path, "", kind if agent.is_init else "a regular container", Reason.PLACEMENT)
    names = [container.name for container in member.inits]
    inits = member.inits[names.index(agent.name) + 1 :] if agent.is_init else ()
    behind = ", ".join(container.name for container in inits if not container.is_sidecar)
    text = f"{behind} behind {agent.name}" if behind else f"{agent.name} behind the other init containers"
    yield Piece(member.pod_path, "initContainers", text, Reason.ORDER)
    if holds_back(member) or not member.is_guarded:
        yield from _probe(agent, config_of(agent))
    elif agent.raw.get("startupProbe") or not probed_too_early(member):  # else `worker-probe` says it
        text = "a probe" if agent.raw.get("startupProbe") else "no probe"
        yield Piece(agent.path, "startupProbe", text, Reason.SECOND_BARRIER)
    if member.is_guarded and not holds_back(member):
        is_asked = (agent.raw.get("readinessProbe") or {}).get("httpGet")
        text = f"httpGet {OUR_PATH}?{WORKER_QUERY}" if is_asked else NOTHING
        yield Piece(agent.path, "readinessProbe", text, Reason.READINESS)
    if not member.does_without_rules:
        alone = codes_that(agent.raw, Ending.ALONE_RESTARTS, CODES[1:]) if agent.is_sidecar else []
        text = _alone(alone) if alone else f"action {RESTART_ALL} for exitCodes NotIn [0]"
        yield Piece(agent.path, "restartPolicyRules", text, Reason.AGENT_ALONE)
        text = "a probe" if agent.raw.get("livenessProbe") else "no probe"
        yield Piece(agent.path, "livenessProbe", text, Reason.LIVENESS)
    if member.is_guarded:
        link = agent.env.get("LINK_FILE", {}).get("value")
        yield Piece(agent.path, env("LINK_FILE"), LINK_FILE if link else NOTHING, Reason.LINK)
    yield Piece(agent.path, env(CHECKS), settled_environment(agent).get(CHECKS) or "0", Reason.AWAITED)


def _probe(agent: Container, config: AgentConfig | None) -> Iterator[Piece]:
    """Yield what makes the startup probe the barrier."""
    place, probe = agent.path, agent.raw.get("startupProbe") or {}
    get = probe.get("httpGet")
    if not isinstance(get, dict):
        kind = next((kind for kind in ("exec", "tcpSocket", "grpc") if kind in probe), NOTHING)
        yield Piece(place, "startupProbe", kind, Reason.PROBE)
        return
    yield Piece(place, "startupProbe", f"httpGet of {OUR_PATH}", Reason.PROBE)
    if config is not None:  # the barrier answers on both default paths and the configured one
        path = OUR_PATH if get.get("path") in {config.barrier_path, OUR_PATH, UPSTREAM_PATH} else get.get("path")
        yield Piece(place, "startupProbe.httpGet.path", shown(path), Reason.TARGET)
        named = {port.get("name"): port.get("containerPort") for port in agent.raw.get("ports") or ()}
        is_ours = str(named.get(get.get("port"), get.get("port"))) == str(config.barrier_port)
        port = "that of BARRIER_PORT" if is_ours else f"{shown(get.get('port'))}, BARRIER_PORT is {config.barrier_port}"
        yield Piece(place, "startupProbe.httpGet.port", port, Reason.TARGET)
        yield Piece(place, "startupProbe.httpGet.scheme", shown(get.get("scheme", "HTTP")), Reason.TARGET)
    timeout_s = _number(probe, "timeoutSeconds", 1)
    text = f"{timeout_s:g} s for an answer that may be held as long"
    is_held = preferred_wait_s(_prefer(get)) < timeout_s
    yield Piece(place, "startupProbe.timeoutSeconds", "more than Prefer: wait" if is_held else text, Reason.HOLD)
    times = {name: _number(probe, name, default) for name, default in _PROBE_DEFAULTS.items()}
    for name, most in (("periodSeconds", PERIOD_S), ("initialDelaySeconds", 0)):
        yield Piece(place, f"startupProbe.{name}", f"{max(times[name], most):g}", Reason.PERIOD)
    patience_s = times["periodSeconds"] * times["failureThreshold"]
    text = f"{times['failureThreshold']:g} probes, {times['periodSeconds']:g} s apart"
    text = f"at least {PATIENCE_S} s" if patience_s >= PATIENCE_S else text
    yield Piece(place, "startupProbe.failureThreshold", text, Reason.PATIENCE)


def _prefer(get: Mapping[str, Any]) -> str:
    """Return the probe's header Prefer, "" when it has none."""
    headers = (one for one in get.get("httpHeaders") or () if str(one.get("name", "")).lower() == "prefer")
    return ",".join(str(one.get("value", "")) for one in headers)


def _number(probe: Mapping[str, Any], name: str, default: int) -> float:
    value = probe.get(name)
    return value if isinstance(value, int | float) else default


def _worker(member: Member, worker: Container, agent: Container) -> Iterator[Piece]:
    """Yield how a worker restarts its Pod, and how its guard finds the agent."""
    restarts = codes_that(worker.raw, Ending.ALL_RESTART, CODES[1:])
    text = f"{RESTART_ALL} at failures" if restarts else "no exit code that restarts the Pod"
    if alone := codes_that(worker.raw, Ending.ALONE_RESTARTS):
        yield _rules(member, worker, _alone(alone), Reason.ALONE)
    elif ending(worker.raw, 0, "Never") is Ending.ALL_RESTART:
        yield _rules(member, worker, "exit code 0, which restarts the Pod", Reason.SUCCESS)
    else:
        yield _rules(member, worker, text, Reason.NOT_IN_PLACE)
    if not member.is_guarded:
        return
    is_guarded = worker.calls(GUARD)
    text = "inplace-agent guard -- COMMAND" if is_guarded else "no guard"
    yield Piece(worker.path, "command", text, Reason.NO_GUARD)
    program = next((word for word in worker.words[:1] if word.startswith(f"{PREFIX}/")), None)
    if program is not None:
        is_mounted = worker.mount_of(program) is not None
        text = "the agent's image, or a copy of it" if is_mounted else f"nothing that holds {program}"
        yield Piece(worker.path, f'volumeMounts[mountPath="{PREFIX}"]', text, Reason.PROGRAM)
    agents = agent.env.get("LINK_FILE", {}).get("value")
    if is_guarded and agents:
        guards = worker.values.get("LINK_FILE") or LINK_FILE
        yield Piece(worker.path, env("LINK_FILE"), "the agent's" if guards == agents else guards, Reason.LINK)
        if guards == agents:
            yield Piece(worker.path, "volumeMounts", _meeting(member, worker, agent, guards), Reason.LINK)


def _alone(codes: Sequence[int]) -> str:
    return f"exit codes {spell(codes)}, after which it alone starts again"


def _rules(member: Member, worker: Container, text: str, reason: Reason) -> Piece:
    """Return a worker's restart rules; after a check that failed its Pod has to end, so that its Job replaces it."""
    after = ending(worker.raw, CHECK_FAILED_EXIT_CODE, str(member.pod_spec.get("restartPolicy") or "Never"))
    if checks(worker) and after is not Ending.STAYS:
        text, reason = f"after exit code {CHECK_FAILED_EXIT_CODE} ({CHECK}) {after.value}", Reason.CHECK
    return Piece(worker.path, "restartPolicyRules", text, reason)


def _meeting(member: Member, worker: Container, agent: Container, link: str) -> str:
    """Say whether worker and agent see the same folders."""
    files = [(link, False)]
    if (worker.mount_of(link) or {}).get("readOnly"):  # ranks write how far they are, and guards notes of theirs
        files.append((f"{progress_dir(worker.values.get(PROGRESS_DIR, ''), link)}/rank-0", True))
    kept = (agent.mount_of(agent.values.get("EPOCH_FILE", "")) or {}).get("name")  # whose volume is judged there
    for file, is_written in files:
        folder = file.rpartition("/")[0]
        mounts = [one.mount_of(file) or {} for one in (worker, agent)]
        if is_written and mounts[0].get("readOnly"):
            return f"no emptyDir at {folder} that both containers write"
        names = [mount.get("name") for mount in mounts]
        if names[1] is not None and names[0] == names[1]:
            if names[1] != kept and (kind := _kind_of(member, mounts[1])) != "emptyDir":
                return f"{names[1]} at {folder}, which is {kind}"
        else:
            seen = [f"{name or 'no volume'} in {one.name}" for name, one in zip(names, (worker, agent), strict=True)]
            return f"{', '.join(seen)} at {folder}"
    return _SHARED


def env(name: str) -> str:
    """Return where a variable stands in its container."""
    return f'env[name="{name}"]'
