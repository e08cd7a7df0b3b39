"""
Add to a plain JobSet what in-place restart needs. Pure: objects in, changed copies out.

What is there already stays, so that doing it twice changes nothing. What it cannot decide it refuses, with everything
that is wrong at once: a manifest is changed as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.config import OUR_PORT
from agent.exit_code import ExitCode
from cli import agent_pieces
from cli.finding import Finding, shown
from cli.inject_worker import add_restart_rules, add_variables, final_codes, wrap
from cli.manifests import is_jobset, objects_of
from cli.pod_roles import Container, Member, Mode, members
from common import wire
from common.kube.client import KubeObject

_REFUSED: Final = "inject"


@dataclass(frozen=True, slots=True)
class InjectOptions:
    """What the user decides; None is for the manifest to say.

    Args:
        workers: names of worker containers, where a template has several.
        namespace: of JobSets that name none.
        wait: sidecar mode: the worker's command also waits inside its container, see agent/wait.py.
        agent_in_image: the worker's image holds inplace-agent already; nothing is copied into it.
    """

    mode: Mode = "sidecar"
    agent_image: str = "inplace-agent"
    account: str | None = None
    namespace: str = "default"
    exit_code: int = int(ExitCode.RESTART_IN_PLACE)
    port: int = OUR_PORT
    workers: tuple[str, ...] = ()
    wait: bool = False
    agent_in_image: bool = False


class Refusal(Exception):
    """The manifest cannot be changed.

    Attributes:
        findings: each with its path, what was found, what is needed and what to do.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(str(finding) for finding in findings))
        self.findings = tuple(findings)


def inject(documents: Sequence[Any], options: InjectOptions) -> tuple[list[Any], list[KubeObject]]:
    """Return the documents with every JobSet changed, and the new objects that go in front of them.

    Raises:
        Refusal: something has to be decided by a person first.
    """
    changed = deepcopy(list(documents))
    findings: list[Finding] = []
    accounts: dict[tuple[str, str], None] = {}
    objects = [obj for document in changed for obj in objects_of(document)]
    names = {
        container.name for obj in filter(is_jobset, objects) for one in members(obj) for container in one.containers
    }
    for name in options.workers:
        if name not in names:
            fix = f"name one of {', '.join(sorted(names))}"
            findings.append(Finding(_REFUSED, "--worker", shown(name), "the name of a container", fix))
    for jobset in filter(is_jobset, objects):
        for finding in _change(jobset, options, accounts):
            name = (jobset.get("metadata") or {}).get("name", "")
            findings.append(replace(finding, path=f"JobSet {name}: {finding.path}"))
    if findings:
        raise Refusal(findings)
    known = {_key(obj, options.namespace) for obj in objects}
    wanted = [obj for place in accounts for obj in agent_pieces.permissions(*place) if not _is_granted(objects, *place)]
    return changed, [obj for obj in wanted if _key(obj, options.namespace) not in known]


def _change(jobset: KubeObject, options: InjectOptions, accounts: dict[tuple[str, str], None]) -> Iterator[Finding]:
    """Change one JobSet; yield what cannot be decided."""
    metadata = jobset.setdefault("metadata", {})
    namespace = metadata.setdefault("namespace", options.namespace)
    spec = jobset.setdefault("spec", {})
    _fill(spec, "failurePolicy", {}).update(
        dict(agent_pieces.DEFAULT_POLICY) | (spec["failurePolicy"] or {}) | {"restartStrategy": wire.IN_PLACE_RESTART}
    )
    group = [member for member in members(jobset) if not member.has_opted_out]
    if not group:
        yield _refuse("spec.replicatedJobs", None, "a replicatedJob whose Pods restart as a group", "add one")
    for member in group:
        yield from _change_job(member)
        if not member.containers:
            path = f"{member.pod_path}.containers"
            yield _refuse(path, None, "the worker's container", "add it: inject does not know what to run")
            continue
        yield from _change_pod(member, options)
        yield from _add_scope(jobset, member.path)
        account = member.pod_spec.setdefault("serviceAccountName", options.account or agent_pieces.ACCOUNT)
        accounts[(namespace, account)] = None


