"""
Add to a plain JobSet all that in-place restart needs. Pure: objects in, changed copies out.

Settings that are there stay, so that running it twice changes nothing. A manifest is changed as a whole or not at all:
if something cannot be decided, it is refused with all problems at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

from inplace.agent.start.arguments import ArgumentsError, clean_words
from inplace.cli.lint.stored import UNREADABLE, as_stored
from inplace.cli.manifests.documents import is_jobset, objects_of
from inplace.cli.manifests.trainer import (
    CONTAINER,
    annotate_jobset,
    annotations_of,
    is_runtime,
    is_train_job,
    jobset_in,
    runtime_of,
    trains,
)
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of
from inplace.controller.injection import agent_pieces
from inplace.controller.injection.finding import REFUSED, Finding, refusal, shown
from inplace.controller.injection.job import add_agent, named_workers
from inplace.controller.injection.pod import InjectOptions
from inplace.controller.injection.pod_roles import Member, members
from inplace.controller.injection.policies import PolicyOptions
from inplace.controller.injection.worker import fill
from inplace.controller.plan.problems.requests import bad_spares
from inplace.controller.spec.bad_nodes import read_bad_nodes
from inplace.controller.spec.requests import read_fence


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
    for train_job in filter(is_train_job, objects):
        findings += _change_train_job(train_job, objects)
    if findings:
        raise Refusal(findings)
    for runtime, jobset in held:
        _put_back(jobset, runtime)
    known = {_key(obj, options.namespace) for obj in objects}
    wanted = {_key(obj, options.namespace): obj for place in accounts for obj in agent_pieces.permissions(*place)}
    return changed, [obj for key, obj in wanted.items() if key not in known]


def _change_train_job(train_job: KubeObject, objects: Sequence[KubeObject]) -> Iterator[Finding]:
    """Let a TrainJob ask for restarts in place, unless its runtime here has the agent; then its command must stay out.

    A TrainJob has no Pod template. Whether a runtime that is elsewhere has an agent is not known here, so the
    controller adds it.
    """
    name = (train_job.get("metadata") or {}).get("name", "")
    runtime = runtime_of(train_job, objects)
    if runtime is None:
        if wire.RESTART_IN_PLACE not in annotations_of(train_job):
            annotate_jobset(train_job, wire.RESTART_IN_PLACE, str(agent_pieces.DEFAULT_POLICY["maxRestarts"]))
        return
    if ((train_job.get("spec") or {}).get("trainer") or {}).get("command"):
        for member in filter(lambda one: trains(one.template), members(jobset_in(runtime))):
            for worker in member.workers:
                if worker.name == CONTAINER and worker.has_agent:
                    fix = "use --barrier probe; or leave the runtime as it is, and let the controller add the agent"
                    path = f"TrainJob {name}: spec.trainer.command"
                    yield refusal(path, "a command, which replaces the guard's in the runtime", "nothing", fix)


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
    policy = {**agent_pieces.DEFAULT_POLICY, **(failure_policy_of(jobset) or {})}
    fill(spec, "failurePolicy", {}).update(policy | {"restartStrategy": wire.IN_PLACE_RESTART})
    group = [member for member in members(jobset) if not member.has_opted_out]
    if not group:
        yield refusal("spec.replicatedJobs", None, "a replicatedJob whose Pods restart as a group", "add one")
    yield from _annotate(metadata, options.policies, options.depth)
    yield from _refused_spares(jobset)
    names = {container.name for member in group for container in member.containers}
    for name in named_workers(metadata.get("annotations") or {}):
        if name not in names:
            path, fix = f'metadata.annotations["{wire.WORKERS}"]', f"name one of {', '.join(sorted(names))}"
            yield refusal(path, shown(name), "the name of a container", fix)
    for member in group:
        account = member.pod_spec["serviceAccountName"] = _account(member, options)
        member.job_spec.update(agent_pieces.JOB_FIELDS)
        yield from add_agent(member, options)
        if not any(agent_pieces.binds(obj, namespace, account) for obj in objects):  # else they are the user's business
            accounts[(namespace, account)] = None


def _annotate(metadata: KubeObject, policies: PolicyOptions, depth: str | None) -> Iterator[Finding]:
    """Write the annotations; yield values that cannot be read, and annotations that say otherwise."""
    given = {
        wire.RESTART_DEPTH: depth,
        wire.SAVE_WITHIN: str(policies.save_within_s) if policies.save_within_s else None,
        wire.FENCE_AFTER: policies.fence_after_s,
        wire.BAD_NODES: policies.bad_nodes,
        wire.SPARES: policies.spares,
    }
    options = {name: text for name, text in given.items() if text is not None}
    for read in (read_fence, read_bad_nodes):
        try:
            read(options)
        except RemoteProtocolError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(";")[0].partition(", saw ")
            option = "--fence-after" if read is read_fence else "--bad-nodes"
            yield refusal(option, found, needed, "correct it")
    if policies.clean:
        try:
            clean_words("--clean", "\n".join(policies.clean))
        except ArgumentsError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(", saw ")
            yield refusal("--clean", found, needed, "correct it")
    for name, text in options.items():
        old = (metadata.get("annotations") or {}).get(name)
        if old not in (None, text):
            fix = "change the annotation, or leave the option out"
            yield refusal(f'metadata.annotations["{name}"]', old, text, fix)
        fill(metadata, "annotations", {})[name] = text
    deep = (metadata.get("annotations") or {}).get(wire.RESTART_DEPTH)
    if deep not in (None, wire.DEPTH_CONTAINERS, wire.DEPTH_PROCESS):
        needed = f"{wire.DEPTH_CONTAINERS} or {wire.DEPTH_PROCESS}"
        yield refusal(f'metadata.annotations["{wire.RESTART_DEPTH}"]', deep, needed, "use one of them")
    if not policies.check and (policies.check_timeout_s is not None or policies.unanswered is not None):
        fix = "name the check, or leave the other options out"
        yield refusal("--before-announce", "nothing beside its other options", "a command", fix)


def _refused_spares(jobset: KubeObject) -> Iterator[Finding]:
    """Yield a number of spares that the controller would not hold, of a JobSet that can be read."""
    with suppress(*UNREADABLE):
        for problem in bad_spares(as_stored(jobset)):
            path, _, rest = problem.partition(": expected ")
            needed, _, found = rest.partition(", saw ")
            yield refusal(path, found.partition("; ")[0], needed, found.rpartition("; ")[2])


def _account(member: Member, options: InjectOptions) -> str:
    """Return the account of a Pod; `serviceAccount` is the field's old name."""
    pod = member.pod_spec
    return str(pod.get("serviceAccountName") or pod.get("serviceAccount") or options.account or agent_pieces.ACCOUNT)


def _key(obj: KubeObject, namespace: str) -> tuple[Any, ...]:
    metadata = obj.get("metadata") or {}
    return obj.get("kind"), metadata.get("namespace") or namespace, metadata.get("name")
