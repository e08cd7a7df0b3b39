"""
Add to a plain JobSet all that in-place restart needs. Pure: objects in, changed copies out.

Settings that are there stay, so that running it twice changes nothing. A manifest is changed as a whole or not at all:
if something cannot be decided, it is refused with all problems at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from inplace.cli.inject.pod import InjectOptions, change_pod
from inplace.cli.inject.policies import add_policies, annotate
from inplace.cli.inject.worker import fill
from inplace.cli.manifests import agent_pieces
from inplace.cli.manifests.documents import is_jobset, is_runtime, jobset_in, objects_of
from inplace.cli.manifests.finding import REFUSED, Finding, refusal, shown
from inplace.cli.manifests.pod_roles import Member, members
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

_RESTRICTED: Final = "inplace-agent or inplace-agent-SUFFIX, which admission lets announce for its own Pod alone"
_UNRESTRICTED: Final = (
    "rename it so, with its annotations (such as GKE's iam.gke.io/gcp-service-account); or bind it to a Role in this "
    "file; or --unrestricted-account: then a token of it may change every Pod of the namespace"
)


class Refusal(Exception):
    """The manifest cannot be changed.

    Attributes:
        findings: each with its path, what was found, what is needed and what to do.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(str(finding) for finding in findings))
        self.findings = tuple(findings)


def inject(documents: Sequence[Any], options: InjectOptions) -> tuple[list[Any], list[KubeObject]]:
    """Return the documents with every JobSet changed, a runtime's too, and the new objects that go in front of them.

    Raises:
        Refusal: something has to be decided by a person first.
    """
    changed = deepcopy(list(documents))
    findings: list[Finding] = []
    accounts: dict[tuple[str, str], None] = {}
    objects = [obj for document in changed for obj in objects_of(document)]
    held = [(runtime, jobset_in(runtime)) for runtime in filter(is_runtime, objects)]
    jobsets = [*filter(is_jobset, objects), *(jobset for _, jobset in held)]
    names = {container.name for jobset in jobsets for one in members(jobset) for container in one.containers}
    for name in options.workers:
        if name not in names:
            fix = f"name one of {', '.join(sorted(names))}"
            findings.append(Finding(REFUSED, "--worker", shown(name), "the name of a container", fix))
    for jobset in jobsets:
        for finding in _change(jobset, options, objects, accounts):
            name = (jobset.get("metadata") or {}).get("name", "")
            findings.append(replace(finding, path=f"JobSet {name}: {finding.path}"))
    if findings:
        raise Refusal(findings)
    for runtime, jobset in held:
        _put_back(jobset, runtime)
    known = {_key(obj, options.namespace) for obj in objects}
    wanted = {_key(obj, options.namespace): obj for place in accounts for obj in agent_pieces.permissions(*place)}
    return changed, [obj for key, obj in wanted.items() if key not in known]


def _put_back(jobset: KubeObject, runtime: KubeObject) -> None:
    """Give a runtime the annotations that its JobSet got; the spec is the runtime's own already."""
    if jobset["metadata"]["annotations"]:
        metadata = fill(runtime["spec"]["template"], "metadata", {})
        metadata["annotations"] = jobset["metadata"]["annotations"]