def _add_scope(jobset: KubeObject, path: str) -> Iterator[Finding]:
    """Tell the agent which part of a divided JobSet its Pod restarts with (docs/adr/0027)."""
    if wire.RESTART_SCOPE in (jobset["metadata"].get("annotations") or {}):
        agent = next(member.agent for member in members(jobset) if member.path == path)
        if agent is not None:
            yield from add_variables(agent, [agent_pieces.from_field(*pair) for pair in agent_pieces.SCOPE.items()])


def _change_job(member: Member) -> Iterator[Finding]:
    """Make the Job one whose Pods all run at once and are replaced one by one."""
    spec, path = member.job_spec, member.job_path
    if spec.get("completionMode", "Indexed") != "Indexed":
        fix = "the barrier counts Pods by their index; remove the field if the worker does not mind to be Indexed"
        yield _refuse(f"{path}.completionMode", spec["completionMode"], "Indexed", fix)
    counts = {name: spec[name] for name in ("parallelism", "completions") if spec.get(name) is not None}
    if len(set(counts.values())) > 1:
        fix = "all Pods of a Job run at once; set both to the number of Pods"
        yield _refuse(f"{path}.completions", spec["completions"], f"parallelism ({spec['parallelism']})", fix)
    else:
        spec |= dict.fromkeys(("parallelism", "completions"), next(iter(counts.values()), 1))
    if spec.get("backoffLimitPerIndex") is not None:
        fix = "an index that failed for good would leave the barrier waiting for ever; remove the field"
        yield _refuse(f"{path}.backoffLimitPerIndex", spec["backoffLimitPerIndex"], "nothing", fix)
    spec |= agent_pieces.JOB_FIELDS
    member.pod_spec["restartPolicy"] = "Never"
    if member.pod_spec.get("automountServiceAccountToken") is False:
        fix = "the agent talks to the API server; remove the field, or mount a token into the agent yourself"
        yield _refuse(f"{member.pod_path}.automountServiceAccountToken", False, "true or nothing", fix)


