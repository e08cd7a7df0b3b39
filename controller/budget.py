"""
What counts towards maxRestarts, in both ways of restarting; it survives the controller because the status holds it.

A recreation is counted where upstream counts it (restartsCountTowardsMax, jobRestartsCountTowardsMax). Under in-place
restart every group restart is an epoch, also one that a recreation, a resume or a resize brings about. Such an epoch
is *exempt*: either it is counted already, as a recreation, or it is not to be counted. So

    restarts = counted recreations + epochs after the first that are not exempt

`status.exemptEpochs` is how many are, and `status.lastExemptEpoch` the newest of them, which makes an exemption that
is asked for twice before its epoch came one exemption. A status without them is of an upstream controller or of one
of ours that did not write them: there, every recreation made an exempt epoch.
"""

from __future__ import annotations

from common import wire
from controller.draft import Draft
from controller.jobset import JobSet


def exempt_next_epoch(draft: Draft) -> None:
    """Note that the group restart to come is not counted as one: it is counted elsewhere, or not at all."""
    jobset = draft.jobset
    if not jobset.is_in_place:
        return
    synced, _ = jobset.epochs
    is_restart = synced > 0 and jobset.last_exempt_epoch <= synced  # the first epoch is none; one exemption an epoch
    draft.status[wire.EXEMPT_EPOCHS] = jobset.exempt_epochs + is_restart
    draft.status[wire.LAST_EXEMPT_EPOCH] = synced + 1 if is_restart else jobset.last_exempt_epoch


def exempt_unless_restarting(draft: Draft) -> None:
    """Note that a group restart which we bring about is not counted; one that is under way counts as it did."""
    if draft.jobset.is_in_place:
        synced, deprecated = draft.jobset.epochs
        if deprecated < synced:
            exempt_next_epoch(draft)


def restarts_so_far(jobset: JobSet) -> int:
    """Return how many restarts used up maxRestarts so far; one that is under way in place is not over yet."""
    recreations = jobset.recreations_counted
    if not jobset.is_in_place:
        return recreations
    synced, _ = jobset.epochs
    reached = jobset.exempt_epochs - (jobset.last_exempt_epoch > synced)
    return recreations + max(0, synced - 1 - reached)
