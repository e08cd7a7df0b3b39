"""
Let a Pod leave a marked node: its restart waits for the replacement, and the others restart in place meanwhile.

The question whether its node is marked (`controller.api.node_marks`) goes out beside the write of D. S waits for the
answer, which is most often there before the Pods are. One Pod of a scope leaves at a time: the next when it has ended.
docs/adr/0092
"""

from __future__ import annotations

from dataclasses import replace

from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.settings import STAY
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.escalation import let_leave


def leave_marked_node(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Write that the first marked Pod of a scope leaves; return the decision without the sync that it takes back.

    A sync waits for the answer, too.
    """
    runs_on = scope.synced > max(scope.deprecated, decision.deprecated) and decision.synced == scope.synced
    is_skipped = decision.synced == decision.deprecated > scope.synced
    if runs_on or is_skipped or decision.exceeded:
        return decision
    without_sync = replace(decision, synced=scope.synced, deprecated=scope.synced)
    marked = next(iter(draft.observed.marked.get(scope.name, ())), None)
    if marked is None:
        open_s = draft.observed.asking.get(scope.name)
        if open_s is None or decision.synced == scope.synced:
            return decision
        draft.look_again(open_s)
        return without_sync
    why = (
        f"{marked.why}; the group waits until another node takes its replacement, or the mark is removed; "
        f"marked={STAY} in {wire.NODES} lets pods restart where they are"
    )
    return without_sync if let_leave(draft, scope, marked.pod, why) else decision