def _change_pod(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Bring the agent into the Pod, or complete the one that is there."""
    pod, mode = member.pod_spec, member.mode or options.mode
    workers = _workers(member, options)
    if not workers or (mode == "supervisor" and len(workers) > 1):
        names = ", ".join(container.name for container in workers or member.workers)
        needed = "one of them as the worker" if mode == "supervisor" else "one or more of them as workers"
        fix = "say which with --worker NAME" + ("; --mode sidecar can have several" if workers else "")
        yield Finding(_REFUSED, f"{member.pod_path}.containers", f"containers {names}", needed, fix)
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
        _fill(pod, "volumes", []).append({"name": agent_pieces.VOLUME, "emptyDir": {}})


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
    inits = _fill(pod, "initContainers", [])
    if present is None:
        agent = agent_pieces.sidecar(
            options.agent_image, exit_code=options.exit_code, port=options.port, as_root=as_root
        )
        inits.append(agent)
    elif not present.is_init:
        fix = "a sidecar is an init container with restartPolicy Always; move it to initContainers"
        yield _refuse(present.path, "a regular container", "the agent among initContainers", fix)
        return
    else:
        yield from _complete_sidecar(present, options)
    for worker in workers:
        codes = final_codes(member, worker)
        yield from add_restart_rules(worker, codes)
        if options.wait and not worker.calls("wait"):
            yield from wrap(worker, "wait", (), agent_in_image=options.agent_in_image)
            yield from add_variables(worker, [agent_pieces.from_field(*pair) for pair in agent_pieces.ADDRESS.items()])
            if options.port != OUR_PORT:
                yield from add_variables(worker, [{"name": "BARRIER_PORT", "value": str(options.port)}])
            _add_file(inits, worker, options, as_root=as_root)


def _complete_sidecar(present: Container, options: InjectOptions) -> Iterator[Finding]:
    """Add to an agent that is there what it lacks; one under upstream's names keeps upstream's defaults."""
    wanted = agent_pieces.sidecar(options.agent_image, exit_code=options.exit_code, port=options.port, as_root=False)
    for key in ("restartPolicy", "restartPolicyRules", "startupProbe"):
        if present.has_upstream_names and key == "startupProbe":
            continue
        present.raw.setdefault(key, wanted[key])
    if not present.has_upstream_names:
        names = ("RESTART_POD_IN_PLACE_EXIT_CODE", "BARRIER_PORT")
        yield from add_variables(present, [entry for entry in wanted["env"] if entry["name"] not in names])
        _mount(present)


def _add_supervisor(member: Member, worker: Container, options: InjectOptions, *, as_root: bool) -> Iterator[Finding]:
    """Make the agent the parent of the worker."""
    if member.supervisor is None:
        codes = final_codes(member, worker)
        flags = ("--fail-on", ",".join(str(code) for code in codes)) if codes else ()
        yield from wrap(worker, "run", flags, agent_in_image=options.agent_in_image)
        if not options.agent_in_image:
            _add_file(_fill(member.pod_spec, "initContainers", []), worker, options, as_root=as_root)
    if worker.has_upstream_names and worker.is_upstream_supervisor:
        return
    port = options.port if options.port != OUR_PORT else None
    yield from add_variables(worker, agent_pieces.variables(exit_code=None, port=port))
    _mount(worker)


def _add_file(inits: list[KubeObject], worker: Container, options: InjectOptions, *, as_root: bool) -> None:
    """Copy the one-file agent into the Pod before anything else starts, and mount it into the worker."""
    if options.agent_in_image:
        return
    copier = agent_pieces.copier(options.agent_image, as_root=as_root)
    if not any(container.get("name") == copier["name"] for container in inits):
        inits.insert(0, copier)
    _mount(worker)


def _mount(container: Container) -> None:
    """Mount the folder of EPOCH_FILE, unless the file is somewhere else already."""
    kept = container.env.get("EPOCH_FILE", {}).get("value")
    mounts = _fill(container.raw, "volumeMounts", [])
    if kept in (None, agent_pieces.EPOCH_FILE) and not any(
        mounted.get("mountPath") == agent_pieces.FOLDER for mounted in mounts
    ):
        mounts.append(agent_pieces.mount())


def _port_conflicts(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """All containers of a Pod share its address: nobody else may listen on the barrier's port."""
    if member.agent is not None:
        return
    for container in (*member.inits, *member.containers):
        for position, port in enumerate(container.raw.get("ports") or ()):
            if port.get("containerPort") == options.port:
                path = f"{container.path}.ports[{position}].containerPort"
                fix = "choose another port for the agent with --port"
                yield _refuse(path, options.port, "a port that the agent does not need", fix)


def _is_granted(objects: Sequence[KubeObject], namespace: str, account: str) -> bool:
    """Say whether the stream itself binds the account to some role: then its permissions are the user's business."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    bindings = (obj for obj in objects if obj.get("kind") in ("RoleBinding", "ClusterRoleBinding"))
    return any(subject.items() <= given.items() for binding in bindings for given in binding.get("subjects") or ())


def _key(obj: KubeObject, namespace: str) -> tuple[Any, ...]:
    metadata = obj.get("metadata") or {}
    return obj.get("kind"), metadata.get("namespace") or namespace, metadata.get("name")


def _fill(parent: KubeObject, key: str, empty: Any) -> Any:
    """Return a part of an object, made when it is not there or null."""
    if parent.get(key) is None:
        parent[key] = empty
    return parent[key]


def _refuse(path: str, found: object, needed: str, fix: str) -> Finding:
    return Finding(_REFUSED, path, found if isinstance(found, str) else shown(found), needed, fix)
