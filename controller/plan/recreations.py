"""
Bound the recreations of Jobs that no budget counts: of those that miss a barrier, and of those with completed Pods.

They happen while one barrier waits, so no epoch counts them. A Job that was recreated for this barrier already is
recreated again after `AGAIN_S` at the earliest, then after twice as long, and so on up to `AGAIN_S_MAX`. Any other Job
is recreated at once. `status.recreations` (in a divided JobSet one in each scope) remembers it, so another controller
does not begin anew. docs/adr/0021
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft

AGAIN_S: Final = 300.0  # slower than nearly every Pod's start; 400 Jobs are 3 requests a second, for their JobSet alone
AGAIN_S_MAX: Final = 3600.0  # an image of a terabyte; a person has looked by then
DOUBLINGS_MAX: Final = 4  # 300 s * 2^4 is beyond the longest wait


def recreate(draft: Draft, scope: Scope, jobs: Iterable[Job], why: str) -> tuple[int, float]:
    """Delete those of the Jobs whose turn it is; return how many, and in how many seconds the others have theirs."""
    wanted = [job for job in jobs if not job.is_leaving]
    if not wanted:
        return 0, 0.0
    rounds, at_s = _so_far(fields_of_scope(draft.status, scope), scope.synced + 1)
    wait_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(rounds - 1, DOUBLINGS_MAX)) if rounds else 0.0
    left_s = at_s + wait_s - draft.now_s
    waits = 0.0 < left_s <= wait_s
    due = [job for job in wanted if not waits or _is_older(job, at_s)]
    for job in due:
        draft.delete(job, why)
    if due and not waits:
        fields = {"epoch": scope.synced + 1, "rounds": rounds + 1, "at": draft.now}
        write_scope(draft.status, scope, {wire.RECREATIONS: fields})
    if len(due) == len(wanted):
        return len(due), 0.0
    draft.look_again(left_s)
    return len(due), left_s


def _so_far(fields: Mapping[str, Any], epoch: int) -> tuple[int, float]:
    """Return how often Jobs were recreated for the barrier of an epoch, and when last."""
    found = fields.get(wire.RECREATIONS)
    if not isinstance(found, Mapping) or found.get("epoch") != epoch:
        return 0, 0.0
    rounds = found.get("rounds")
    return (rounds if isinstance(rounds, int) and rounds > 0 else 0), unix_time(found.get("at")) or 0.0


def _is_older(job: Job, at_s: float) -> bool:
    """Say whether a Job began to run before the last recreation; kubernetes keeps whole seconds."""
    began_s = unix_time(job.status.start_time)
    return began_s is not None and began_s < int(at_s)
