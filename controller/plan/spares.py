"""
Hold room for Pods that will be replaced: a Job of placeholder Pods with a negative priority (docs/adr/0095).

The Job is the JobSet's, so it goes with it. It has no place in the spec: no step counts it, and its Pods lack the label
by which this controller and the headless Service find Pods. It is made when the group runs, so that spares never
compete with the first Pods for nodes or images, and it is deleted while the JobSet is suspended or finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.common.jobset.settings import SPARES
from inplace.common.jobset.spares import largest, spares_name
from inplace.controller.plan.actions import CreateJob, CreateSpares, DeleteJob, ResizeJob
from inplace.controller.plan.draft import Draft

LOOK_AGAIN_S: Final = 30.0  # while Pods of the Job are missing: the API server may refuse them


def hold_spares(draft: Draft) -> bool:
    """Create, resize or delete the Job of the spares."""
    jobset, wanted = draft.jobset, _wanted(draft)
    job = draft.observed.jobs.get(spares_name(jobset.name))
    if job is None:
        if wanted and all(scope.synced for scope in jobset.scopes.values()):
            draft.add(CreateSpares(CreateJob(jobset, largest(jobset.replicated_jobs), 0), wanted))
        return False
    if not wanted or job.condition("Failed") is not None or job.condition("Complete") is not None:
        draft.delete(job, DeleteJob.SPARES)
    elif job.spec.parallelism != wanted and not job.is_leaving:
        draft.add(ResizeJob(job.metadata.name, job.metadata.uid, wanted))
    elif (job.status.active or 0) < wanted:
        draft.look_again(LOOK_AGAIN_S)
    return False


def without_image(draft: Draft) -> Iterator[str]:
    """Yield that this controller has no image which spares could run."""
    if draft.jobset.spares and not draft.observed.adds_agents:
        yield (
            f"{SPARES.where}: expected a controller that was started with --agent-image, which "
            "spares run, saw one without; no spare is held; add it to the controller's Deployment"
        )


def _wanted(draft: Draft) -> int:
    """Return how many spares to hold now."""
    jobset = draft.jobset
    is_over = jobset.suspended or jobset.is_finished
    return 0 if is_over or not draft.observed.adds_agents else jobset.spares
