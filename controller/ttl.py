"""
Delete a finished JobSet ttlSecondsAfterFinished after it finished.

The moment of finishing is the transition time that some controller wrote, the time now is ours. Where the two clocks
differ, a JobSet that seems to finish in the future is deleted later, never earlier than asked: time runs from what is
written. Source: jobset pkg/controllers/ttl_after_finished.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from controller import conditions
from controller.draft import DeleteJobSet, Draft
from controller.jobset import JobSet

# A clock that is corrected, or a longer sleep than the event loop likes, is found within the hour.
REQUEUE_S_MAX: Final = 3600.0


def delete_after_ttl(draft: Draft) -> bool:
    """Delete a finished JobSet whose time has come, or look again when it has; ends the pass of a finished one."""
    jobset = draft.jobset
    if not jobset.is_finished:
        return False
    ttl_s = jobset.ttl_s
    if ttl_s is None:
        return True
    try:
        left_s = _finished_at(jobset).timestamp() + ttl_s - datetime.fromisoformat(draft.observed.now).timestamp()
    except ValueError as error:
        draft.warn("TTLUnknown", f"expected a time when the jobset finished, saw {error}: it is not deleted by its TTL")
        return True
    if left_s <= 0:
        draft.add(DeleteJobSet(jobset.uid))
    else:
        draft.look_again(min(left_s, REQUEUE_S_MAX))
    return True


def _finished_at(jobset: JobSet) -> datetime:
    """Return when the terminal condition became True.

    Raises:
        ValueError: nobody wrote a time.
    """
    for condition in jobset.status.get("conditions") or ():
        if condition.get("type") in (conditions.COMPLETED, conditions.FAILED) and condition.get("status") == "True":
            return datetime.fromisoformat(str(condition.get("lastTransitionTime")))
    raise ValueError("no terminal condition")
