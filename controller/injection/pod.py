"""Add the agent to a Pod template, beside the worker or around it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from inplace.common.agent_command import GUARD
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PORT
from inplace.controller.injection import agent_pieces
from inplace.controller.injection.conflicts import conflicts
from inplace.controller.injection.container_resources import OPTION, agent_resources, check_resources
from inplace.controller.injection.finding import Finding, refusal, shown
from inplace.controller.injection.pod_failure_policy import final_codes
from inplace.controller.injection.pod_roles import REMOVED, REMOVED_FIX, Container, Member, Mode
from inplace.controller.injection.policies import NO_POLICIES, PolicyOptions, checks
from inplace.controller.injection.worker import (
    add_restart_rules,
    add_variables,
    fill,
    let_restart,
    wrap,
    wrap_entrypoint,
)

Barrier = Literal["guard", "probe"]
Depth = Literal["containers", "process"]
OTHER_PORTS: Final = range(18080, 18100)  # of the barrier, where a container of the Pod declares the usual one
_AUTOMOUNT: Final = "automountServiceAccountToken"
LAST_LINE: Final = "FallbackToLogsOnError"  # kubelet then tells how a container's log ended (docs/adr/0100)
CONTAINER_RESTART_CODE: Final = 88  # which no program is known to use: sidecars restart their Pod by it as well


@dataclass(frozen=True, slots=True)
class InjectOptions:
    """What is decided beside the manifest; None is for the manifest to say.

    Args:
        agent_image: the image of the agent, which is also the volume of the worker's container.
        copies_image: an init container copies the agent's programs: nodes have no image volumes.
        account: of Pods that name none.
        workers: names of worker containers, where a template has several.
        namespace: of JobSets that name none.
        barrier: sidecar mode: what holds the worker back, a guard in its container (agent/guard.py) or the agent's
            startup probe. An agent that is there keeps its.
        depth: of a group restart in a guarded Pod, as the annotation has it.
        restart_rule: kubelet starts a supervisor's container anew when its worker keeps failing (Kubernetes 1.35).
        port: of the barrier; None for the usual one, or another where the Pod uses it.
        agent_resources: of the agent's own containers, by kind and name; what is not named follows the Pod.
        policies: checks, saving, leases and bad nodes.
    """

    mode: Mode = "sidecar"
    agent_image: str = agent_pieces.IMAGE
    copies_image: bool = False
    account: str | None = None
    namespace: str = "default"
    exit_code: int | None = None
    port: int | None = None
    workers: tuple[str, ...] = ()
    barrier: Barrier = "guard"
    depth: Depth | None = None
    restart_rule: bool = True
    agent_resources: Mapping[str, str] = field(default_factory=dict)
    policies: PolicyOptions = NO_POLICIES


def change_pod(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Bring the agent into the Pod, or complete the one that is there."""
    mode = member.mode or options.mode
    workers = _workers(member, options)
    if not workers or (mode == "supervisor" and len(workers) > 1):
        names = ", ".join(container.name for container in workers or member.workers)
        needed = "one of them as the worker" if mode == "supervisor" else "one or more of them as workers"
        fix = f"say which with {wire.WORKERS}: NAME, or --worker NAME"
        fix += "; --mode sidecar can have several" if workers else ""
        yield refusal(f"{member.pod_path}.containers", f"containers {names}", needed, fix)
        return
    port = _port(member, options)
    present = member.sidecar_agent
    images = [options.agent_image, *([str(present.raw.get("image"))] if present is not None else [])]
    yield from conflicts(member, workers, port, images)
    if mode == "sidecar":
        yield from _add_sidecar(member, workers, options, port)
    else:
        yield from _add_supervisor(member, workers[0], options, port)
    yield from _add_volumes(member, options)


def _workers(member: Member, options: InjectOptions) -> list[Container]:
    """Return the containers that train: those that were named, else those by all signs; [] where that is open.

    The signs: an agent's rules, being the only container, being the only ones with devices.
    """
    if member.supervisor is not None:
        return [member.supervisor]
    named = [container for container in member.workers if container.name in options.workers]
    if named or len(member.workers) == 1:
        return named or list(member.workers)
    ruled = [container for container in member.workers if container.raw.get("restartPolicyRules")]
    return ruled if member.agent is not None else [container for container in member.workers if container.has_devices]


