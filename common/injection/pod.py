"""Add the agent to a Pod template, beside the worker or around it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from inplace.common.agent_command import GUARD
from inplace.common.injection import agent_pieces
from inplace.common.injection.conflicts import conflicts
from inplace.common.injection.container_resources import agent_resources, amounts, amounts_asked, check_resources
from inplace.common.injection.depth import choose_depth, is_held_back
from inplace.common.injection.finding import Finding, refusal, shown
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import Container, Member, Place
from inplace.common.injection.policies import CHECKS, checks
from inplace.common.injection.restart_rules import IMAGE_VOLUMES_SINCE, RULES_SINCE, Version
from inplace.common.injection.worker import add_restart_rules, add_variables, fill, let_restart, wrap, wrap_entrypoint
from inplace.common.jobset.settings import RESTART
from inplace.common.kube.quantity import parse_quantity, quantity_text
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PORT

Barrier = Literal["guard", "probe"]
OTHER_PORTS: Final = range(18080, 18100)  # of the barrier, where a container of the Pod declares the usual one
_AUTOMOUNT: Final = "automountServiceAccountToken"
LAST_LINE: Final = "FallbackToLogsOnError"  # kubelet then tells how a container's log ended (docs/adr/0100)


@dataclass(frozen=True, slots=True)
class InjectOptions:
    """What is decided beside the manifest; None is for the manifest to say.

    Args:
        agent_image: the image of the agent, which is also the volume of the worker's container.
        copies_image: an init container copies the agent's programs: nodes have no image volumes.
        workers: names of worker containers, where a template has several.
        namespace: of JobSets that name none.
        barrier: sidecar mode: what holds the worker back, a guard in its container (agent/guard.py) or the agent's
            startup probe. An agent that is there keeps its.
        restart_rule: kubelet may start containers anew by rules, for a worker that keeps failing or a guard that died.
            Without it a Pod gets none of these rules, and a sidecar has depth process (docs/adr/0105).
    """

    mode: Place = "sidecar"
    agent_image: str = agent_pieces.IMAGE
    copies_image: bool = False
    namespace: str = "default"
    workers: tuple[str, ...] = ()
    barrier: Barrier = "guard"
    restart_rule: bool = True

    def for_version(self, version: Version | None) -> InjectOptions:
        """Return the same for nodes of a version of Kubernetes; None is not known, and taken for a new one."""
        if version is None:
            return self
        is_copied = self.copies_image or version < IMAGE_VOLUMES_SINCE
        return replace(self, copies_image=is_copied, restart_rule=self.restart_rule and version >= RULES_SINCE)


def change_pod(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Bring the agent into the Pod, or complete the one that is there."""
    mode = member.place or options.mode
    workers = _workers(member, options)
    if not workers or (mode == "supervisor" and len(workers) > 1):
        names = ", ".join(container.name for container in workers or member.workers)
        needed = "one of them as the worker" if mode == "supervisor" else "one or more of them as workers"
        fix = (
            f"name them in {wire.AGENT}: workers=NAME beside restartStrategy {wire.IN_PLACE_RESTART}, or --worker NAME"
        )
        fix += "; --mode sidecar can have several" if workers else ""
        yield refusal(f"{member.pod_path}.containers", f"containers {names}", needed, fix)
        return
    port = _port(member)
    present = member.sidecar_agent
    images = [options.agent_image, *([str(present.raw.get("image"))] if present is not None else [])]
    yield from conflicts(member, workers, port, images)
    if mode == "sidecar":
        yield from _add_sidecar(member, workers, options, port)
    else:
        yield from _add_supervisor(member, workers[0], options, port)
    if size := member.settings.get(wire.KEEP):
        yield from _keep(member, workers, str(size))
    yield from _add_volumes(member, options)


