"""Say in sentences what a JobSet does about failures, where its annotations choose more than maxRestarts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.kube.resources import KubeObject
from inplace.controller.spec.bad_nodes import read_bad_nodes
from inplace.controller.spec.escalation import IN_PLACE, RECREATE_JOBS, REPLACE_POD, Ladder, read_ladder
from inplace.controller.spec.no_progress import NoProgressLimit, read_no_progress

DONE: Final[Mapping[str, str]] = {
    IN_PLACE: "all workers restart in their Pods",
    REPLACE_POD: "the Pod that failed first is replaced, and the others restart in place",
    RECREATE_JOBS: "all Jobs are deleted and created anew",
}


def policy_sentences(jobset: KubeObject) -> Iterator[str]:
    """Yield what happens at a failure; nothing where no annotation chooses it, or one cannot be read."""
    annotations = (jobset.get("metadata") or {}).get("annotations") or {}
    try:
        ladder, limit, bad_nodes = read_ladder(annotations), read_no_progress(annotations), read_bad_nodes(annotations)
    except (RemoteProtocolError, AttributeError, TypeError):
        return  # has a finding of its own
    if ladder:
        policy = (jobset.get("spec") or {}).get("failurePolicy") or {}
        yield from _ladder_sentences(ladder, policy.get("maxRestarts") or 0)
    if limit is not None:
        yield from _progress_sentences(limit)
    if bad_nodes is not None:
        yield f"Pods and nodes: {bad_nodes}."


def _ladder_sentences(ladder: Ladder, restarts_max: object) -> Iterator[str]:
    first, *others = ladder
    yield f"After a failure {DONE[first.name]}: {_often(first.uses_max)} in any {duration(first.window_s)}."
    for rung in others:
        yield f"Beyond that {DONE[rung.name]}: {_often(rung.uses_max)} in any {duration(rung.window_s)}."
    yield "Beyond that the JobSet fails, with the reason RestartLimitExceeded."
    yield f"After {restarts_max} restarts in all it fails at the next failure, whatever the windows say."


def _often(uses: int) -> str:
    return "once" if uses == 1 else f"up to {uses} times"


def duration(seconds: int) -> str:
    """Return whole days, hours or minutes where they fit, else seconds."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _progress_sentences(limit: NoProgressLimit) -> Iterator[str]:
    epochs = "an epoch ends" if limit.epochs == 1 else f"{limit.epochs} epochs in a row end"
    yield f"If {epochs} by a failure and without a higher step than ever before, the JobSet fails: NoProgress."
    if limit.short_s is None:
        yield "An epoch whose steps no Pod tells is not judged; Pods tell steps only where a watchdog is on."
    else:
        yield f"An epoch whose steps no Pod tells counts as one without progress if it ran less than {limit.short_s} s."