def _add_sidecar(member: Member, workers: Sequence[Container], options: InjectOptions, port: int) -> Iterator[Finding]:
    """Put the agent behind the other init containers: its barrier is the last thing before the workers."""
    pod, present = member.pod_spec, member.sidecar_agent
    inits = fill(pod, "initContainers", [])
    has_commands = all(worker.raw.get("command") for worker in workers)
    wants_guards = present is None and options.barrier == "guard"
    awaited = len(workers) if wants_guards and _may_start_guards(member, workers, options) else 0
    guarded = member.is_guarded or (wants_guards and (has_commands or awaited > 0))
    if present is None:
        wanted = _sidecar(member, options, port, guarded=guarded, awaited=awaited)
        inits.append(wanted)
        agent = Container(wanted, f"{member.pod_path}.initContainers[{len(inits) - 1}]", is_init=True)
        yield from check_resources(member, agent)
    elif not present.is_init:
        fix = "a sidecar is an init container with restartPolicy Always; move it to initContainers"
        yield refusal(present.path, "a regular container", "the agent among initContainers", fix)
        return
    else:
        yield from _complete_sidecar(member, present, options, port, guarded=guarded)
        agent = present
    _bring_token(pod, agent, is_new=present is None)
    if member.settings.get(wire.RESTART_DEPTH) == wire.DEPTH_PROCESS and not guarded:
        fix = f"only a guard can restart the process: write the worker's command, or {wire.RESTART_DEPTH}: containers"
        yield refusal(member.pod_path, "no guard beside depth process", "a guard around the worker", fix)
        return
    for worker in workers:
        codes = final_codes(member.job_spec, worker.name)
        has_check = bool(options.policies.check) or checks(worker)
        yield from add_restart_rules(worker, codes, has_check=has_check)
        if worker.calls(REMOVED):
            yield refusal(
                f"{worker.path}.command", f"inplace-agent {REMOVED}", "inplace-agent guard -- COMMAND", REMOVED_FIX
            )
        elif guarded:
            yield from _guard(worker, agent, codes)
        usual = wire.DEPTH_PROCESS if guarded else wire.DEPTH_CONTAINERS
        if (options.depth or member.settings.get(wire.RESTART_DEPTH, usual)) == wire.DEPTH_CONTAINERS:
            fill(worker.raw, "terminationMessagePolicy", LAST_LINE)


def _may_start_guards(member: Member, workers: Sequence[Container], options: InjectOptions) -> bool:
    """Say whether the programs of these workers, which their images name, may start behind guards.

    A guard that may not come must not be needed: for a check, for a lease, or to be process 1 in its container.
    """
    shares = any(member.pod_spec.get(name) for name in ("hostPID", "shareProcessNamespace"))
    has_loader = any(agent_pieces.LOADER["name"] in worker.env for worker in workers)
    has_check = bool(options.policies.check) or any(map(checks, workers))
    settings = member.settings
    needs_guards = has_check or wire.FENCE_AFTER in settings
    is_shallow = settings.get(wire.RESTART_DEPTH) != wire.DEPTH_CONTAINERS
    has_no_commands = not any(worker.raw.get("command") for worker in workers)
    return has_no_commands and is_shallow and not (shares or has_loader or needs_guards)


def _bring_token(pod: KubeObject, agent: Container, *, is_new: bool) -> None:
    """Mount a token into the agent's own container, unless the Pod's author wants one in every container."""
    if is_new and pod.get(_AUTOMOUNT) is None and agent_pieces.is_restricted(pod.get("serviceAccountName")):
        pod[_AUTOMOUNT] = False  # an account for agents alone: no worker needs its token
    wanted = is_new and pod.get(_AUTOMOUNT) is not True
    if agent.has_token_mount or not (wanted or pod.get(_AUTOMOUNT) is False):
        return
    fill(agent.raw, "volumeMounts", []).append(agent_pieces.token_mount())
    volumes = fill(pod, "volumes", [])
    if not any(volume.get("name") == agent_pieces.TOKEN_VOLUME for volume in volumes):
        volumes.append(agent_pieces.token_volume())


def _guard(worker: Container, agent: Container, final: Sequence[int]) -> Iterator[Finding]:
    """Make a guard the worker's parent, and let both containers see the link."""
    if not worker.calls(GUARD):
        put = wrap if worker.raw.get("command") else wrap_entrypoint
        yield from put(worker, agent_pieces.GUARD_COMMAND, final)
    saving = agent_pieces.from_field(agent_pieces.SAVE_WITHIN, agent_pieces.SETTINGS[agent_pieces.SAVE_WITHIN])
    yield from add_variables(worker, [dict(agent.env.get("LINK_FILE", agent_pieces.LINK)), saving])
    _mount(agent)
    _mount(worker)


def _sidecar(member: Member, options: InjectOptions, port: int, *, guarded: bool, awaited: int = 0) -> KubeObject:
    """Return the agent's container.

    Of `awaited` guards nobody knows whether they come, so these workers wait behind a startup probe as well. On the
    host's network the port is declared, so that the scheduler gives no node two agents that listen on it.
    """
    own = agent_pieces.variables(exit_code=options.exit_code, port=port)
    own += [dict(agent_pieces.LINK)] if guarded else []
    own += [{"name": agent_pieces.GUARDS_AWAITED, "value": str(awaited)}] if awaited else []
    fields: KubeObject = {
        "restartPolicy": "Always",
        "restartPolicyRules": [agent_pieces.restarts_all("NotIn", 0), agent_pieces.restarts_all("In", 0)],
    }
    if awaited or not guarded:
        fields["startupProbe"] = agent_pieces.startup_probe(port=port)
    else:
        fields["readinessProbe"] = agent_pieces.readiness_probe(port)
    fields |= {"env": own, "volumeMounts": [agent_pieces.mount()]}
    if member.pod_spec.get("hostNetwork") is True:
        fields["ports"] = [{"containerPort": port, "hostPort": port}]
    return agent_pieces.container(
        agent_pieces.ACCOUNT,
        options.agent_image,
        ["inplace-agent"],
        fields,
        as_root=member.runs_as_root,
        resources=agent_resources(member, options.agent_resources),
    )


