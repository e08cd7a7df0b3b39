"""A status that the API server accepted, and what led to it: all who tell of a pass read this one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inplace.common.jobset.causes import Cause
from inplace.common.jobset.jobset import JobSet
from inplace.controller.plan.actions import Plan
from inplace.controller.tracking.group import Group


@dataclass(frozen=True, slots=True)
class AcceptedStatus:
    """The status write of one pass.

    Args:
        group: the JobSet's; a watch may have shown it more than was written.
        before: the JobSet that was decided on.
        after: the same with the accepted status.
        planned: the decision.
        causes: by scope, why it restarts.
        due_since_s: by scope, when its ledger first asked for this write.
        at_s: when the server accepted it.
    """

    group: Group
    before: JobSet
    after: JobSet
    planned: Plan
    causes: Mapping[str, Cause]
    due_since_s: Mapping[str, float]
    at_s: float
