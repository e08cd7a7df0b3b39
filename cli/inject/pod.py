"""Add the agent to a Pod template, beside the worker or around it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from inplace.agent.barrier.address import OUR_PORT
from inplace.agent.start.exit_code import ExitCode
from inplace.cli.inject.agent_resources import OPTION, agent_resources, check_resources
from inplace.cli.inject.policies import NO_POLICIES, PolicyOptions
from inplace.cli.inject.worker import add_restart_rules, add_variables, fill, let_restart, wrap
from inplace.cli.manifests import agent_pieces
from inplace.cli.manifests.finding import REFUSED, Finding, refusal, shown
from inplace.cli.manifests.pod_failure_policy import final_codes
from inplace.cli.manifests.pod_roles import REMOVED, REMOVED_FIX, Container, Member, Mode
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

Barrier = Literal["guard", "probe"]
Depth = Literal["containers", "process"]


@dataclass(frozen=True, slots=True)
class InjectOptions:
    """What the user decides; None is for the manifest to say.

    Args:
        account: of Pods that name none.
        unrestricted_account: give the rights to accounts that admission does not restrict.
        workers: names of worker containers, where a template has several.
        namespace: of JobSets that name none.
        barrier: sidecar mode: what holds the worker back, a guard in its container (agent/guard.py) or the agent's
            startup probe. An agent that is there keeps its.
        depth: of a group restart in a guarded Pod; None is for the JobSet's annotation to say.
        restart_rule: kubelet starts a supervisor's container anew when its worker keeps failing (Kubernetes 1.35).
        agent_in_image: the worker's image holds inplace-agent already; nothing is copied into it.
        agent_resources: of the agent's own containers, by kind and name; what is not named follows the Pod.
        policies: checks, saving, leases and bad nodes.
    """

    mode: Mode = "sidecar"
    agent_image: str = "inplace-agent"
    account: str | None = None
    unrestricted_account: bool = False
    namespace: str = "default"
    exit_code: int = int(ExitCode.RESTART_IN_PLACE)
    port: int = OUR_PORT
    workers: tuple[str, ...] = ()
    barrier: Barrier = "guard"
    depth: Depth | None = None
    restart_rule: bool = True
    agent_in_image: bool = False
    agent_resources: Mapping[str, str] = field(default_factory=dict)
    policies: PolicyOptions = NO_POLICIES


def change_pod(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Bring the agent into the Pod, or complete the one that is there."""
    pod, mode = member.pod_spec, member.mode or options.mode
    workers = _workers(member, options)
    if not workers or (mode == "supervisor" and len(workers) > 1):
        names = ", ".join(container.name for container in workers or member.workers)
        needed = "one of them as the worker" if mode == "supervisor" else "one or more of them as workers"
        fix = "say which with --worker NAME" + ("; --mode sidecar can have several" if workers else "")
        yield Finding(REFUSED, f"{member.pod_path}.containers", f"containers {names}", needed, fix)
        return
    yield from _port_conflicts(member, options)
    as_root = (pod.get("securityContext") or {}).get("runAsUser") == 0
    if mode == "sidecar":
        yield from _add_sidecar(member, workers, options, as_root=as_root)
    else:
        yield from _add_supervisor(member, workers[0], options, as_root=as_root)
    if not any(volume.get("name") == agent_pieces.VOLUME for volume in pod.get("volumes") or ()) and any(
        mounted.get("name") == agent_pieces.VOLUME
        for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
        for mounted in container.get("volumeMounts") or ()
    ):
        fill(pod, "volumes", []).append({"name": agent_pieces.VOLUME, "emptyDir": {}})


def _workers(member: Member, options: InjectOptions) -> list[Container]:
    """Return the workers: a supervisor's, the only container, those that were named, or those with an agent's rules."""
    if member.supervisor is not None:
        return [member.supervisor]
    if len(member.workers) == 1:
        return list(member.workers)
    named = [container for container in member.workers if container.name in options.workers]
    ruled = [container for container in member.workers if container.raw.get("restartPolicyRules")]
    return named or (ruled if member.agent is not None else [])


def _add_sidecar(
    member: Member, workers: Sequence[Container], options: InjectOptions, *, as_root: bool
) -> Iterator[Finding]:
    """Put the agent behind the other init containers: its barrier is the last thing before the workers."""
    pod, present = member.pod_spec, member.sidecar_agent
    inits = fill(pod, "initContainers", [])
    guarded = member.is_guarded or (present is None and options.barrier == "guard")
    if present is None:
        wanted = _sidecar(member, options, as_root=as_root, guarded=guarded)
        inits.append(wanted)
        agent = Container(wanted, f"{member.pod_path}.initContainers[{len(inits) - 1}]", is_init=True)
        yield from check_resources(member, agent)
    elif not present.is_init:
        fix = "a sidecar is an init container with restartPolicy Always; move it to initContainers"
        yield refusal(present.path, "a regular container", "the agent among initContainers", fix)
        return
    else:
        yield from _complete_sidecar(member, present, options, guarded=guarded)
        agent = present
    _bring_token(pod, agent, is_new=present is None)
    if options.depth == wire.DEPTH_PROCESS:
        if not guarded:
            fix = "only a guard can restart the process: --barrier guard, or --restart containers"
            yield refusal(member.pod_path, "no guard beside depth process", "a guard around the worker", fix)
            return
        yield from add_variables(agent, [dict(agent_pieces.DEPTH)])
    for worker in workers:
        codes = final_codes(member.job_spec, worker.name)
        yield from add_restart_rules(worker, codes, has_check=bool(options.policies.check))
        if worker.calls(REMOVED):
            yield refusal(
                f"{worker.path}.command", f"inplace-agent {REMOVED}", "inplace-agent guard -- COMMAND", REMOVED_FIX
            )
        elif guarded:
            yield from _guard(worker, agent, codes, options)


