"""
Create the PersistentVolumeClaims of spec.volumeClaimPolicies before any Job, also while suspended.

A claim that exists is used as it is, whatever its spec: so data outlives a JobSet (whenDeleted Retain), and users can
create claims by hand. Such a claim is neither changed nor adopted. The controller waits only for a claim that is being
deleted, or that will be deleted with another JobSet: Pods that mounted it would lose their data or never start. Source:
jobset pkg/controllers/volume_claim_policy.go.
"""

from __future__ import annotations

from inplace.controller.plan.actions import CreateClaim
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import build_claim

LOOK_AGAIN_S = 30.0  # removing an owner from a claim wakes no JobSet


def ensure_claims(draft: Draft) -> bool:
    """Create the claims that are missing; no Job starts before all are there, but the rest of the pass goes on."""
    jobset = draft.jobset
    for claim in jobset.claims:
        name = jobset.claim_name(claim)
        present = draft.observed.claims.get(name)
        if present is None:
            draft.add(CreateClaim(build_claim(jobset, claim)))
            draft.may_start_jobs = False
            continue
        owner = present.owner_uid
        if present.metadata.deletion_timestamp is not None or owner not in (None, jobset.uid):
            draft.may_start_jobs = False
            draft.look_again(LOOK_AGAIN_S)
            state = "is being deleted" if owner in (None, jobset.uid) else f"goes with another jobset (UID {owner})"
            draft.warn(
                "PVCCreationFailed",
                f"persistentvolumeclaim {name} {state}: expected a free name, or a claim that stays; no job is created "
                "until it is gone; delete what still uses it, or rename the jobset",
            )
    return False
