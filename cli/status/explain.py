"""
`inplace explain`: explain why a JobSet waits or failed, with some ten requests at most.

Why a queue keeps a JobSet suspended says Kueue's Workload; Kueue alone resumes what it has suspended. The Workload of a
JobSet bears the UID of the JobSet, or that of the object which owns the JobSet, such as a TrainJob.
Source: sigs.k8s.io/kueue/pkg/controller/constants, JobUIDLabel; apis/kueue/v1beta2, WorkloadStatus.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from inplace.cli.connection import Connection, command
from inplace.cli.group.nodes import AvoidedNode
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.read import NOT_ASKED, read_controller, read_group, read_pod
from inplace.cli.group.scope_state import resume_text
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.group.steps_told import sees_steps, with_steps
from inplace.cli.group.straggler import Why
from inplace.cli.status.advice import Queued, failed_job
from inplace.cli.status.document import verdict_text
from inplace.cli.status.explanation import Explanation, Facts, Subject, event_subject, explain, vacant_slots
from inplace.cli.terminal.moments import clock_text, count_text, date_text, names_text
from inplace.cli.terminal.screen import Output, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.goodput import goodput_text
from inplace.common.jobset.headline import WAITING, GroupPhase
from inplace.common.jobset.scopes import Saving
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import JOBS, JOBSETS, NODES, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.api.object_events import Event, events_about

if TYPE_CHECKING:
    from inplace.cli.documents import ExplainDocument

SAMPLES_MAX: Final = 4  # Pods or Jobs whose Events are read, one for each reason; and as many nodes
DETAILS_MAX: Final = 10  # Pods of a large group that are read whole
PODS_SHOWN: Final = 10
NODES_SHOWN: Final = 10


@command
async def run_explain(connection: Connection, name: str, *, output: Output) -> None:
    """Print why a JobSet waits or failed."""
    explanation = explain(await read_facts(connection, name), now_s=time.time())
    if output != "table":
        print_data(explanation_data(explanation), output)
        return
    from rich.text import Text

    show(*(Text(text, style) for text, style in explanation_lines(explanation)))


async def read_facts(connection: Connection, name: str) -> Facts:
    """Read the sources of an explanation; only the JobSet and its Pods must be readable."""
    raw, pods = await read_group(connection, name)
    state = group_state(raw, pods)
    if len(pods) > connection.whole_max:
        pods = await _with_details(connection, state, pods)
        state = group_state(raw, pods)
    unread: list[str] = []
    state = await with_steps(connection, raw, pods, state, unread)
    events = await read_events(connection, Subject(JOBSETS, name, str(raw["metadata"]["uid"])), unread)
    more: dict[str, list[Event]] = {}
    nodes: dict[str, str] = {}
    controller = await read_controller(connection, unread) if state.needs_controller else NOT_ASKED
    late = state.stragglers if state.phase in WAITING else vacant_slots(state)
    samples = {one.why: one for one in reversed(late)}
    for one in list(samples.values())[:SAMPLES_MAX]:
        subject = event_subject(state, one)
        more[subject.name] = await read_events(connection, subject, unread)
        if one.node is not None and one.why in (Why.NODE_LOST, Why.TERMINATING, Why.BEHIND, Why.SILENT):
            nodes[one.node] = await _node_words(connection, one.node)
    queued = await read_queued(connection, raw, unread) if state.phase is GroupPhase.SUSPENDED else None
    job = failed_job(state)
    if job:
        more[job] = await read_events(connection, Subject(JOBS, job), unread)
    return Facts(state, pods, events, more, nodes, unread, queued, controller)


async def read_events(connection: Connection, subject: Subject, unread: list[str]) -> list[Event]:
    """Return the Events about an object, oldest first; why they cannot be read is added to `unread`."""
    try:
        uid = subject.uid
        if not uid:
            uid = (await connection.client.get(subject.kind, connection.namespace, subject.name))["metadata"]["uid"]
        return await events_about(connection.client, connection.namespace, uid)
    except (ApiError, TransportError) as error:
        why = "it does not exist any more" if isinstance(error, NotFound) else error
        unread.append(f"Events of {subject.kind.kind} {subject.name}: {why}")
        return []


def explanation_data(explanation: Explanation) -> ExplainDocument:
    """Return the explanation for programs."""
    facts = explanation.facts
    return {
        "namespace": facts.state.namespace,
        "name": facts.state.name,
        "phase": facts.state.phase.value,
        "headline": explanation.headline,
        "happened": [{"at": moment.at_s, "text": moment.text} for moment in explanation.moments],
        "causes": [
            {"kind": cause.kind, "text": cause.text, "pods": list(cause.pods), "advice": cause.advice}
            for cause in explanation.causes
        ],
        "avoidedNodes": [
            {"node": one.node, "failures": one.failures, "until": one.until_s, "why": one.why}
            for one in explanation.avoided
        ],
        "unread": list(facts.unread),
    }


def saving_text(saving: Saving) -> str:
    """Return one line about a restart that waits for its workers."""
    until = clock_text(saving.until_s)
    return f"its workers save before a restart, until {until} UTC at the latest (request {one_line(saving.request)})"


UNWATCHED: Final = (
    "No agent can see steps here: a worker that hangs would not be noticed. `inplace inject` gives a worker a guard."
)


def stepless_text(state: GroupState) -> str:
    """Say that the agents have nothing to go by, and how to see what the ranks do."""
    there = f"{state.name} -n {state.namespace}"
    return (
        "No rank has reported a step in this epoch, so a hang may not be noticed. Where the ranks are: "
        f"inplace stacks {there}. A script reports its steps with inplace.progress(step)."
    )


def avoided_lines(avoided: Sequence[AvoidedNode], name: str) -> list[str]:
    """Return a line for each of the nodes that new Pods avoid, the newest first."""
    lines = [
        f"new Pods avoid node {one_line(one.node)} until {date_text(one.until_s)} UTC "
        f"({count_text(one.failures, 'failure')}): {one_line(one.why)}"
        for one in reversed(avoided[-NODES_SHOWN:])
    ]
    rest = len(avoided) - NODES_SHOWN
    return [*lines, f"and {count_text(rest, 'node')} more: inplace explain {name} -o json"] if rest > 0 else lines


def explanation_lines(explanation: Explanation) -> list[tuple[str, str]]:
    """Return the lines for people, each with its style."""
    state = explanation.facts.state
    lines = [(f"{state.namespace}/{state.name}: {explanation.headline}", "bold")]
    if state.used is not None:
        lines.append((f"{state.used} of {state.allowed} restarts used", ""))
    lines += [(one_line(words), "") for words in filter(None, (verdict_text(state),))]
    lines += [(goodput_text(scope.goodput), "") for scope in state.scopes if scope.goodput and scope.goodput.ratio]
    lines += [(words, "") for scope in state.scopes if (words := resume_text(scope))]
    lines += [(saving_text(scope.saving), "") for scope in state.scopes if scope.saving is not None]
    lines += [(one_line(line), "") for line in explanation.busy]
    if state.last is not None and state.last.trigger == "stalled":
        lines.append(
            (f"where its ranks were before the restart: inplace stacks {state.name} -n {state.namespace} --last", "")
        )
    lines += [(line, "") for line in avoided_lines(explanation.avoided, state.name)]
    if explanation.moments:
        lines += [("", ""), ("What happened (UTC)", "bold")]
        for moment in explanation.moments:
            at = clock_text(moment.at_s) if moment.at_s is not None else "--:--:--"
            lines.append((f"  {at}  {one_line(moment.text)}", ""))
    if explanation.causes:
        lines += [("", ""), ("Why", "bold")]
        for number, cause in enumerate(explanation.causes, 1):
            lines.append((f"  {number}. {one_line(cause.text)}", "red"))
            if cause.pods:
                lines.append((f"     {names_text(cause.pods, PODS_SHOWN)}", "dim"))
        lines += [("", ""), ("What to do", "bold")]
        lines += [(f"  {number}. {one_line(cause.advice)}", "") for number, cause in enumerate(explanation.causes, 1)]
    elif state.phase is GroupPhase.RUNNING and state.reports_steps:
        lines += [("", ""), ("Nothing keeps it from training.", "green")]
    elif state.phase is GroupPhase.RUNNING and state.jobset is not None:
        lines += [("", ""), (stepless_text(state) if sees_steps(state.jobset.raw) else UNWATCHED, "")]
    lines += [(f"not read: {one_line(problem)}", "yellow") for problem in explanation.facts.unread]
    return lines


async def _with_details(connection: Connection, state: GroupState, pods: list[PodFact]) -> list[PodFact]:
    """Read the first late or idle Pods whole, and the one that failed first: of a large group outlines are known."""
    whole: dict[str, PodFact] = {}
    late = [one.pod for one in state.stragglers if one.pod is not None] if state.phase in WAITING else []
    late += [name for scope in state.scopes for name in scope.idle]
    failure = state.last.first_failure if state.last is not None else None
    failed = failure.get("pod") if failure is not None else None
    names = {*late[:DETAILS_MAX], *(pod.name for pod in pods if pod.name == failed)}
    for name in sorted(names):
        with suppress(NotFound):  # gone meanwhile
            whole[name] = await read_pod(connection, name)
    return [whole.get(pod.name, pod) for pod in pods]


async def _node_words(connection: Connection, name: str) -> str:
    """Say in a few words how a node is."""
    try:
        node = await connection.client.get(NODES, None, name)
    except NotFound:
        return "does not exist any more"
    except (ApiError, TransportError) as error:
        return f"could not be asked ({error})"
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: dict[str, Any] = next((one for one in conditions if one.get("type") == "Ready"), {})
    if ready.get("status") == "True":
        return "is ready"
    return f"is not ready ({ready.get('reason') or 'no reason given'} since {ready.get('lastTransitionTime')})"


JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
WORKLOADS: Final = tuple(
    Resource("kueue.x-k8s.io", version, "workloads", "Workload") for version in ("v1beta2", "v1beta1")
)


async def read_queued(connection: Connection, raw: KubeObject, unread: list[str]) -> Queued | None:
    """Return what Kueue says of a suspended JobSet; None where no queue can have it.

    What cannot be read is added to `unread`.
    """
    meta = raw["metadata"]
    queue = str((meta.get("labels") or {}).get(wire.QUEUE_NAME) or "")
    owners = [str(one.get("uid")) for one in meta.get("ownerReferences") or () if one.get("controller")]
    if not queue and not owners:
        return None
    query = {"labelSelector": f"{JOB_UID_LABEL} in ({','.join((str(meta['uid']), *owners))})"}
    for resource in WORKLOADS:
        try:
            found = (await connection.client.list(resource, connection.namespace, query=query)).get("items") or []
        except NotFound:
            continue
        except (ApiError, TransportError) as error:
            unread.append(f"Kueue's Workload: {error}")
            return Queued(queue) if queue else None
        if found:
            return Queued(queue, str(found[0]["metadata"]["name"]), "; ".join(_words(found[0])))
        return Queued(queue, said="Kueue has no Workload of it") if queue else None
    return Queued(queue, said="this cluster has no Kueue") if queue else None


def _words(workload: KubeObject) -> Iterator[str]:
    """Yield what keeps a Workload from being admitted."""
    status = workload.get("status") or {}
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    if (workload.get("spec") or {}).get("active") is False:
        yield "Kueue or a person deactivated it (spec.active is false)"
    if (conditions.get("Evicted") or {}).get("status") == "True":
        yield _said(conditions["Evicted"])
    if (conditions.get("QuotaReserved") or {}).get("status") != "True":
        yield _said(conditions["QuotaReserved"]) if "QuotaReserved" in conditions else "Kueue has not looked at it yet"
        return
    for check in status.get("admissionChecks") or ():
        if check.get("state") != "Ready":
            yield f"admission check {check.get('name')} is {check.get('state')}: {check.get('message') or 'no message'}"


def _said(condition: KubeObject) -> str:
    reason, message = condition.get("reason") or "no reason", condition.get("message") or "no message"
    return f"{condition.get('type')} is {condition.get('status')} ({reason}): {message}"