def _bring_token(pod: KubeObject, agent: Container, *, is_new: bool) -> None:
    """Mount the agent's token into its own container, unless the Pod's author wants one in every container."""
    if is_new and pod.get("automountServiceAccountToken") is None:
        pod["automountServiceAccountToken"] = False
    if pod.get("automountServiceAccountToken") is not False or agent.has_token_mount:
        return
    fill(agent.raw, "volumeMounts", []).append(agent_pieces.token_mount())
    volumes = fill(pod, "volumes", [])
    if not any(volume.get("name") == agent_pieces.TOKEN_VOLUME for volume in volumes):
        volumes.append(agent_pieces.token_volume())


def _guard(worker: Container, agent: Container, final: Sequence[int], options: InjectOptions) -> Iterator[Finding]:
    """Make a guard the worker's parent, and let both containers see the link."""
    if not worker.calls("guard"):
        yield from wrap(worker, "guard", final, agent_in_image=options.agent_in_image)
        if not options.agent_in_image:
            yield from add_variables(agent, [{"name": "AGENT_FILE", "value": agent_pieces.PROGRAM_FILE}])
    yield from add_variables(worker, [dict(agent.env.get("LINK_FILE", agent_pieces.LINK))])
    _mount(agent)
    _mount(worker)


def _sidecar(member: Member, options: InjectOptions, *, as_root: bool, guarded: bool) -> KubeObject:
    return agent_pieces.sidecar(
        options.agent_image,
        exit_code=options.exit_code,
        port=options.port,
        as_root=as_root,
        resources=agent_resources(member, options.agent_resources),
        guarded=guarded,
    )


def _complete_sidecar(
    member: Member, present: Container, options: InjectOptions, *, guarded: bool
) -> Iterator[Finding]:
    """Add to an agent that is there what it lacks; one under upstream's names keeps upstream's defaults."""
    wanted = _sidecar(member, options, as_root=False, guarded=guarded)
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


def _add_supervisor(member: Member, worker: Container, options: InjectOptions, *, as_root: bool) -> Iterator[Finding]:
    """Make the agent the parent of the worker."""
    codes = final_codes(member.job_spec, worker.name)
    if member.supervisor is None:
        yield from wrap(worker, "run", codes, agent_in_image=options.agent_in_image)
        if not options.agent_in_image:
            yield from _add_file(member, worker, options, as_root=as_root)
    if worker.has_upstream_names and worker.is_upstream_supervisor:
        return
    port = options.port if options.port != OUR_PORT else None
    yield from add_variables(worker, agent_pieces.variables(exit_code=None, port=port))
    if options.restart_rule:
        yield from let_restart(worker, options.exit_code, codes, str(member.pod_spec.get("restartPolicy")))
    _mount(worker)


def _add_file(member: Member, worker: Container, options: InjectOptions, *, as_root: bool) -> Iterator[Finding]:
    """Copy the one-file agent into the Pod before anything else starts, and mount it into the worker."""
    inits = fill(member.pod_spec, "initContainers", [])
    if not any(container.get("name") == agent_pieces.COPIER for container in inits):
        resources = agent_resources(member, options.agent_resources)
        copier = agent_pieces.copier(options.agent_image, as_root=as_root, resources=resources)
        inits.insert(0, copier)
        yield from check_resources(member, Container(copier, f"{member.pod_path}.initContainers[0]", is_init=True))
    _mount(worker)


def _mount(container: Container) -> None:
    """Mount the folder of EPOCH_FILE, unless the file is somewhere else already."""
    kept = container.env.get("EPOCH_FILE", {}).get("value")
    mounts = fill(container.raw, "volumeMounts", [])
    if kept in (None, agent_pieces.EPOCH_FILE) and not any(
        mounted.get("mountPath") == agent_pieces.FOLDER for mounted in mounts
    ):
        mounts.append(agent_pieces.mount())


def _port_conflicts(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """All containers of a Pod share its address: nobody else may listen on the barrier's port."""
    if member.agent is not None:
        return
    for container in member.every_container:
        for position, port in enumerate(container.raw.get("ports") or ()):
            if port.get("containerPort") == options.port:
                path = f"{container.path}.ports[{position}].containerPort"
                fix = "choose another port for the agent with --port"
                yield refusal(path, options.port, "a port that the agent does not need", fix)
