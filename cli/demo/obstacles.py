"""Find what keeps a JobSet from training, in the objects that the demo's API server holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from inplace.cli.status.document import failure_text
from inplace.cli.terminal.moments import count_text
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import exit_words

OBSTACLES_MAX: Final = 5  # that are named; a thousand Pods wait for the same
RESTARTS_MIN: Final = 2  # of a container, before anything trained
_SAYS_SO: Final = ("SpecProblem", "Failed")  # conditions of the JobSet that name an obstacle


def obstacles(
    jobset: KubeObject, jobs: Sequence[KubeObject], pods: Iterable[KubeObject], events: Iterable[KubeObject] = ()
) -> list[str]:
    """Return a sentence for each thing that stands in the way; of Pods with the same trouble the first.

    Args:
        jobset: {} when it is gone.
        jobs: its Jobs.
        pods: its Pods.
        events: the namespace's; they count only as long as the JobSet has no Job, for the API may refuse these.
    """
    found: dict[str, str] = {}
    refused = [] if jobs else _of_events(jobset, events)
    for kind, text in (*_of_jobset(jobset), *refused, *_of_jobs(jobs), *_of_pods(pods)):
        found.setdefault(kind, text)
    return list(found.values())[:OBSTACLES_MAX]


def _of_jobset(jobset: KubeObject) -> Iterator[tuple[str, str]]:
    if not jobset:
        yield "gone", "the JobSet is gone"
        return
    if jobset["spec"].get("suspend"):
        yield "suspend", "the JobSet is suspended: set spec.suspend to false"
    status = jobset.get("status") or {}
    synced, _ = wire.epochs_of_status(status)
    failure = (status.get(wire.LAST_GROUP_RESTART) or {}).get("firstFailure") or {}
    if synced > 1 and failure:
        times = count_text(synced - 1, "time")
        yield "restarts", f"the group restarted {times} before it trained; first of all, {failure_text(failure)}"
    for condition in status.get("conditions") or ():
        if condition["type"] in _SAYS_SO and condition["status"] == "True":
            yield condition["type"], f"condition {condition['type']}: {condition['message']}"


def _of_events(jobset: KubeObject, events: Iterable[KubeObject]) -> Iterator[tuple[str, str]]:
    uid = (jobset.get("metadata") or {}).get("uid")
    for event in events:
        about = event.get("regarding") or event.get("involvedObject") or {}
        if uid is not None and about.get("uid") == uid and event.get("type") == "Warning":
            text = event.get("note") or event.get("message")
            yield f"event {event.get('reason')}", f"{event.get('reason')}: {text}"


def _of_jobs(jobs: Iterable[KubeObject]) -> Iterator[tuple[str, str]]:
    for job in jobs:
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition["type"] == "Failed" and condition["status"] == "True":
                yield "job", f"Job {job['metadata']['name']} failed: {condition['reason']}: {condition['message']}"


def _of_pods(pods: Iterable[KubeObject]) -> Iterator[tuple[str, str]]:
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if status.get("phase") == "Succeeded" or "deletionTimestamp" in pod["metadata"]:
            continue
        if gates := [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]:
            yield "gates", f"Pod {name} waits behind the scheduling gate {', '.join(gates)}"
        for condition in status.get("conditions") or ():
            if (condition["type"], condition["status"]) == ("PodScheduled", "False") and not gates:
                yield "unscheduled", f"Pod {name} has no node: {condition['message']}"
        for field in ("initContainerStatuses", "containerStatuses"):
            for container in status.get(field) or ():
                if (words := _of_container(container)) is not None:
                    yield f"container {container['name']}", f"container {container['name']} of Pod {name} {words}"


def failed_inits(pod: KubeObject) -> list[str]:
    """Return the init containers of a Pod that failed; its worker never started then."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    ended = {each["name"]: (each.get("state") or {}).get("terminated") or {} for each in statuses}
    return [name for name, state in ended.items() if state.get("exitCode") and state.get("reason") == "Error"]


def _of_container(status: KubeObject) -> str | None:
    """Return how a container fails; None if it does not."""
    times = f" ({status['restartCount']} restarts)" if status.get("restartCount") else ""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("exitCode") and ended.get("reason") != "RestartingAllContainers":
            why = f": {ended['message']}" if ended.get("message") else ""
            why = why or (": its command is no program here" if ended.get("reason") == "StartError" else "")
            return f"ended: {exit_words(ended['exitCode'], ended.get('reason') or '')}{times}{why}"
    waiting = (status.get("state") or {}).get("waiting") or {}
    if waiting.get("reason") == "CrashLoopBackOff":
        return f"ends again and again{times}"
    if int(status.get("restartCount") or 0) >= RESTARTS_MIN:
        return f"was restarted {status['restartCount']} times"
    return None
