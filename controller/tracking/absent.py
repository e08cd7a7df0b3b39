"""Find why a slot is not at the barrier, from its Job and its Pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from inplace.common.injection.index_backoff import next_pod_words
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.controller.tracking.pods import epoch_of

NO_POD: Final = "no pod"  # its Job made none, and none is left of it
WORDS_MAX: Final = 120  # of one reason; ten of them and a headline stay readable


def why_absent(job: Job | None, pods: Sequence[Pod], promises: Mapping[str, int]) -> str:
    """Return the reason why a slot's Pod is not at the barrier, in words.

    Args:
        job: of the slot.
        pods: in the slot.
        promises: within how many seconds workers end, by the UID of their Pod (`controller.tracking.fences`).
    """
    if job is None:
        return "its job does not exist"
    if not pods:
        return "no pod: its job is being deleted" if job.is_leaving else NO_POD
    for pod in pods:
        if (promised := promises.get(pod.metadata.uid)) is not None:
            where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
            return f"waits at most {promised} s for the fence of pod {pod.metadata.name}{where}"[:WORDS_MAX]
    if len(pods) > 1:
        return f"{len(pods)} pods, of which one must go first"
    return _of_pod(pods[0])[:WORDS_MAX]


def _of_pod(pod: Pod) -> str:
    phase, where = pod.status.phase or "Pending", f" on {pod.spec.node_name}" if pod.spec.node_name else ""
    if pod.metadata.deletion_timestamp is not None and phase != "Failed":
        return f"Terminating{where}"
    if phase == "Pending":
        return f"Pending: {_pending(pod)}{where}"
    if phase in ("Failed", "Succeeded"):
        next_pod = f"; {words}" if phase == "Failed" and (words := _next_pod(pod)) else ""
        return (f"{phase}: {pod.status.reason}{where}" if pod.status.reason else f"{phase}{where}") + next_pod
    return f"{phase}{where}: {_announced(pod)}"


def _next_pod(pod: Pod) -> str:
    keys = pod.metadata.annotations
    ended = [one.state.terminated.finished_at for one in pod.status.all_statuses if one.state.terminated is not None]
    return "" if keys is None else next_pod_words(keys.index_failures, keys.index_failures_ignored, ended)


def _pending(pod: Pod) -> str:
    """Say what a Pod waits for that does not run yet: a gate, a node, an image."""
    if gates := pod.spec.scheduling_gates:
        return "scheduling gate " + ", ".join(gate.name for gate in gates)
    if (condition := pod.status.condition("PodScheduled")) is not None:
        return shortened(condition.message or condition.reason or "not scheduled")
    if (waiting := pod.status.waiting_reason) is not None:
        return waiting
    return _announced(pod) if pod.spec.node_name else "not scheduled yet"


def _announced(pod: Pod) -> str:
    try:
        epoch = epoch_of(pod)
    except RemoteProtocolError:
        return "its announcement cannot be read"
    return "has announced nothing" if epoch is None else f"announced epoch {epoch}"


def shortened(message: str) -> str:
    """Return what a scheduler's message is about.

    "0/8 nodes are available: 8 Insufficient google.com/tpu. preemption: ..." -> "8 Insufficient google.com/tpu"
    """
    head, found, rest = message.partition(" nodes are available: ")
    return (rest if found else head).partition(". ")[0].rstrip(".")