def _change(
    jobset: KubeObject, options: InjectOptions, objects: Sequence[KubeObject], accounts: dict[tuple[str, str], None]
) -> Iterator[Finding]:
    """Change one JobSet; yield what cannot be decided, and add the accounts that need rights."""
    metadata = jobset.setdefault("metadata", {})
    namespace = metadata.setdefault("namespace", options.namespace)
    spec = jobset.setdefault("spec", {})
    fill(spec, "failurePolicy", {}).update(
        dict(agent_pieces.DEFAULT_POLICY) | (spec["failurePolicy"] or {}) | {"restartStrategy": wire.IN_PLACE_RESTART}
    )
    group = [member for member in members(jobset) if not member.has_opted_out]
    if not group:
        yield refusal("spec.replicatedJobs", None, "a replicatedJob whose Pods restart as a group", "add one")
    problem, options = _with_depth(metadata, options)
    yield from problem
    yield from annotate(metadata, options.policies)
    leased = wire.FENCE_AFTER in (metadata.get("annotations") or {})
    for member in group:
        yield from _change_job(member, options)
        if not member.containers:
            path = f"{member.pod_path}.containers"
            yield refusal(path, None, "the worker's container", "add it: inject does not know what to run")
            continue
        yield from change_pod(member, options)
        yield from add_policies(member, options.policies, leased=leased)
        path, account = _account(member, options)
        member.pod_spec["serviceAccountName"] = account
        if any(agent_pieces.binds(obj, namespace, account) for obj in objects):
            continue  # its permissions are the user's business
        if not agent_pieces.is_restricted(account) and not options.unrestricted_account:
            yield refusal(path, shown(account), _RESTRICTED, _UNRESTRICTED)
        accounts[(namespace, str(account))] = None


def _account(member: Member, options: InjectOptions) -> tuple[str, Any]:
    """Return where the account of a Pod is named, and the account; `serviceAccount` is the field's old name."""
    for field in ("serviceAccountName", "serviceAccount"):
        if account := member.pod_spec.get(field):
            return f"{member.pod_path}.{field}", account
    return "--service-account", options.account or agent_pieces.ACCOUNT


def _with_depth(metadata: KubeObject, options: InjectOptions) -> tuple[list[Finding], InjectOptions]:
    """Return what is wrong with the JobSet's depth of a restart, and the options with it; an option is noted there."""
    path = f'metadata.annotations["{wire.RESTART_DEPTH}"]'
    given = (metadata.get("annotations") or {}).get(wire.RESTART_DEPTH)
    if given not in (None, wire.DEPTH_CONTAINERS, wire.DEPTH_PROCESS):
        return [refusal(path, given, f"{wire.DEPTH_CONTAINERS} or {wire.DEPTH_PROCESS}", "use one of them")], options
    if options.depth is None:
        return [], replace(options, depth=given)
    if given not in (None, options.depth):
        return [refusal(path, given, options.depth, "change the annotation, or leave --restart out")], options
    fill(metadata, "annotations", {})[wire.RESTART_DEPTH] = options.depth
    return [], options


def _change_job(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Make the Job one whose Pods all run at once and are replaced one by one."""
    spec, path = member.job_spec, member.job_path
    if spec.get("completionMode", "Indexed") != "Indexed":
        fix = "the barrier counts Pods by their index; remove the field if the worker does not mind to be Indexed"
        yield refusal(f"{path}.completionMode", spec["completionMode"], "Indexed", fix)
    counts = {name: spec[name] for name in ("parallelism", "completions") if spec.get(name) is not None}
    if len(set(counts.values())) > 1:
        fix = "all Pods of a Job run at once; set both to the number of Pods"
        yield refusal(f"{path}.completions", spec["completions"], f"parallelism ({spec['parallelism']})", fix)
    else:
        spec |= dict.fromkeys(("parallelism", "completions"), next(iter(counts.values()), 1))
    if spec.get("backoffLimitPerIndex") is not None:
        fix = "an index that failed for good would leave the barrier waiting for ever; remove the field"
        yield refusal(f"{path}.backoffLimitPerIndex", spec["backoffLimitPerIndex"], "nothing", fix)
    spec |= agent_pieces.JOB_FIELDS
    member.pod_spec["restartPolicy"] = "Never"
    is_supervisor = (member.mode or options.mode) == "supervisor"
    if is_supervisor and member.pod_spec.get("automountServiceAccountToken") is False:
        fix = "the agent talks to the API server; remove the field, or mount a token into the agent yourself"
        yield refusal(f"{member.pod_path}.automountServiceAccountToken", False, "true or nothing", fix)


def _key(obj: KubeObject, namespace: str) -> tuple[Any, ...]:
    metadata = obj.get("metadata") or {}
    return obj.get("kind"), metadata.get("namespace") or namespace, metadata.get("name")
