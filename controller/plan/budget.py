"""
Count restarts against maxRestarts, for both ways of restarting. The status holds the counts.

A recreation is counted where upstream counts it (restartsCountTowardsMax, jobRestartsCountTowardsMax). Under in-place
restart every group restart is an epoch, also one that a recreation, a resume or a resize causes. Such an epoch is
*exempt*: either it is counted already, as a recreation, or it must not be counted. So

    restarts = counted recreations + epochs after the first that are not exempt

`status.exemptEpochs` is the number of exempt epochs, and `status.lastExemptEpoch` the newest of them. So an exemption
that is asked for twice before its epoch comes is one exemption. If a JobSet is divided into scopes, each has its own
two fields, and one maxRestarts applies to their sum. A status without these fields comes from an upstream controller,
or from one of ours that did not write them; there, every recreation made an exempt epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.escalation import without_epoch
from inplace.common.jobset.scopes import Scope, write_scope
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft


def exempt_next_epoch(
    draft: Draft, scopes: Iterable[Scope], trigger: Trigger, failure: Failure | None = None, request: str = ""
) -> None:
    """Note that the group restart to come is not counted as one (it is counted elsewhere, or not at all), and why."""
    if not draft.jobset.is_in_place:
        return
    for scope in scopes:
        is_restart = scope.synced > 0 and scope.last_exempt <= scope.synced
        write_scope(draft.status, scope, exemption(scope))
        if is_restart and wire.ESCALATION_USES in draft.status:
            draft.status[wire.ESCALATION_USES] = without_epoch(draft.status, scope.name, scope.synced + 1)
        draft.blame(scope, trigger, failure, request)


def exemption(scope: Scope) -> dict[str, int]:
    """Return the fields that exempt a scope's next epoch: the first one is no restart, and an epoch is exempt once."""
    is_restart = scope.synced > 0 and scope.last_exempt <= scope.synced
    return {
        wire.EXEMPT_EPOCHS: scope.exempt + is_restart,
        wire.LAST_EXEMPT_EPOCH: scope.synced + 1 if is_restart else scope.last_exempt,
    }


def exempt_unless_restarting(draft: Draft, replicated_job: str, trigger: Trigger) -> None:
    """Note that a group restart which we bring about is not counted; one that is under way counts as it did."""
    scope = draft.jobset.scope_of(replicated_job)
    if scope.deprecated < scope.synced:
        exempt_next_epoch(draft, (scope,), trigger)