def _complete_sidecar(
    member: Member, present: Container, options: InjectOptions, port: int, *, guarded: bool
) -> Iterator[Finding]:
    """Add to an agent that is there what it lacks; one under upstream's names keeps upstream's defaults."""
    wanted = _sidecar(member, options, port, guarded=guarded)
    if options.agent_resources:
        if present.raw.get("resources") not in (None, {}, wanted["resources"]):
            fix = f"change it there, or leave {OPTION} out"
            yield refusal(f"{present.path}.resources", shown(present.raw["resources"]), "what the option says", fix)
            return
        present.raw["resources"] = wanted["resources"]
        yield from check_resources(member, present)
    for key in ("restartPolicy", "restartPolicyRules", "readinessProbe" if guarded else "startupProbe"):
        if present.has_upstream_names and key == "startupProbe":
            continue
        present.raw.setdefault(key, wanted[key])
    if not present.has_upstream_names:
        names = ("RESTART_POD_IN_PLACE_EXIT_CODE", "BARRIER_PORT")
        yield from add_variables(present, [entry for entry in wanted["env"] if entry["name"] not in names])
        _mount(present)


def _add_supervisor(member: Member, worker: Container, options: InjectOptions, port: int) -> Iterator[Finding]:
    """Make the agent the parent of the worker."""
    codes = final_codes(member.job_spec, worker.name)
    if member.supervisor is None:
        yield from wrap(worker, agent_pieces.RUN_COMMAND, codes)
    if worker.has_upstream_names and worker.is_upstream_supervisor:
        return
    yield from add_variables(worker, agent_pieces.variables(exit_code=None, port=port, supervises=True))
    if options.restart_rule:
        code = options.exit_code or CONTAINER_RESTART_CODE
        yield from let_restart(worker, code, codes, str(member.pod_spec.get("restartPolicy")))
    _mount(worker)


def _add_volumes(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Mount the agent's programs where a program of them starts, and add the volumes that are mounted by now."""
    pod = member.pod_spec
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    for container in pod.get("containers") or ():
        mounts = container.get("volumeMounts") or ()
        starts = any(str(word).startswith(f"{agent_pieces.PREFIX}/bin/") for word in container.get("command") or ())
        starts = starts or agent_pieces.LOADER in (container.get("env") or ())
        if starts and not any(mounted.get("mountPath") == agent_pieces.PREFIX for mounted in mounts):
            fill(container, "volumeMounts", []).append(agent_pieces.image_mount())
    present = {volume.get("name") for volume in pod.get("volumes") or ()}
    used = {mounted.get("name") for one in containers for mounted in one.get("volumeMounts") or ()} - present
    if agent_pieces.IMAGE_VOLUME in used:
        fill(pod, "volumes", []).append(agent_pieces.image_volume(options.agent_image, copied=options.copies_image))
        if options.copies_image:
            resources = agent_resources(member, options.agent_resources)
            copier = agent_pieces.copier(options.agent_image, as_root=member.runs_as_root, resources=resources)
            fill(pod, "initContainers", []).insert(0, copier)
            yield from check_resources(member, Container(copier, f"{member.pod_path}.initContainers[0]", is_init=True))
    if agent_pieces.VOLUME in used:
        fill(pod, "volumes", []).append({"name": agent_pieces.VOLUME, "emptyDir": {}})


def _mount(container: Container) -> None:
    """Mount the folder of EPOCH_FILE, unless the file is somewhere else already."""
    kept = container.env.get("EPOCH_FILE", {}).get("value")
    mounts = fill(container.raw, "volumeMounts", [])
    if kept in (None, agent_pieces.EPOCH_FILE) and not any(
        mounted.get("mountPath") == agent_pieces.FOLDER for mounted in mounts
    ):
        mounts.append(agent_pieces.mount())


def _port(member: Member, options: InjectOptions) -> int:
    """Return the barrier's port: the usual one, or the first other that no container declares."""
    if options.port is not None:
        return options.port
    others = (one for one in member.every_container if not one.is_agent_alone)
    declared = {port.get("containerPort") for one in others for port in one.raw.get("ports") or ()}
    return next((port for port in (OUR_PORT, *OTHER_PORTS) if port not in declared), OUR_PORT)
