"""
`inplace inject`: print a manifest with all that in-place restart needs; it never talks to a cluster.

Settings that are there stay, so that running it twice changes nothing. A manifest is changed as a whole or not at all:
if something cannot be decided, it is refused with all problems at once.

Exit codes: 0 printed, 1 refused (a person has to decide something first), 2 bad usage or a file that is not a manifest.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, Literal

from inplace.cli.lint.agent import check_command, options_of
from inplace.cli.lint.stored import as_stored, finding_of
from inplace.cli.manifests.documents import Stream, StreamError, is_jobset, objects_of, read_stream
from inplace.cli.manifests.text import Edited, dump, with_documents
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
from inplace.cli.terminal.visible import raw_of, visible
from inplace.common.agent_command import GUARD
from inplace.common.injection import agent_pieces, rights
from inplace.common.injection.depth import chosen_words, probed_words
from inplace.common.injection.finding import REFUSED, Finding, refusal, shown
from inplace.common.injection.job import add_agent, named_workers
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import RUN, Member, group_of, members
from inplace.common.injection.policies import CHECK, checks
from inplace.common.injection.worker import fill
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of
from inplace.controller.plan.problems.requests import unreadable

Rbac = Literal["both", "none", "only"]
NOT_PRINTED = 1
UNREADABLE = 2
GENERATED = (
    "kubectl can apply no JobSet with generateName, and can create the agents' account only once; apply the account "
    "with `inject --rbac only | kubectl apply -f -`, then create each JobSet with "
    "`inject --rbac none | kubectl create -f -`"
)
DIFF_LINES_MAX = 3_000  # some 60 JobSets: a second; the comparison's time grows with the square


def run_inject(
    file: str,
    options: InjectOptions,
    *,
    output: Literal["yaml", "json"],
    diff: bool,
    quiet: bool = False,
    rbac: Rbac = "both",
) -> int:
    """Print the manifest, and the difference on stderr (with `diff`, the difference alone); return the exit code.

    Args:
        file: the manifest's path, or "-".
        options: what to add.
        output: the format.
        diff: print the difference alone.
        quiet: print no difference.
        rbac: print the agents' accounts and rights in front of the manifest, not at all, or alone.
    """
    try:
        stream = read_stream(file)
        documents, first = inject(stream.documents, options)
    except StreamError as error:
        print(f"inplace inject: {error}", file=sys.stderr)
        return UNREADABLE
    except Refusal as refusal:
        for finding in refusal.findings:
            print(f"inplace inject: {stream.source}: {finding}", file=sys.stderr)
        return NOT_PRINTED
    if rbac == "only":
        sys.stdout.write(_json(first) if output == "json" else dump(first))
        return 0
    first = first if rbac == "both" else []
    if first and any(_is_generated(obj) for document in documents for obj in objects_of(document)):
        print(f"inplace inject: {stream.source}: {GENERATED}", file=sys.stderr)
    for said in [] if quiet else _depths(documents):
        print(f"inplace inject: {stream.source}: {said}", file=sys.stderr)
    edited = with_documents(stream, documents, first)
    if not edited.keeps_comments:
        print(f"inplace inject: {stream.source}: rewritten without its comments: its layout", file=sys.stderr)
    is_shown = (diff or not quiet) and len(edited.text.splitlines()) <= DIFF_LINES_MAX
    if (diff or not quiet) and not is_shown:
        note = (
            f"the difference is not shown, the file has more than {DIFF_LINES_MAX:,} lines; compare it with the output"
        )
        print(f"inplace inject: {stream.source}: {note}", file=sys.stderr)
    if diff:
        raw_of(sys.stdout).write(difference(stream, edited, color=sys.stdout.isatty()) if is_shown else "")
        return 0 if is_shown else NOT_PRINTED
    if is_shown:
        raw_of(sys.stderr).write(difference(stream, edited, color=sys.stderr.isatty()))
    if output == "json":
        sys.stdout.write(_json([*first, *documents]))
    else:  # kubectl reads a pipe, and the manifest as it is
        is_terminal = sys.stdout.isatty()
        text = edited.text if is_terminal else edited.text.replace("\n", stream.newline)
        (sys.stdout if is_terminal else raw_of(sys.stdout)).write(text)
    return 0


def _is_generated(obj: KubeObject) -> bool:
    metadata = obj.get("metadata") or {}
    return is_jobset(obj) and not metadata.get("name") and bool(metadata.get("generateName"))


def _depths(documents: Sequence[Any]) -> list[str]:
    """Say how deep restarts go where the manifest asks for it, and which workers are probed too early."""
    objects = [obj for document in documents for obj in objects_of(document)]
    jobsets = [*filter(is_jobset, objects), *(jobset_in(runtime) for runtime in filter(is_runtime, objects))]
    found = [member for jobset in jobsets for member in group_of(jobset)]
    return [said for member in found for said in (chosen_words(member), probed_words(member)) if said]


def difference(stream: Stream, edited: Edited, *, color: bool) -> str:
    """Return a unified diff; "" when nothing changed."""
    before, after = (text.splitlines(keepends=True) for text in (stream.text, edited.text))
    lines = difflib.unified_diff(before, after, stream.source, f"{stream.source} (injected)")
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(_painted(line) if color else line for line in map(visible, whole))


def _painted(line: str) -> str:
    if line.startswith(("+++", "---")):
        return f"\033[1m{line}\033[0m"
    number = {"+": 32, "-": 31, "@": 36}.get(line[:1])
    return line if number is None else f"\033[{number}m{line}\033[0m"


def _json(documents: Sequence[Any]) -> str:
    """Return one object, or a List of several."""
    objects = [obj for document in documents for obj in objects_of(document)]
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


CLEAN: Final = "WORKER_CLEAN"
OF_CHECK: Final = ("BEFORE_ANNOUNCE_TIMEOUT_S", "BEFORE_ANNOUNCE_UNANSWERED")
_NAME: Final = re.compile("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # RFC 1123; another one the API server refuses


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
    given: list[KubeObject] = []
    objects = [obj for document in changed for obj in objects_of(document)]
    held = [jobset_in(runtime) for runtime in filter(is_runtime, objects)]
    jobsets = [*filter(is_jobset, objects), *held]
    names = {container.name for jobset in jobsets for one in members(jobset) for container in one.containers}
    for name in options.workers:
        if name not in names:
            fix = f"name one of {', '.join(sorted(names))}"
            findings.append(Finding(REFUSED, "--worker", shown(name), "the name of a container", fix))
    of_runtimes = [*map(id, held)]
    for jobset in jobsets:
        name = str((jobset.get("metadata") or {}).get("name") or "")
        named = name if id(jobset) not in of_runtimes and _NAME.fullmatch(name) else None
        for finding in _change(jobset, options, objects, given, named):
            name = (jobset.get("metadata") or {}).get("name", "")
            findings.append(replace(finding, path=f"JobSet {name}: {finding.path}"))
    for train_job in filter(is_train_job, objects):
        findings += _change_train_job(train_job, objects)
    if findings:
        raise Refusal(findings)
    known = {_key(obj, options.namespace) for obj in objects}
    wanted = {_key(obj, options.namespace): obj for obj in given}
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


def _change(
    jobset: KubeObject,
    options: InjectOptions,
    objects: Sequence[KubeObject],
    given: list[KubeObject],
    named: str | None,
) -> Iterator[Finding]:
    """Change one JobSet; yield what cannot be decided, and add the rights that its accounts need.

    Args:
        jobset: changed in place.
        options: of the command.
        objects: of the whole file.
        given: where the rights go.
        named: the name of the JobSet that runs; None where only the server or Trainer knows it.
    """
    metadata = fill(jobset, "metadata", {})
    namespace = fill(metadata, "namespace", options.namespace)
    spec = fill(jobset, "spec", {})
    policy = {**agent_pieces.DEFAULT_POLICY, **(failure_policy_of(jobset) or {})}
    fill(spec, "failurePolicy", {}).update(policy | {"restartStrategy": wire.IN_PLACE_RESTART})
    group = [member for member in members(jobset) if not member.has_opted_out]
    if not group:
        yield refusal("spec.replicatedJobs", None, "a replicatedJob whose Pods restart as a group", "add one")
    yield from _unreadable(jobset)
    names = {container.name for member in group for container in member.containers}
    for name in named_workers(metadata.get("annotations") or {}):
        if name not in names:
            path, fix = f'metadata.annotations["{wire.AGENT}"]', f"name one of {', '.join(sorted(names))}"
            yield refusal(path, shown(name), "the name of a container", fix)
    for member in group:
        pod = member.pod_spec  # `serviceAccount` is the field's old name
        account = str(pod.get("serviceAccountName") or pod.get("serviceAccount") or rights.ACCOUNT)
        pod["serviceAccountName"] = account
        member.job_spec.update(agent_pieces.JOB_FIELDS)
        yield from add_agent(member, options)
        yield from _without_effect(replace(member))
        if not any(rights.binds(obj, namespace, account) for obj in objects):  # else they are the user's business
            given += [rights.service_account(namespace, account)] if rights.is_restricted(account) else []
            given += rights.permissions(namespace, account, named)


def _unreadable(jobset: KubeObject) -> Iterator[Finding]:
    """Yield annotations that the controller cannot read, of a JobSet that can be read."""
    with suppress(RemoteProtocolError):
        for problem in unreadable(as_stored(jobset)):
            yield finding_of(REFUSED, problem)


def _without_effect(member: Member) -> Iterator[Finding]:
    """Yield variables for guards and supervisors, of a replicatedJob with its agent, that have no effect."""
    for worker in member.workers:
        for verb in (GUARD, RUN):
            yield from check_command(worker, verb)
            if options_of(worker, verb) is not None and not checks(worker):
                for name in filter(worker.env.__contains__, OF_CHECK):
                    needed, fix = f"a check beside {name}", f"set it to the command, or remove {name}"
                    yield refusal(worker.path_of(CHECK), None, needed, fix)
        has_parent = worker.has_agent or worker.is_upstream_supervisor or worker.has_entrypoint_guard
        if CLEAN in worker.env and not has_parent:
            fix = "write the command of this container, for a guard; or remove the variable"
            yield refusal(worker.path_of(CLEAN), "no guard in the container", "a guard or a supervisor", fix)


def _key(obj: KubeObject, namespace: str) -> tuple[Any, ...]:
    metadata = obj.get("metadata") or {}
    return obj.get("kind"), metadata.get("namespace") or namespace, metadata.get("name")
