"""Say how a JobSet stands by its status alone, for lists: no Pod is read. Pure."""

from __future__ import annotations

from dataclasses import replace

from inplace.cli.group.state import GroupState, group_state
from inplace.common.bare.record import replace as changed
from inplace.common.jobset.headline import Slots, SlotState
from inplace.common.jobset.jobset import COUNTERS, JobSet
from inplace.common.kube.resources import KubeObject


def state_of_status(raw: KubeObject) -> GroupState:
    """Return how a JobSet stands by its status alone: no Pod is read, and none is missed that no condition misses."""
    state = group_state(raw, (), named_max=0)
    jobset, scopes = state.jobset, []
    for scope in state.scopes:
        slots = scope.slots
        if slots.runs and jobset is not None:
            lost = min(1, scope.expected) if state.stuck else 0
            completed = min(_completed(jobset, scope.name), scope.expected - lost)
            counts = {SlotState.VACANT: lost, SlotState.COMPLETED: completed}
            counts[SlotState.RUNS] = scope.expected - lost - completed
            slots = Slots(counts, slots.synced, slots.deprecated, slots.scope)
        elif slots.synced == 0 and jobset is not None:  # the agent makes its Pod ready when the barrier lifts
            slots = changed(slots, is_unequipped=_all_ready(jobset, scope.name))
        scopes.append(replace(scope, slots=slots))
    return replace(state, scopes=scopes)


def _all_ready(jobset: JobSet, scope: str) -> bool:
    """Say whether all Jobs of a scope are ready, by the status."""
    ready = {str(one.get("name")): one.get("ready") for one in jobset.status.get(COUNTERS) or ()}
    jobs = [job for job in jobset.replicated_jobs if job.name in jobset.scopes[scope].members]
    return any(job.replicas for job in jobs) and all(ready.get(job.name) == job.replicas for job in jobs)


def _completed(jobset: JobSet, scope: str) -> int:
    """Return how many Pods of a scope are in Jobs that completed, by the status."""
    sizes = {job.name: job.parallelism for job in jobset.replicated_jobs if job.name in jobset.scopes[scope].members}
    counters = [one for one in jobset.status.get(COUNTERS) or () if one.get("name") in sizes]
    return sum(sizes[one["name"]] * int(one.get("succeeded") or 0) for one in counters)
