"""Count the Jobs for status.replicatedJobsStatus, and detect the end of a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inplace.common.jobset.buckets import is_ready
from inplace.common.jobset.conditions import RESTART_JOBS_READY
from inplace.common.jobset.jobset import COUNTERS
from inplace.controller.plan.draft import Draft


def count_jobs(draft: Draft) -> bool:
    """Count the Jobs of each replicatedJob; written sorted by name, descending, as upstream does."""
    jobset, buckets = draft.jobset, draft.buckets
    old = {entry.get("name"): entry for entry in jobset.status.get(COUNTERS) or ()}
    places = jobset.places
    counts = {
        job.name: dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for job in jobset.replicated_jobs
    }
    for job in buckets.active:
        count = counts[places[job.metadata.name][0]]
        count["ready"] += is_ready(job)
        count["active"] += (job.status.active or 0) > 0
        count["suspended"] += bool(job.spec.suspend)
    for job in buckets.successful:
        counts[places[job.metadata.name][0]]["succeeded"] += 1
    for job in buckets.failed + buckets.left:
        counts[places[job.metadata.name][0]]["failed"] += 1
    new = [{**old.get(name, {}), "name": name, **counts[name]} for name in sorted(counts, reverse=True)]
    if _by_name(new) != _by_name(old.values()):
        draft.status[COUNTERS] = new
    draft.status.setdefault("restarts", 0)
    return False


def note_jobs_ready(draft: Draft) -> bool:
    """Note that a restart is over once every Job is ready or done."""
    if not draft.jobset.suspended:
        ended = len(draft.buckets.successful) + len(draft.buckets.left)
        done = sum(is_ready(job) for job in draft.buckets.active) + ended
        if done == len(draft.jobset.places):
            draft.set(RESTART_JOBS_READY)
    return False


def _by_name(entries: Iterable[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    return {entry.get("name"): entry for entry in entries}
