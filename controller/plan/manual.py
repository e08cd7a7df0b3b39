"""
Restart the group on a person's request: annotation `restart-requested` with a new id.

Idempotent: the write that deprecates the running epochs also stores the id, and the next epoch is exempt from
maxRestarts. If nothing runs (before the first epoch, while suspended, during a restart), the request is stored and
nothing else happens. All scopes restart. docs/adr/0039

With `,save=SECONDS` behind the id, that write exempts the next epoch and says until when the workers may save. They end
by themselves when they have saved: then, or when the time is over, the restart begins. A CRD that is older than the
field loses the time; then the restart begins at once, with a warning. docs/adr/0069

A CRD that loses the id itself would let the restart come again after each restart: then the request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.last_restart import entry_of
from inplace.common.jobset.requests import RestartRequest
from inplace.common.jobset.scopes import CRD_CURE, Saving, Scope, write_scope
from inplace.common.jobset.settings import planned_save_s
from inplace.common.wire import names as wire
from inplace.controller.plan.budget import exempt_next_epoch, exemption
from inplace.controller.plan.draft import Draft


def restart_on_request(draft: Draft) -> bool:
    """Deprecate what runs, once for each id; at once, or when the workers had time to save."""
    jobset, wanted = draft.jobset, draft.jobset.restart_request
    if not jobset.is_in_place:
        return False
    running = [scope for scope in jobset.scopes.values() if scope.is_running and not jobset.suspended]
    if wanted is not None and draft.observed.forgets_requests:
        draft.warn(
            "RestartRequestRefused",
            f"request {wanted.id}: expected the status to keep its field {wire.LAST_RESTART_REQUEST}, saw that it is "
            "dropped: the CustomResourceDefinition is older than this controller, and the restart would come again and "
            f"again; nothing is restarted; {CRD_CURE}",
        )
    elif wanted is not None and wanted.id != jobset.status.get(wire.LAST_RESTART_REQUEST):
        draft.status[wire.LAST_RESTART_REQUEST] = wanted.id
        if not running:
            draft.note(
                "RestartRequestNoted", f"request {wanted.id}: nothing runs that could restart; {_why_not(draft)}"
            )
        elif wanted.save_s:
            _let_save(draft, running, wanted)
            return False
        else:
            _restart(draft, running, wanted.id)
            return False
    elif (
        wanted is not None and wanted.save_s and (lost := [scope for scope in running if _is_saving_lost(draft, scope)])
    ):
        draft.warn(
            "SavingNotStored",
            f"request {wanted.id}: expected the status to keep its field {wire.SAVING}, saw that it is gone: the "
            "CustomResourceDefinition is older than this controller; it restarts now, without time to save; "
            f"{CRD_CURE}",
        )
        _restart(draft, lost, wanted.id)
        return False
    for scope in running:
        if scope.saving_now is not None:
            _restart_in_time(draft, scope, scope.saving_now)
    return False


def exchange_members(draft: Draft) -> bool:
    """Restart a group in which spares should become members, as if a person had asked: with the time to save first."""
    jobset = draft.jobset
    for name, why in draft.observed.exchanges.items():
        scope = jobset.scopes[name]
        if scope.is_running and scope.saving_now is None and not jobset.suspended:
            draft.note("SparesBecomeMembers", f"{f'scope {name}: ' if name else ''}{why}")
            _restart_after_saving(draft, scope)
    return False


def _restart_after_saving(draft: Draft, scope: Scope) -> None:
    templates = [draft.jobset.replicated_job(name).template() for name in scope.members]
    if save_s := planned_save_s(draft.jobset.annotations, templates):
        _let_save(draft, (scope,), RestartRequest("", save_s))
    else:
        _restart(draft, (scope,), "")


def _restart(draft: Draft, scopes: Sequence[Scope], request: str) -> None:
    """Deprecate; without the id of a request the controller itself wants it."""
    exempt_next_epoch(draft, scopes, Trigger.MANUAL if request else Trigger.MEMBERS, request=request)
    draft.deprecating |= {scope.name for scope in scopes}


def _is_saving_lost(draft: Draft, scope: Scope) -> bool:
    """Say whether the time to save is gone that was written with the exemption of the next epoch.

    What else exempts an epoch, such as a disruption, says in the same write that its restart began.
    """
    is_exempt = scope.last_exempt == scope.synced + 1
    return scope.saving_now is None and is_exempt and entry_of(draft.status, scope) is None


def _let_save(draft: Draft, scopes: Sequence[Scope], wanted: RestartRequest) -> None:
    """Ask the workers to save. The exemption is written BEFORE a worker can end because of it."""
    now_s = draft.now_s
    for scope in scopes:
        until_s = now_s + wanted.save_s
        if scope.saving_now is not None:
            until_s = min(until_s, scope.saving_now.until_s)  # nobody puts off a restart by asking again
        saving = Saving(scope.synced, wanted.id, until_s)
        write_scope(draft.status, scope, exemption(scope) | saving.fields())
        draft.look_again(until_s - now_s)
    who = f"request {wanted.id}: " if wanted.id else ""
    draft.note("SavingRequested", f"{who}the workers have {wanted.save_s} s to save before the restart")


def _restart_in_time(draft: Draft, scope: Scope, saving: Saving) -> None:
    """Restart a scope whose time to save is over; one that begins to restart earlier does so for the request."""
    left_s = saving.until_s - draft.now_s
    decision = draft.observed.decisions[scope.name]
    if left_s <= 0 or decision.deprecated >= scope.synced or decision.synced > scope.synced:
        cause = draft.causes.get(scope.name)
        if cause is not None and cause.trigger is Trigger.WORKER_EXIT:
            del draft.causes[scope.name]  # it ended as it was asked to: that is no failure
        _restart(draft, (scope,), saving.request)
    else:
        draft.look_again(left_s)


def _why_not(draft: Draft) -> str:
    if draft.jobset.suspended:
        return "the jobset is suspended, and starts again when it is resumed"
    if not any(scope.synced for scope in draft.jobset.scopes.values()):
        return "the group has not started yet"
    return "a restart is under way already"