def _keep(member: Member, workers: Sequence[Container], size: str) -> Iterator[Finding]:
    """Give the workers a folder in memory that outlives their containers; what lies there counts as their memory."""
    bytes_kept = parse_quantity(size)
    for worker in workers:
        limit = amounts(worker, "limits").get("memory")
        if bytes_kept is None or (limit is not None and limit <= bytes_kept):
            fix = "files there count as the worker's memory; raise its limit by the volume's size, or keep less"
            path, found = f"{worker.path}.resources.limits.memory", str(limit and quantity_text(limit, is_bytes=True))
            yield refusal(path, found, f"more than the {size} of {RESTART.named('keep')}", fix)
            return
        yield from add_variables(worker, [dict(agent_pieces.KEEP_DIR)])
        mounts = fill(worker.raw, "volumeMounts", [])
        if not any(mounted.get("name") == agent_pieces.KEEP_VOLUME for mounted in mounts):
            mounts.append(agent_pieces.keep_mount())
    volumes = fill(member.pod_spec, "volumes", [])
    if not any(volume.get("name") == agent_pieces.KEEP_VOLUME for volume in volumes):
        volumes.append(agent_pieces.memory_volume(agent_pieces.KEEP_VOLUME, size))


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
    # A guard that may not come must not be needed, and without a rule it is.
    awaited = len(workers) if wants_guards and options.restart_rule and _may_start_guards(member, workers) else 0
    guarded = member.is_guarded or (wants_guards and (has_commands or awaited > 0))
    if present is None and options.restart_rule:
        choose_depth(member, workers)
    has_link = guarded or (present is not None and "LINK_FILE" in present.env)
    usual = wire.DEPTH_PROCESS if has_link else wire.DEPTH_CONTAINERS
    depth = member.settings.get(wire.RESTART_DEPTH, usual)
    is_probed = not guarded or awaited > 0 or is_held_back(workers, depth, has_check=any(map(checks, workers)))
    # Without rules kubelet starts an agent again alone, while its worker may still run. A guard that has none says so.
    checked = 0 if options.restart_rule else len(workers)
    if present is None:
        wanted = _sidecar(member, options, port, guarded=guarded, awaited=awaited, checked=checked, is_probed=is_probed)
        inits.append(wanted)
        agent = Container(wanted, f"{member.pod_path}.initContainers[{len(inits) - 1}]", is_init=True)
        yield from check_resources(member, agent)
    elif not present.is_init:
        fix = "a sidecar is an init container with restartPolicy Always; move it to initContainers"
        yield refusal(present.path, "a regular container", "the agent among initContainers", fix)
        return
    else:
        yield from _complete_sidecar(
            member, present, options, port, guarded=guarded, checked=checked, is_probed=is_probed
        )
        agent = present
    _bring_token(pod, agent, is_new=present is None)
    if member.settings.get(wire.RESTART_DEPTH) == wire.DEPTH_PROCESS and not guarded:
        fix = f"only a guard can restart the process: write the worker's command, or {wire.RESTART}: containers"
        yield refusal(member.pod_path, "no guard beside depth process", "a guard around the worker", fix)
        return
    if not options.restart_rule and (depth != wire.DEPTH_PROCESS or not guarded):
        found = f"depth {depth}" if guarded else "no guard around the worker"
        fix = f"write the worker's command, and no {wire.RESTART}: containers; or use Kubernetes 1.36"
        yield refusal(member.pod_path, found, "a guard and depth process, where kubelet has no restart rules", fix)
        return
    for worker in workers:
        codes = final_codes(member.job_spec, worker.name)
        if options.restart_rule:
            yield from add_restart_rules(worker, codes, has_check=checks(worker))
        if guarded:
            yield from _guard(worker, agent, codes)
        if depth == wire.DEPTH_CONTAINERS:
            fill(worker.raw, "terminationMessagePolicy", LAST_LINE)


def _may_start_guards(member: Member, workers: Sequence[Container]) -> bool:
    """Say whether the programs of these workers, which their images name, may start behind guards.

    A guard that may not come must not be needed: for a check, for a lease, or to be process 1 in its container.
    """
    shares = any(member.pod_spec.get(name) for name in ("hostPID", "shareProcessNamespace"))
    has_loader = any(agent_pieces.LOADER["name"] in worker.env for worker in workers)
    settings = member.settings
    needs_guards = any(map(checks, workers)) or wire.FENCE_AFTER in settings
    is_shallow = settings.get(wire.RESTART_DEPTH) != wire.DEPTH_CONTAINERS
    has_no_commands = not any(worker.raw.get("command") for worker in workers)
    return has_no_commands and is_shallow and not (shares or has_loader or needs_guards)


def _bring_token(pod: KubeObject, agent: Container, *, is_new: bool) -> None:
    """Mount a token into the agent's container alone, unless the Pod's author wants one in every container.

    What we add may announce, so no other container gets a token by our doing. Where the agent stands in the template
    already, its author decided. Tokens for other audiences, which webhooks of clouds project, are volumes of their own.
    """
    if is_new and pod.get(_AUTOMOUNT) is None:
        pod[_AUTOMOUNT] = False
    if agent.has_token_mount or pod.get(_AUTOMOUNT) is not False:
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
    _mount(agent, agent_pieces.mount(), agent_pieces.progress_mount())
    _mount(worker, agent_pieces.worker_mount(), agent_pieces.progress_mount())


