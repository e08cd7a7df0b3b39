"""
Keep the last restarts in the status, and the failure after which none came: always in a write that happens anyway.

docs/adr/0100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from inplace.common.jobset.causes import Cause, Failure, Trigger
from inplace.common.jobset.conditions import FAILED
from inplace.common.jobset.crash_loop import crash_loop_of
from inplace.common.jobset.last_restart import UNSEEN, begun, blamed, ended, entry_of
from inplace.common.jobset.observing import OBSERVED, Answer, answers
from inplace.common.jobset.restart_history import FIELD, PastRestart, fields_of, history_of, past_restart, with_restart
from inplace.common.jobset.scopes import Scope, fields_of_scope
from inplace.common.protocol.members import of_epoch
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft


def note_past_restart(draft: Draft, scope: Scope, entry: Mapping[str, Any]) -> None:
    """Add a restart that ends, or that never comes.

    Args:
        draft: the pass.
        scope: before this write.
        entry: of the restart, as status.lastGroupRestart has it.
    """
    members = of_epoch(draft.jobset.scopes_in(draft.status)[scope.name].ranks, entry["epoch"])
    past = past_restart(entry, draft.observed.silent.get(scope.name), members.resume if members is not None else None)
    restarts = with_restart(history_of(draft.status), past)
    found = _not_applied(draft, scope, restarts) if "syncedAt" in entry else ()
    for _, words in found:
        draft.note(OBSERVED, words, warning=True)
    if found:
        restarts = with_restart(restarts, structs.replace(past, observed="+".join(kind for kind, _ in found)))
    draft.status[FIELD] = fields_of(restarts)


def _not_applied(draft: Draft, scope: Scope, restarts: Sequence[PastRestart]) -> Sequence[Answer]:
    """Return what would have been done about a restart that ends, where nobody asks for more than word of it."""
    jobset, running = draft.jobset, scope.synced
    notices = [one for one in draft.observed.notices if (one.scope, one.epoch) == (scope.name, running)]
    loop, suspects = crash_loop_of(fields_of_scope(draft.status, scope)), jobset.suspects
    if suspects is not None and scope.has_spares and not suspects.is_observed:
        suspects = None  # a spare takes over, see `controller.plan.escalation`
    return tuple(
        answers(jobset.annotations, restarts, suspects=suspects, loop=loop, notices=notices, now=draft.observed.now)
    )


def history_so_far(draft: Draft, scope: Scope) -> tuple[PastRestart, ...]:
    """Return the history with the restart of a scope that is under way, and whose Pods have all announced."""
    cause, silent = draft.causes.get(scope.name, UNSEEN), draft.observed.silent.get(scope.name)
    entry = ended(draft.status, scope, cause, draft.now, silent) or begun(draft.status, scope, cause, draft.now)
    return with_restart(history_of(draft.status), past_restart(entry, silent))


def note_last_failure(draft: Draft, failure: Failure | None = None) -> None:
    """Say, as the JobSet fails, what failed last: no epoch comes after it, and its Pods go.

    Args:
        draft: the pass.
        failure: of a Job, where no Pod was seen to fail.
    """
    if not draft.jobset.is_in_place:
        return
    for scope in draft.jobset.scopes_in(draft.status).values():
        cause = draft.causes.get(scope.name)
        if cause is None and failure is not None and entry_of(draft.status, scope) is None:
            cause = Cause(Trigger.JOB_FAILED, draft.now, failure=failure)
        if scope.synced > 0 and cause is not None and cause.trigger.is_failure:
            entry = begun(draft.status, scope, cause, draft.now)
            draft.status[wire.LAST_GROUP_RESTART] = entry
            note_past_restart(draft, scope, entry)


def correct_last_failure(draft: Draft) -> bool:
    """Say of a JobSet that has failed what failed first, where that was told last."""
    if draft.status.get("terminalState") != FAILED or not draft.jobset.is_in_place:
        return False
    for scope in draft.jobset.scopes.values():
        entry, cause = entry_of(draft.status, scope), draft.causes.get(scope.name)
        if entry is not None and cause is not None and (better := blamed(entry, cause)) != entry:
            draft.status[wire.LAST_GROUP_RESTART] = better
            note_past_restart(draft, scope, better)
    return False
