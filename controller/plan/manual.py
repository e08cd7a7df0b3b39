"""
Restart the group on a person's request: annotation `restart-requested` with a new id.

Idempotent: the write that deprecates the running epochs also stores the id, and the next epoch is exempt from
maxRestarts. If nothing runs (before the first epoch, while suspended, during a restart), the request is stored and
nothing else happens. All scopes restart. docs/adr/0039
"""

from __future__ import annotations

from inplace.common import wire
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.spec.causes import Trigger


def restart_on_request(draft: Draft) -> bool:
    """Deprecate what runs, once for each id."""
    jobset, wanted = draft.jobset, draft.jobset.restart_request
    if not jobset.is_in_place or wanted is None or wanted == jobset.status.get(wire.LAST_RESTART_REQUEST):
        return False
    running = [scope for scope in jobset.scopes.values() if scope.synced > scope.deprecated and not jobset.suspended]
    draft.status[wire.LAST_RESTART_REQUEST] = wanted
    if not running:
        draft.note("RestartRequestNoted", f"request {wanted}: nothing runs that could restart; {_why_not(draft)}")
        return False
    exempt_next_epoch(draft, running, Trigger.MANUAL, request=wanted)
    draft.deprecating |= {scope.name for scope in running}
    return False


def _why_not(draft: Draft) -> str:
    if draft.jobset.suspended:
        return "the jobset is suspended, and starts anew when it is resumed"
    if not any(scope.synced for scope in draft.jobset.scopes.values()):
        return "the group has not started yet"
    return "a restart is under way already"