def _sidecar(
    member: Member,
    options: InjectOptions,
    port: int,
    *,
    guarded: bool,
    is_probed: bool,
    awaited: int = 0,
    checked: int = 0,
) -> KubeObject:
    """Return the agent's container.

    Behind its startup probe (`is_probed`) wait workers without a guard, those of whose guards nobody knows whether they
    come (`awaited`), and those that kubelet probes themselves. On the host's network the port is declared, so that the
    scheduler gives no node two agents that listen on it.
    """
    own = agent_pieces.variables(port=port, is_cleaned=options.restart_rule)
    own += [dict(agent_pieces.LINK)] if guarded else []
    own += [{"name": CHECKS, "value": str(checked)}] if checked else []
    own += [{"name": agent_pieces.GUARDS_AWAITED, "value": str(awaited)}] if awaited else []
    fields: KubeObject = {"restartPolicy": "Always"}
    if options.restart_rule:
        fields["restartPolicyRules"] = [agent_pieces.restarts_all("NotIn", 0), agent_pieces.restarts_all("In", 0)]
    if is_probed:
        fields["startupProbe"] = agent_pieces.startup_probe(port=port)
    else:
        fields["readinessProbe"] = agent_pieces.readiness_probe(port)
    fields |= {"env": own, "volumeMounts": [agent_pieces.mount()]}
    fields["volumeMounts"] += [agent_pieces.progress_mount()] if guarded else []
    if member.pod_spec.get("hostNetwork") is True:
        fields["ports"] = [{"containerPort": port, "hostPort": port}]
    return agent_pieces.container(
        agent_pieces.CONTAINER,
        options.agent_image,
        ["inplace-agent"],
        fields,
        as_root=member.runs_as_root,
        resources=agent_resources(member),
    )


def _complete_sidecar(
    member: Member,
    present: Container,
    options: InjectOptions,
    port: int,
    *,
    guarded: bool,
    checked: int,
    is_probed: bool,
) -> Iterator[Finding]:
    """Add to an agent that is there what it lacks; one under upstream's names keeps upstream's defaults."""
    wanted = _sidecar(member, options, port, guarded=guarded, checked=checked, is_probed=is_probed)
    if amounts_asked(member):
        if present.raw.get("resources") not in (None, {}, wanted["resources"]):
            found, needed = shown(present.raw["resources"]), f"what {wire.AGENT} says"
            yield refusal(f"{present.path}.resources", found, needed, "change it there, or remove the annotation")
            return
        present.raw["resources"] = wanted["resources"]
        yield from check_resources(member, present)
    for key in ("restartPolicy", "restartPolicyRules", "startupProbe" if is_probed else "readinessProbe"):
        if present.has_upstream_names and key == "startupProbe":
            continue
        if key in wanted:
            present.raw.setdefault(key, wanted[key])
    if not present.has_upstream_names:
        yield from add_variables(present, wanted["env"])
        _mount(present, *wanted["volumeMounts"])


def _add_supervisor(member: Member, worker: Container, options: InjectOptions, port: int) -> Iterator[Finding]:
    """Make the agent the parent of the worker."""
    codes = final_codes(member.job_spec, worker.name)
    is_new = member.supervisor is None
    if is_new:
        yield from wrap(worker, agent_pieces.RUN_COMMAND, codes)
    _bring_token(member.pod_spec, worker, is_new=is_new)
    if worker.has_upstream_names and worker.is_upstream_supervisor:
        return
    yield from add_variables(worker, agent_pieces.variables(port=port, supervises=True))
    if options.restart_rule:
        yield from let_restart(worker, codes, str(member.pod_spec.get("restartPolicy")))
    _mount(worker, agent_pieces.mount())


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
            resources = agent_resources(member)
            copier = agent_pieces.copier(options.agent_image, as_root=member.runs_as_root, resources=resources)
            fill(pod, "initContainers", []).insert(0, copier)
            yield from check_resources(member, Container(copier, f"{member.pod_path}.initContainers[0]", is_init=True))
    folders = (one for one in (agent_pieces.VOLUME, agent_pieces.PROGRESS_VOLUME) if one in used)
    for name in folders:
        fill(pod, "volumes", []).append(agent_pieces.memory_volume(name))


def _mount(container: Container, *wanted: KubeObject) -> None:
    """Mount the folder of EPOCH_FILE and what lies in it, unless the file is somewhere else, or the folder there."""
    kept = container.env.get("EPOCH_FILE", {}).get("value")
    mounts = fill(container.raw, "volumeMounts", [])
    if kept in (None, agent_pieces.EPOCH_FILE) and not any(
        mounted.get("mountPath") == agent_pieces.FOLDER for mounted in mounts
    ):
        mounts += wanted


def _port(member: Member) -> int:
    """Return the barrier's port: that of a sidecar which is there, else the first that no container declares."""
    if (present := member.sidecar_agent) is not None:
        own = present.values.get("BARRIER_PORT", "")
        return int(own) if own.isdecimal() else OUR_PORT
    others = (one for one in member.every_container if not one.is_agent_alone)
    declared = {port.get("containerPort") for one in others for port in one.raw.get("ports") or ()}
    return next((port for port in (OUR_PORT, *OTHER_PORTS) if port not in declared), OUR_PORT)
