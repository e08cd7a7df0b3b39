"""The numbers of one group that the metrics show."""

from __future__ import annotations

from dataclasses import dataclass

from inplace.common.protocol.decision import PodCounts
from inplace.controller.spec.causes import Failure
from inplace.controller.spec.furthest_behind import FurthestBehind
from inplace.controller.spec.goodput import Goodput


@dataclass(frozen=True, slots=True)
class JobSetCount:
    """What is said once of each JobSet.

    Args:
        restarts_max: maxRestarts.
        restarts_left: how many more of them it has.
        synced_at_s: when the last group restart ended, Unix time; None for never.
        first_failure: of the last group restart; None when nothing failed in it, or the failure is unknown.
        first_silent: in the epoch before it; None if no Pod told.
    """

    namespace: str
    jobset: str
    restarts_max: int
    restarts_left: int
    synced_at_s: float | None
    first_failure: Failure | None
    first_silent: FurthestBehind | None = None


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How one group stands, counted by its ledger.

    Args:
        scope: what restarts together; "" is the whole JobSet.
        expected: N.
        standing: what their Pods do.
        synced: S.
        deprecated: D.
        waited_s: how long the present barrier has waited; 0 when none does.
        whole: what is said once of the JobSet, by one of its scopes.
        goodput: what its restarts cost in training time; None where no Pod ever told its steps.
    """

    namespace: str
    jobset: str
    scope: str
    expected: int
    standing: PodCounts
    synced: int
    deprecated: int
    waited_s: float = 0.0
    whole: JobSetCount | None = None
    goodput: Goodput | None = None
